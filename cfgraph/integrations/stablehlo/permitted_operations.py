"""Rejection of StableHLO modules that have more than operations of known effect and bounded size.

A module is as little trusted as its graph: a portable artifact may have operations of each dialect
that MLIR knows, some of which write to memory, and XLA ends its process on sizes that overflow. The
lists here name what is permitted. They are applied to a module as it was read, and to the one that
XLA compiles; the process in which that happens is the net below them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from math import prod
from typing import Any, Final

from cfgraph.errors import Unsupported
from cfgraph.integrations.stablehlo.custom_calls import require_known_call
from cfgraph.integrations.stablehlo.padded_values import element_bits, padded_values
from cfgraph.limits import reserve
from cfgraph.ops.opdef.op import OpError

_STABLEHLO: Final = """
abs add after_all and atan2 batch_norm_grad batch_norm_inference batch_norm_training bitcast_convert
broadcast broadcast_in_dim case cbrt ceil cholesky clamp compare complex composite concatenate
constant convert convolution cosine count_leading_zeros create_token custom_call divide dot
dot_general dynamic_broadcast_in_dim dynamic_conv dynamic_gather dynamic_iota dynamic_pad
dynamic_reshape dynamic_slice dynamic_update_slice einsum exponential exponential_minus_one fft
floor gather get_dimension_size if imag iota is_finite log log_plus_one logistic map maximum minimum
multiply negate not optimization_barrier or pad partition_id popcnt power real real_dynamic_slice
reduce reduce_precision reduce_window remainder replica_id reshape return reverse rng
rng_bit_generator round_nearest_afz round_nearest_even rsqrt scatter select select_and_scatter
set_dimension_size shift_left shift_right_arithmetic shift_right_logical sign sine slice sort sqrt
subtract tan tanh torch_index_select transpose triangular_solve unary_einsum while xor
"""
_CHLO: Final = """
acos acosh asin asinh atan atanh bessel_i1e broadcast_add broadcast_and broadcast_atan2
broadcast_compare broadcast_complex broadcast_divide broadcast_maximum broadcast_minimum
broadcast_multiply broadcast_next_after broadcast_or broadcast_polygamma broadcast_power
broadcast_remainder broadcast_select broadcast_shift_left broadcast_shift_right_arithmetic
broadcast_shift_right_logical broadcast_subtract broadcast_xor broadcast_zeta conj constant
constant_like cosh digamma erf erf_inv erfc is_inf is_neg_inf is_pos_inf lgamma mulhi next_after
polygamma ragged_dot sinh square tan top_k zeta
"""
_FUNCTION: Final = "func.func"
_PERMITTED: Final = frozenset(
    {
        *(f"stablehlo.{name}" for name in _STABLEHLO.split()),
        *(f"chlo.{name}" for name in _CHLO.split()),
        "func.call",
        "func.return",
    }
)
_TOKEN: Final = "!stablehlo.token"
# XLA computes numbers of elements, and of bits, as 64-bit integers with a sign
_MAX_ELEMENTS: Final = 1 << 62
# XLA overflows its stack at 200 levels of calls, and at 400 of regions
_MAX_LEVELS: Final = 64
# with those of functions as often as they are called
_MAX_OPERATIONS: Final = 1 << 20
_OVERFLOW: Final = "XLA overflows its stack on a much deeper one"
_HINT: Final = "only those are run whose effects cfgraph knows; see docs/stablehlo.md"


def require_permitted(module: Any, *, is_static: bool) -> None:
    """Raise Unsupported for operations, calls, or types of unknown effect.

    A static module has the shapes of its inputs, and no calls that depend on them. Raises OpError
    for functions without bodies, for calls of another form, and for sizes beyond 2^62 elements;
    ExecutionError for those beyond the memory limit.
    """
    for function in module.body.operations:
        if function.operation.name != _FUNCTION:
            raise _unknown_operation(function.operation.name)
        if not any(region.blocks for region in function.operation.regions):
            name = function.attributes["sym_name"].value
            raise OpError(f"the function {name!r} of the module has no body")
        _require_permitted_types(_block_values(function.operation))
        for operation in chain.from_iterable(map(_operations, _inner(function.operation))):
            if operation.name not in _PERMITTED:
                raise _unknown_operation(operation.name)
            _require_permitted_types(operation.results)
            _require_permitted_types(_block_values(operation))
            if operation.name == "stablehlo.custom_call":
                require_known_call(operation, is_static=is_static)
            for dims, bits, description in padded_values(operation):
                _require_bounded(dims, bits, f"{description} of {operation.name}")


def _unknown_operation(name: str) -> Unsupported:
    message = f"the module of XlaCallModule has the operation {name!r}"
    return Unsupported(message, hint=_HINT, code="CFG701")


def _block_values(operation: Any) -> Iterator[Any]:
    """The arguments of the blocks of an operation."""
    for region in operation.regions:
        for block in region.blocks:
            yield from block.arguments


def _require_permitted_types(values: Any) -> None:
    from jaxlib.mlir import ir

    for value in values:
        value_type = value.type
        if isinstance(value_type, ir.RankedTensorType):
            if bits := element_bits(str(value_type.element_type)):
                # an unknown size is the least integer
                _require_bounded([size for size in value_type.shape if size >= 0], bits, value_type)
                continue
        elif str(value_type) == _TOKEN:
            continue
        message = f"the module of XlaCallModule has a value of type {str(value_type)[:80]}"
        raise Unsupported(message, hint=_HINT, code="CFG701")


def _require_bounded(dims: Sequence[int], bits: int, description: object) -> None:
    """Raise OpError or ExecutionError for a value that is too large."""
    if prod(dims) > _MAX_ELEMENTS or prod(filter(None, dims)) > _MAX_ELEMENTS:
        raise OpError(f"the module has a value of more than 2^62 elements: {description}")
    reserve(prod(dims) * bits // 8, f"a value of the module ({description})")


def require_shallow_regions(module: Any) -> None:
    """Raise OpError for regions that nest too deeply for the stack of a reader."""
    if _levels(module) > _MAX_LEVELS:
        message = f"the module has more than {_MAX_LEVELS} levels of regions"
        raise OpError(message, hint=_OVERFLOW)


def require_shallow_calls(module: Any) -> None:
    """Raise OpError for functions that call themselves, unknown ones, too deep, or too often."""
    levels: dict[str, int] = {}
    sizes: dict[str, int] = {}
    calls: dict[str, Counter[str]] = {}
    for function in module.body.operations:
        name = str(function.attributes["sym_name"].value)
        levels[name] = _levels(function)
        operations = list(_operations(function))
        sizes[name] = len(operations)
        calls[name] = Counter(chain.from_iterable(map(_symbols, operations)))
    if unknown := {*chain.from_iterable(calls.values())} - calls.keys():
        raise OpError(f"the module calls a function that it does not have: {min(unknown)!r}")
    # functions without callees are removed until none is left
    while leaves := [name for name, names in calls.items() if not names.keys() & calls.keys()]:
        for name in leaves:
            callees = calls.pop(name)
            levels[name] += max((levels[item] for item in callees), default=0)
            sizes[name] += sum(times * sizes[item] for item, times in callees.items())
            if sizes[name] > _MAX_OPERATIONS:
                message = f"the module has more than 2^20 operations in all calls of {name!r}"
                raise OpError(message, hint="XLA copies a function into each of its calls")
            if levels[name] > _MAX_LEVELS:
                message = f"the module has more than {_MAX_LEVELS} levels of calls and regions"
                raise OpError(f"{message}, of {name!r}", hint=_OVERFLOW)
    if calls:
        raise OpError(f"a function of the module calls itself: {next(iter(calls))!r}")


def _levels(root: Any) -> int:
    """The number of levels of operations in another one, counted up to one above the limit."""
    level, count = [root.operation], 0
    while count <= _MAX_LEVELS and (level := list(chain.from_iterable(map(_inner, level)))):
        count += 1
    return count


def _operations(root: Any) -> Iterator[Any]:
    """The operations in another one, at any depth."""
    todo = [root.operation]
    for operation in todo:
        yield operation
        todo += _inner(operation)


def _inner(operation: Any) -> list[Any]:
    """The operations of the regions of an operation."""
    return [
        inner.operation
        for region in operation.regions
        for block in region.blocks
        for inner in block.operations
    ]


def _symbols(operation: Any) -> Iterator[str]:
    """The functions that the attributes of an operation name."""
    from jaxlib.mlir import ir

    # the bindings cannot read constants of complex numbers, which name no function
    names = [] if operation.name == "stablehlo.constant" else operation.attributes
    for name in names:
        value = operation.attributes[name]
        for item in value if isinstance(value, ir.ArrayAttr) else [value]:
            if isinstance(item, ir.FlatSymbolRefAttr):
                yield item.value
