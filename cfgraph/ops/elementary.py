"""Elementary functions of one number: powers, exponentials, logarithms, trigonometry."""

from __future__ import annotations

import operator
from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials
from cfgraph.ops.op import Kernel
from cfgraph.ops.pointwise import Pointwise
from cfgraph.ops.pointwise_gradients import by_input, by_output, by_result
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
    gradient = by_input(lambda g, dy, x: g.Neg(dy))


class Abs(Elementary):
    """The absolute value; that of the least integer is itself."""

    attrs = one_of(FLOATS, SIGNED)
    function = operator.abs
    gradient = by_input(lambda g, dy, x: g.Mul(dy, g.Sign(x)))


class Sign(Elementary):
    """-1, 0 or 1; of a complex number the direction."""

    attrs = one_of(FLOATS, SIGNED, COMPLEX)
    function = "sign"

    @staticmethod
    def gradient(g: Adjoint, node: Node, dy: Output) -> Partials:
        dtype, x, y = node.attr("T"), node.inputs[0], node.output()
        if not dtype.is_complex:
            return [None]
        outward = g.Real(g.Mul(dy, g.Conj(y)), Tout=dtype.real)  # a change of length does not count
        around = g.Sub(dy, g.Mul(y, g.Complex(outward, 0, Tout=dtype)))
        return [g.DivNoNan(around, g.Complex(g.ComplexAbs(x, Tout=dtype.real), 0, Tout=dtype))]


class Square(Elementary):
    """The number times itself."""

    attrs = one_of(FLOATS, SIGNED, UNSIGNED, COMPLEX)
    function = "square"
    gradient = by_input(lambda g, dy, x: g.Mul(dy, g.Mul(x, 2)))


class Sqrt(Elementary):
    """The square root."""

    function = "sqrt"
    gradient = by_result("SqrtGrad")


class Rsqrt(Elementary):
    """One over the square root."""

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return widened(super().bind(node, xp), node.attr("T"))

    @staticmethod
    def kernel(xp: ModuleType, x: Any) -> Any:
        return xp.reciprocal(xp.sqrt(x))

    gradient = by_result("RsqrtGrad")


class Reciprocal(Elementary):
    """One over the number."""

    attrs = one_of(FLOATS, SIGNED, COMPLEX)
    function = "reciprocal"
    gradient = by_result("ReciprocalGrad")


class Inv(Reciprocal):
    """One over the number."""


class Exp(Elementary):
    """The exponential."""

    function = "exp"
    gradient = by_output(lambda g, dy, y: g.Mul(dy, y))


class Expm1(Elementary):
    """The exponential, less one."""

    function = "expm1"
    gradient = by_input(lambda g, dy, x: g.Mul(dy, g.Exp(x)))


class Log(Elementary):
    """The natural logarithm."""

    function = "log"
    gradient = by_input(lambda g, dy, x: g.RealDiv(dy, x))


class Log1p(Elementary):
    """The natural logarithm of one more than the number."""

    function = "log1p"
    gradient = by_input(lambda g, dy, x: g.RealDiv(dy, g.AddV2(x, 1)))


class Sin(Elementary):
    """The sine."""

    function = "sin"
    gradient = by_input(lambda g, dy, x: g.Mul(dy, g.Cos(x)))


class Cos(Elementary):
    """The cosine."""

    function = "cos"
    gradient = by_input(lambda g, dy, x: g.Mul(dy, g.Neg(g.Sin(x))))


class Tan(Elementary):
    """The tangent."""

    function = "tan"
    gradient = by_output(lambda g, dy, y: g.Mul(dy, g.AddV2(g.Square(y), 1)))


class Asin(Elementary):
    """The inverse sine."""

    function = "arcsin"
    gradient = by_input(lambda g, dy, x: g.RealDiv(dy, _arm(g, x)))


class Acos(Elementary):
    """The inverse cosine."""

    function = "arccos"
    gradient = by_input(lambda g, dy, x: g.Neg(g.RealDiv(dy, _arm(g, x))))


class Atan(Elementary):
    """The inverse tangent."""

    function = "arctan"
    gradient = by_input(lambda g, dy, x: g.RealDiv(dy, g.AddV2(g.Square(x), 1)))


class Sinh(Elementary):
    """The hyperbolic sine."""

    function = "sinh"
    gradient = by_input(lambda g, dy, x: g.Mul(dy, g.Cosh(x)))


class Cosh(Elementary):
    """The hyperbolic cosine."""

    function = "cosh"
    gradient = by_input(lambda g, dy, x: g.Mul(dy, g.Sinh(x)))


class Tanh(Elementary):
    """The hyperbolic tangent."""

    function = "tanh"
    gradient = by_output(lambda g, dy, y: g.TanhGrad(y, dy))


class Asinh(Elementary):
    """The inverse hyperbolic sine."""

    function = "arcsinh"
    gradient = by_output(lambda g, dy, y: g.RealDiv(dy, g.Cosh(y)))


class Acosh(Elementary):
    """The inverse hyperbolic cosine."""

    function = "arccosh"
    gradient = by_output(lambda g, dy, y: g.RealDiv(dy, g.Sinh(y)))


class Atanh(Elementary):
    """The inverse hyperbolic tangent."""

    function = "arctanh"
    gradient = by_input(lambda g, dy, x: g.RealDiv(dy, _below_one(g, x)))


def _below_one(g: Adjoint, x: Output) -> Output:
    """1 - x²."""
    return g.Sub(1, g.Square(x))


def _arm(g: Adjoint, x: Output) -> Output:
    """√(1 - x²): the other side of the triangle."""
    return g.Sqrt(_below_one(g, x))
