"""Bessel functions of orders 0 and 1."""

from __future__ import annotations

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials
from cfgraph.ops.pointwise_gradients import Gradient, by_input
from cfgraph.ops.special import Special, Untraceable, except_at


def by_lower_order(op: str, at_zero: float | None = None, *, negated: bool = False) -> Gradient:
    """The gradient of y of order 1: the function `op` of order 0, or its negative, less y / x."""

    def gradient(g: Adjoint, node: Node, dy: Output) -> Partials:
        x, y = node.inputs[0], node.output()
        lower: Output = getattr(g, op)(x)
        slope = g.Sub(g.Neg(lower) if negated else lower, g.RealDiv(y, x))
        return [g.Mul(dy, slope if at_zero is None else except_at(g, x, 0, at_zero, slope))]

    return gradient


class BesselI0(Special):
    """The modified Bessel function of the first kind, order 0."""

    compiled = False

    function = "i0"
    gradient = by_input(lambda g, dy, x: g.Mul(dy, g.BesselI1(x)))


class BesselI0e(Special):
    """BesselI0, scaled by exp(-|x|)."""

    function = "i0e"

    @staticmethod
    def gradient(g: Adjoint, node: Node, dy: Output) -> Partials:
        x, y = node.inputs[0], node.output()
        return [g.Mul(dy, g.Sub(g.BesselI1e(x), g.Mul(g.Sign(x), y)))]


class BesselI1(Special):
    """The modified Bessel function of the first kind, order 1."""

    compiled = False

    function = "i1"
    gradient = by_lower_order("BesselI0", at_zero=0.5)


class BesselI1e(Special):
    """BesselI1, scaled by exp(-|x|)."""

    function = "i1e"

    @staticmethod
    def gradient(g: Adjoint, node: Node, dy: Output) -> Partials:
        x, y = node.inputs[0], node.output()
        fall = g.Mul(y, g.AddV2(g.Sign(x), g.Reciprocal(x)))
        return [g.Mul(dy, except_at(g, x, 0, 0.5, g.Sub(g.BesselI0e(x), fall)))]


class BesselJ0(Untraceable):
    """The Bessel function of the first kind, order 0."""

    function = "j0"
    gradient = by_input(lambda g, dy, x: g.Mul(dy, g.Neg(g.BesselJ1(x))))


class BesselJ1(Untraceable):
    """The Bessel function of the first kind, order 1."""

    function = "j1"
    gradient = by_lower_order("BesselJ0", at_zero=0.5)


class BesselY0(Untraceable):
    """The Bessel function of the second kind, order 0."""

    function = "y0"
    gradient = by_input(lambda g, dy, x: g.Mul(dy, g.Neg(g.BesselY1(x))))


class BesselY1(Untraceable):
    """The Bessel function of the second kind, order 1."""

    function = "y1"
    gradient = by_lower_order("BesselY0")


class BesselK0(Untraceable):
    """The modified Bessel function of the second kind, order 0."""

    function = "k0"
    gradient = by_input(lambda g, dy, x: g.Mul(dy, g.Neg(g.BesselK1(x))))


class BesselK0e(Untraceable):
    """BesselK0, scaled by exp(x)."""

    function = "k0e"

    @staticmethod
    def gradient(g: Adjoint, node: Node, dy: Output) -> Partials:
        return [g.Mul(dy, g.Sub(node.output(), g.BesselK1e(node.inputs[0])))]


class BesselK1(Untraceable):
    """The modified Bessel function of the second kind, order 1."""

    function = "k1"
    gradient = by_lower_order("BesselK0", negated=True)


class BesselK1e(Untraceable):
    """BesselK1, scaled by exp(x)."""

    function = "k1e"

    @staticmethod
    def gradient(g: Adjoint, node: Node, dy: Output) -> Partials:
        x, y = node.inputs[0], node.output()
        slope = g.Sub(g.Mul(y, g.Sub(1, g.Reciprocal(x))), g.BesselK0e(x))
        return [g.Mul(dy, slope)]
