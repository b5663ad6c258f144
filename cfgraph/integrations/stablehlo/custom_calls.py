"""Custom calls of StableHLO modules that are permitted, each with its form.

XLA runs a custom call by its name, with whatever shapes the module states: routines of LAPACK write
behind a result that is too small, a call back to Python takes an index of a function as it is, and
XLA ends its process if an annotation has no operand. Only those are run whose form is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from cfgraph.errors import Unsupported
from cfgraph.ops.opdef.op import OpError

# the result has the type of the only operand: annotations, and functions of one element, which XLA
# replaces by its own
_UNARY: Final = frozenset(
    {
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "Sharding",
        "annotate_device_placement",
        "xla.sdy.FuncResultSharding",
        "xla.sdy.PropagationBarrier",
        *(f"mhlo.{name}" for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh")),
        *(f"mhlo.{name}" for name in ("erf", "sinh", "tan")),
    }
)
_GROUP: Final = "xla.sdy.ShardingGroup"
_ASSERTION: Final = "shape_assertion"
# with the numbers of arrays, and of initial values
_TOP_K: Final = {"mhlo.topk": (1, 0), "ApproxTopK": (2, 2)}
# calls that depend on shapes, with the numbers of operands (the least one) and results: refinement
# replaces them, and leaves none in a static module
_DYNAMIC: Final = {
    "stablehlo.dynamic_approx_top_k": (5, 2),
    "stablehlo.dynamic_reduce_window": (7, 1),
    "stablehlo.dynamic_rng_bit_generator": (2, 2),
    "stablehlo.dynamic_top_k": (2, 2),
}
# decompositions that XLA expands, and routines of LAPACK; letters are dimensions of matrices,
# without those of the batch: k is the smaller one of m and n; p is one of the reflectors, and s the
# side of a triangular matrix
_ROUTINES: Final = {
    "Eigh": (("nn",), ("nn", "n")),
    "LuDecomposition": (("mn",), ("mn", "k", "m")),
    "ProductOfElementaryHouseholderReflectors": (("mn", "p"), ("mn",)),
    "Qr": (("mn",), ("mn", "k")),
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
_CONFIGURATIONS: Final = ("mhlo.backend_config", "backend_config")
_LAPACK: Final = re.compile(r"lapack_([sdcz])([a-z]+)_ffi").fullmatch


def require_known_call(operation: Any, *, is_static: bool) -> None:
    """Raise Unsupported for a custom call of unknown effect, OpError for one of another form."""
    target = operation.attributes["call_target_name"].value
    form = _ROUTINES.get(_routine(target))
    fits = True
    if form is not None:
        if is_static:
            _require_shapes(operation, target, *form)
    elif target in _UNARY:
        types = _types(operation)
        fits = len(operation.operands) == 1 and len(types) == 2 and types[0] == types[1]
    elif target == _GROUP:
        fits = (len(operation.operands), len(operation.results)) == (1, 0)
    elif target == _ASSERTION:
        fits = _is_assertion(operation)
    elif target in _TOP_K:
        fits = not is_static or _is_top_k(_types(operation), _TOP_K[target])
    elif target in _DYNAMIC and not is_static:
        least, count = _DYNAMIC[target]
        fits = len(operation.operands) >= least and len(operation.results) >= count
    else:
        message = f"the module of XlaCallModule calls the routine {target!r}"
        hint = "only those are run whose effects cfgraph knows; see docs/stablehlo.md"
        raise Unsupported(message, hint=hint, code="CFG701")
    if not fits:
        raise _form_error(target)


def _form_error(target: str) -> OpError:
    return OpError(f"the call of {target!r} has another form than that of jax")


def _types(operation: Any) -> list[Any]:
    """The types of operands and results."""
    return [value.type for value in (*operation.operands, *operation.results)]


def _is_assertion(operation: Any) -> bool:
    """True for a truth value, and the integers of a message."""
    types = list(map(str, _types(operation)))
    numbers = ("tensor<i32>", "tensor<i64>")
    is_known = types[:1] == ["tensor<i1>"] and all(item in numbers for item in types[1:])
    return is_known and not len(operation.results)


def _is_top_k(types: Sequence[Any], counts: tuple[int, int]) -> bool:
    """True for arrays of one shape, scalars, and two results with at most as many elements.

    An array and its results differ in one dimension, and have one.
    """
    arrays, scalars = counts
    shapes = [tuple(item.shape) for item in types]
    if len(shapes) != arrays + scalars + 2 or not shapes[0]:
        return False
    first, (result, other) = shapes[0], shapes[-2:]
    is_known = {*shapes[:arrays]} == {first} and not any(shapes[arrays:-2]) and result == other
    if not is_known or len(result) != len(first):
        return False
    pairs = [(size, most) for size, most in zip(result, first, strict=True) if size != most]
    return len(pairs) <= 1 and all(size < most for size, most in pairs)


def _routine(target: str) -> str:
    """The name of a routine of LAPACK without the letter of its type, else the target."""
    match = _LAPACK(target)
    if match is None:
        return target
    has_form = match[2] == "geev" and match[1] in "cz"
    return f"{match[2]} complex" if has_form else match[2]


def _require_shapes(
    operation: Any, target: str, operands: tuple[str, ...], results: tuple[str, ...]
) -> None:
    """Raise OpError unless the types of a routine of LAPACK fit each other."""
    types = _types(operation)
    names = (*operands, *results)
    counts = (len(operation.operands), len(operation.results))
    if counts != (len(operands), len(results)):
        raise _form_error(target)
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
    has_reflectors = "gqr" in target or target.startswith("Product")
    return {"p": min(sizes["k"], *shape("p")[-1:])} if has_reflectors else {}


def _letter(operation: Any, name: str) -> str:
    """An option of a routine, which is one letter."""
    keys = [key for key in _CONFIGURATIONS if key in operation.attributes]
    if len(keys) != 1:
        raise OpError("a call of LAPACK has no options, or two sets of them")
    return chr(operation.attributes[keys[0]][name].value)
