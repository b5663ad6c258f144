"""Elementary functions of one number: powers, exponentials, logarithms, trigonometry."""

from __future__ import annotations

import operator
from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node
from cfgraph.ops.op import Kernel
from cfgraph.ops.pointwise import Pointwise
from cfgraph.ops.precision import widened
from cfgraph.ops.type_sets import COMPLEX, FLOATS, SIGNED, UNSIGNED, one_of


class Elementary(Pointwise, abstract=True):
    """A function of a real or complex number."""

    signature = "x: T -> y: T"
    attrs = one_of(FLOATS, COMPLEX)


class Neg(Elementary):
    """The number with its sign changed."""

    attrs = one_of(FLOATS, SIGNED, COMPLEX)
    function = operator.neg


class Abs(Elementary):
    """The absolute value; that of the least integer is itself."""

    attrs = one_of(FLOATS, SIGNED)
    function = operator.abs


class Sign(Elementary):
    """-1, 0 or 1; of a complex number the direction."""

    attrs = one_of(FLOATS, SIGNED, COMPLEX)
    function = "sign"


class Square(Elementary):
    """The number times itself."""

    attrs = one_of(FLOATS, SIGNED, UNSIGNED, COMPLEX)
    function = "square"


class Sqrt(Elementary):
    """The square root."""

    function = "sqrt"


class Rsqrt(Elementary):
    """One over the square root."""

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return widened(super().bind(node, xp), node.attr("T"))

    @staticmethod
    def kernel(xp: ModuleType, x: Any) -> Any:
        return xp.reciprocal(xp.sqrt(x))


class Reciprocal(Elementary):
    """One over the number."""

    attrs = one_of(FLOATS, SIGNED, COMPLEX)
    function = "reciprocal"


class Inv(Reciprocal):
    """One over the number."""


class Exp(Elementary):
    """The exponential."""

    function = "exp"


class Expm1(Elementary):
    """The exponential, less one."""

    function = "expm1"


class Log(Elementary):
    """The natural logarithm."""

    function = "log"


class Log1p(Elementary):
    """The natural logarithm of one more than the number."""

    function = "log1p"


class Sin(Elementary):
    """The sine."""

    function = "sin"


class Cos(Elementary):
    """The cosine."""

    function = "cos"


class Tan(Elementary):
    """The tangent."""

    function = "tan"


class Asin(Elementary):
    """The inverse sine."""

    function = "arcsin"


class Acos(Elementary):
    """The inverse cosine."""

    function = "arccos"


class Atan(Elementary):
    """The inverse tangent."""

    function = "arctan"


class Sinh(Elementary):
    """The hyperbolic sine."""

    function = "sinh"


class Cosh(Elementary):
    """The hyperbolic cosine."""

    function = "cosh"


class Tanh(Elementary):
    """The hyperbolic tangent."""

    function = "tanh"


class Asinh(Elementary):
    """The inverse hyperbolic sine."""

    function = "arcsinh"


class Acosh(Elementary):
    """The inverse hyperbolic cosine."""

    function = "arccosh"


class Atanh(Elementary):
    """The inverse hyperbolic tangent."""

    function = "arctanh"
