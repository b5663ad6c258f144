"""The array namespace that kernels are run on to find their expressions.

What is not in it makes a kernel refuse: what mixes elements, and integer division, which may fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from cfgraph.runtime.fused.expressions import Elements, Primitive, refuse

_WRAPPED: Final = "({{T}})(({{U}}){{0}} {} ({{U}}){{1}})"
_CHOSEN: Final = "({{0}} {} {{1}} || {{0}} != {{0}} ? {{0}} : {{1}})"


def _arithmetic(like: Callable[..., Any], sign: str, bools: str = "") -> Primitive:
    return Primitive(like, f"{{0}} {sign} {{1}}", _WRAPPED.format(sign), bools)


def _bits(like: Callable[..., Any], sign: str, bools: str) -> Primitive:
    return Primitive(like, "", f"({{T}})({{0}} {sign} {{1}})", bools)


def _comparison(like: Callable[..., Any], sign: str) -> Primitive:
    text = f"{{0}} {sign} {{1}}"
    return Primitive(like, text, text, text, compares=True)


def _of_c(like: Callable[..., Any], name: str, count: int = 1) -> Primitive:
    given = ", ".join(f"{{{place}}}" for place in range(count))
    return Primitive(like, f"{name}{{s}}({given})")


_EITHER, _BOTH = "{0} || {1}", "{0} && {1}"
_SIGN = "({0} > 0 ? ({T})1 : {0} < 0 ? ({T})-1 : {0} == 0 ? ({T})0 : {0})"
_SIZE = "({T})({0} < 0 ? 0u - ({U}){0} : ({U}){0})"
_CHOICE = "({0} ? {1} : {2})"

PRIMITIVES: Final[Mapping[str, Primitive]] = {
    "add": _arithmetic(np.add, "+", _EITHER),
    "subtract": _arithmetic(np.subtract, "-"),
    "multiply": _arithmetic(np.multiply, "*", _BOTH),
    "true_divide": Primitive(np.true_divide, "{0} / {1}"),
    "remainder": _of_c(np.remainder, "cf_remainder", 2),
    "negative": Primitive(np.negative, "-{0}", "({T})(0u - ({U}){0})"),
    "abs": Primitive(np.abs, "fabs{s}({0})", _SIZE, "{0}"),
    "sign": Primitive(np.sign, _SIGN, _SIGN),
    "square": Primitive(np.square, "{0} * {0}", "({T})(({U}){0} * ({U}){0})"),
    "reciprocal": Primitive(np.reciprocal, "({T})1 / {0}"),
    "power": _of_c(np.power, "pow", 2),
    "arctan2": _of_c(np.arctan2, "atan2", 2),
    "fmod": _of_c(np.fmod, "fmod", 2),
    "nextafter": _of_c(np.nextafter, "nextafter", 2),
    "logaddexp": _of_c(np.logaddexp, "cf_logaddexp", 2),
    "maximum": Primitive(np.maximum, _CHOSEN.format(">="), _CHOSEN.format(">="), _EITHER),
    "minimum": Primitive(np.minimum, _CHOSEN.format("<="), _CHOSEN.format("<="), _BOTH),
    "where": Primitive(np.where, _CHOICE, _CHOICE, _CHOICE, choice=True),
    "isnan": Primitive(np.isnan, "{0} != {0}", compares=True),
    "isfinite": Primitive(np.isfinite, "{0} - {0} == 0", compares=True),
    "isinf": Primitive(np.isinf, "{0} == {0} && {0} - {0} != 0", compares=True),
    "less": _comparison(np.less, "<"),
    "less_equal": _comparison(np.less_equal, "<="),
    "greater": _comparison(np.greater, ">"),
    "greater_equal": _comparison(np.greater_equal, ">="),
    "equal": _comparison(np.equal, "=="),
    "not_equal": _comparison(np.not_equal, "!="),
    "logical_not": Primitive(np.logical_not, "!{0}", "!{0}", "!{0}", compares=True),
    "logical_and": _comparison(np.logical_and, "&&"),
    "logical_or": _comparison(np.logical_or, "||"),
    "bitwise_and": _bits(np.bitwise_and, "&", _BOTH),
    "bitwise_or": _bits(np.bitwise_or, "|", _EITHER),
    "bitwise_xor": _bits(np.bitwise_xor, "^", "{0} != {1}"),
    "invert": Primitive(np.invert, "", "({T})~{0}", "!{0}"),
    "left_shift": Primitive(
        np.left_shift, "", "(({U}){1} < {bits} ? ({T})(({U}){0} << {1}) : ({T})0)"
    ),
    "right_shift": Primitive(
        np.right_shift, "", "({T})({0} >> (({U}){1} < {bits} ? {1} : ({T}){bits} - 1))"
    ),
    "bitwise_count": Primitive(np.bitwise_count, "", "cf_ones(({U}){0})", compares=True),
    "rint": _of_c(np.rint, "rint"),
    "floor": _of_c(np.floor, "floor"),
    "ceil": _of_c(np.ceil, "ceil"),
    "trunc": _of_c(np.trunc, "trunc"),
    **{
        name: _of_c(getattr(np, name), in_c)
        for name, in_c in {
            "sqrt": "sqrt",
            "exp": "exp",
            "expm1": "expm1",
            "log": "log",
            "log1p": "log1p",
            "sin": "sin",
            "cos": "cos",
            "tan": "tan",
            "arcsin": "asin",
            "arccos": "acos",
            "arctan": "atan",
            "sinh": "sinh",
            "cosh": "cosh",
            "tanh": "tanh",
            "arcsinh": "asinh",
            "arccosh": "acosh",
            "arctanh": "atanh",
        }.items()
    },
}

_OPERATORS: Final = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "mod": "remainder",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
_COMPARISONS: Final = {
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
}
_SIGNS: Final = {"neg": "negative", "abs": "abs", "invert": "invert"}


def _operators() -> None:
    """Let what stands for an array have the operators of one."""

    def forward(primitive: Primitive) -> Callable[..., Any]:
        def operator(*operands: Any) -> Any:  # a function is a method, what can be called is not
            return primitive(*operands)

        return operator

    def turned(primitive: Primitive) -> Callable[..., Any]:
        return lambda x, y: primitive(y, x)

    for sign, name in (_OPERATORS | _COMPARISONS | _SIGNS).items():
        setattr(Elements, f"__{sign}__", forward(PRIMITIVES[name]))
    for sign, name in _OPERATORS.items():
        setattr(Elements, f"__r{sign}__", turned(PRIMITIVES[name]))


def _clip(x: Any, low: Any, high: Any) -> Any:
    """The number or the bound that it is beyond."""
    return PRIMITIVES["minimum"](PRIMITIVES["maximum"](x, low), high)


def _filled(value: int) -> Callable[[Any], Any]:
    def filled(x: Any) -> Any:
        if not isinstance(x, Elements):
            refuse("what is known")
        return x.recorder.lifted(x.dtype.type(value)).spread(x.shape)

    return filled


def _zeros(shape: Any, dtype: Any) -> Any:
    return np.dtype(dtype).type(0) if shape == () else refuse("a new array")


def _namespace() -> Any:
    # SciPy's names; their types are those of any function of a float
    own = {"erf": "erf", "erfc": "erfc", "gammaln": "lgamma"}
    return SimpleNamespace(
        **PRIMITIVES,
        clip=_clip,
        conj=lambda x: x,
        zeros=_zeros,
        zeros_like=_filled(0),
        ones_like=_filled(1),
        inf=np.inf,
        special=SimpleNamespace(**{name: _of_c(np.exp, in_c) for name, in_c in own.items()}),
        __name__=__name__,
    )


_operators()
ELEMENTWISE: Final = _namespace()
