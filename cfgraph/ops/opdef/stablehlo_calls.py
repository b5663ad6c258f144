"""Rejection of StableHLO modules whose calls or regions could damage the process that runs them.

XLA runs a custom call by its name, with whatever shapes the module states: routines of LAPACK write
behind a result that is too small, a call back to Python takes an index of a function as it is, and
a function that calls itself overflows the stack of the compiler. A module is as little trusted as
its graph, so that only routines with known shapes are called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Final

from cfgraph.errors import Unsupported
from cfgraph.ops.opdef.op import OpError

# what XLA expands, or what is only an annotation
_EXPANDED: Final = frozenset(
    {
        "ApproxTopK",
        "Eigh",
        "LuDecomposition",
        "ProductOfElementaryHouseholderReflectors",
        "Qr",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "Sharding",
        "annotate_device_placement",
        "shape_assertion",
    }
)
_EXPANDED_PREFIXES: Final = ("chlo.", "mhlo.", "stablehlo.", "xla.sdy.")
# letters are dimensions of matrices, without those of the batch: k is the smaller one of m and n;
# p is one of the reflectors, and s the side of a triangular matrix
_ROUTINES: Final = {
    "geev": (("nn",), ("n", "n", "nn", "nn", "")),
    "geev complex": (("nn",), ("n", "nn", "nn", "")),
    "geqrf": (("mn",), ("mn", "k")),
    "gesdd": (("mn",), ("mn", "k", "mu", "vn", "")),
    "getrf": (("mn",), ("mn", "k", "")),
    "heevd": (("nn",), ("nn", "n", "")),
    "orgqr": (("mn", "p"), ("mn",)),
    "potrf": (("nn",), ("nn", "")),
    "syevd": (("nn",), ("nn", "n", "")),
    "trsm": (("ss", "mn"), ("mn",)),
    "ungqr": (("mn", "p"), ("mn",)),
}
# XLA overflows its stack at 200 levels of calls, and at 400 of regions
_MAX_LEVELS: Final = 64
_OVERFLOW: Final = "XLA overflows its stack on a much deeper one"
_CONFIGURATIONS: Final = ("mhlo.backend_config", "backend_config")
_LAPACK: Final = re.compile(r"lapack_([sdcz])([a-z]+)_ffi").fullmatch


def require_safe_calls(module: Any) -> None:
    """Raise Unsupported for a custom call of unknown effect, OpError for one of wrong shapes."""
    for operation in _operations(module):
        if operation.name != "stablehlo.custom_call":
            continue
        target = operation.attributes["call_target_name"].value
        if form := _ROUTINES.get(_routine(target)):
            _require_shapes(operation, target, *form)
        elif target not in _EXPANDED and not target.startswith(_EXPANDED_PREFIXES):
            message = f"the module of XlaCallModule calls the routine {target!r}"
            hint = "only those are run whose effects cfgraph knows; see docs/stablehlo.md"
            raise Unsupported(message, hint=hint, code="CFG701")


def _routine(target: str) -> str:
    """The name of a routine of LAPACK, without the letter of its type; else an empty text."""
    match = _LAPACK(target)
    if match is None:
        return ""
    has_form = match[2] == "geev" and match[1] in "cz"
    return f"{match[2]} complex" if has_form else match[2]


def require_shallow_regions(module: Any) -> None:
    """Raise OpError for regions that nest too deeply for the stack of a reader."""
    if _levels(module) > _MAX_LEVELS:
        message = f"the module has more than {_MAX_LEVELS} levels of regions"
        raise OpError(message, hint=_OVERFLOW)


def require_shallow_calls(module: Any) -> None:
    """Raise OpError for a function that calls itself, or for too many levels of calls."""
    levels: dict[str, int] = {}
    callees: dict[str, dict[str, None]] = {}
    for function in module.body.operations:
        name = str(function.attributes["sym_name"].value)
        levels[name] = _levels(function)
        symbols = callees.setdefault(name, {})
        for operation in _operations(function):
            symbols.update(dict.fromkeys(_symbols(operation)))
    # functions without callees are removed until none is left
    while leaves := [name for name, names in callees.items() if not names & callees.keys()]:
        for name in leaves:
            levels[name] += max((levels.get(item, 0) for item in callees.pop(name)), default=0)
            if levels[name] > _MAX_LEVELS:
                message = f"the module has more than {_MAX_LEVELS} levels of calls and regions"
                raise OpError(f"{message}, of {name!r}", hint=_OVERFLOW)
    if callees:
        raise OpError(f"a function of the module calls itself: {next(iter(callees))!r}")


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


def _require_shapes(
    operation: Any, target: str, operands: tuple[str, ...], results: tuple[str, ...]
) -> None:
    """Raise OpError unless the types of a routine of LAPACK fit each other."""
    types = [value.type for value in (*operation.operands, *operation.results)]
    names = (*operands, *results)
    counts = (len(operation.operands), len(operation.results))
    if counts != (len(operands), len(results)):
        raise OpError(f"the call of {target!r} has another form than that of jax")
    shapes = [tuple(item.shape) for item in types]
    main = operands.index("mn") if "mn" in operands else 0
    *batch, m, n = shapes[main] if len(shapes[main]) > 1 else (-1, -1)
    sizes = {"m": m, "n": n, "k": min(m, n)}
    sizes |= _flexible_sizes(operation, sizes, lambda name: shapes[names.index(name)])
    texts = ", ".join(map(str, types))
    for name, shape in zip(names, shapes, strict=True):
        if shape != (*batch, *(sizes[letter] for letter in name)):
            raise OpError(f"the call of {target!r} has shapes that do not fit: {texts}")


def _flexible_sizes(
    operation: Any, sizes: dict[str, int], shape: Callable[[str], tuple[int, ...]]
) -> dict[str, int]:
    """The sizes that attributes decide, or of which there are several."""
    target = operation.attributes["call_target_name"].value
    if "trsm" in target:
        return {"s": sizes["m" if _letter(operation, "side") == "L" else "n"]}
    if "gesdd" in target:
        is_full = _letter(operation, "mode") == "A" or shape("mu")[-1:] != (sizes["k"],)
        return {"u": sizes["m" if is_full else "k"], "v": sizes["n" if is_full else "k"]}
    return {"p": min(sizes["k"], *shape("p")[-1:])} if "gqr" in target else {}


def _letter(operation: Any, name: str) -> str:
    """An option of a routine, which is one letter."""
    keys = [key for key in _CONFIGURATIONS if key in operation.attributes]
    if len(keys) != 1:
        raise OpError("a call of LAPACK has no options, or two sets of them")
    return chr(operation.attributes[keys[0]][name].value)
