"""Gradients of elementary functions, each from the function's own result."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials, conj
from cfgraph.ops.op import Kernel
from cfgraph.ops.pointwise import Pointwise
from cfgraph.ops.precision import widened
from cfgraph.ops.type_sets import COMPLEX, FLOATS, one_of


class FromResult(Pointwise, abstract=True):
    """The gradient of y = f(x), given y and the gradient of y."""

    signature = "y: T, dy: T -> z: T"
    attrs = one_of(FLOATS, COMPLEX)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return widened(super().bind(node, xp), node.attr("T"))


def _along(slope: Any, dy: Any) -> Any:
    """The product; a slope of the same shape, which nobody else has, is written over."""
    if slope.shape != dy.shape:
        return dy * slope
    slope *= dy
    return slope


class SigmoidGrad(FromResult):
    """Gradient of Sigmoid."""

    @staticmethod
    def kernel(xp: ModuleType, y: Any, dy: Any) -> Any:
        slope = 1 - y
        slope *= y
        return _along(slope, dy)

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        y, dy = (conj(g, item) for item in node.inputs)

        def by_y() -> Output:
            along = g.Mul(dz, dy)
            return g.Sub(along, g.Mul(g.Mul(along, y), 2))

        return by_y, lambda: g.SigmoidGrad(y, dz)


class TanhGrad(FromResult):
    """Gradient of Tanh."""

    @staticmethod
    def kernel(xp: ModuleType, y: Any, dy: Any) -> Any:
        return _along(1 - y * y, dy)

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        y, dy = (conj(g, item) for item in node.inputs)
        return lambda: g.Mul(g.Mul(g.Mul(dz, -2), dy), y), lambda: g.TanhGrad(y, dz)


class Steep(FromResult, abstract=True):
    """A gradient that can be infinite: times zero it is zero all the same."""

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        kernel: Any = cls.kernel
        turned = node.attr("T").is_complex

        def guarded(y: Any, dy: Any) -> Any:
            result = kernel(xp, xp.conj(y) if turned else y, dy)
            return xp.where(dy == 0, xp.zeros((), dy.dtype), result)

        return widened(guarded, node.attr("T"))


class SqrtGrad(Steep):
    """Gradient of Sqrt."""

    @staticmethod
    def kernel(xp: ModuleType, y: Any, dy: Any) -> Any:
        return dy * 0.5 / y

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        quotient = g.RealDiv(dz, node.inputs[0])
        return (
            lambda: g.Mul(g.Neg(conj(g, quotient)), node.output()),
            lambda: g.Mul(quotient, 0.5),
        )


class RsqrtGrad(Steep):
    """Gradient of Rsqrt."""

    @staticmethod
    def kernel(xp: ModuleType, y: Any, dy: Any) -> Any:
        return dy * -0.5 * y * (y * y)

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        y, dy = conj(g, node.inputs[0]), node.inputs[1]
        return (
            lambda: g.Mul(g.Mul(g.Mul(conj(g, dz), -1.5), dy), g.Square(y)),
            lambda: g.RsqrtGrad(y, dz),
        )


class ReciprocalGrad(Steep):
    """Gradient of Reciprocal."""

    @staticmethod
    def kernel(xp: ModuleType, y: Any, dy: Any) -> Any:
        return -dy * (y * y)

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        y, dy = conj(g, node.inputs[0]), node.inputs[1]
        return (
            lambda: g.Mul(g.Mul(g.Mul(conj(g, dz), -2), dy), y),
            lambda: g.ReciprocalGrad(y, dz),
        )


class InvGrad(ReciprocalGrad):
    """Gradient of Inv."""

    compiled = False
