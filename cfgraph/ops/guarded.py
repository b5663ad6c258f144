"""Products and quotients that are 0 where one factor is, whatever the other one is."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials, conj
from cfgraph.ops.arithmetic import Binary
from cfgraph.ops.op import Kernel
from cfgraph.ops.pointwise_gradients import of_pair
from cfgraph.ops.precision import widened
from cfgraph.ops.type_sets import COMPLEX, FLOATS, one_of


class MulNoNan(Binary):
    """The product, which is 0 where y is 0, whatever x is."""

    attrs = one_of(FLOATS, COMPLEX)

    @staticmethod
    def kernel(xp: ModuleType, x: Any, y: Any) -> Any:
        return xp.where(y == 0, xp.zeros((), y.dtype), x * y)

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        x, y = (conj(g, item) for item in node.inputs)
        return of_pair(g, node, lambda: g.MulNoNan(dz, y), lambda: g.MulNoNan(x, dz))


class Guarded(Binary, abstract=True):
    """x times a function of y, which is 0 where x is 0."""

    attrs = one_of(FLOATS, COMPLEX)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return widened(super().bind(node, xp), node.attr("T"))

    @classmethod
    def gradient(cls, g: Adjoint, node: Node, dz: Output) -> Partials:
        x, y = (conj(g, item) for item in node.inputs)
        same = getattr(g, cls.name)
        return of_pair(
            g,
            node,
            lambda: g.Mul(dz, same(g.Cast(g.NotEqual(x, 0), DstT=node.attr("T")), y)),
            lambda: g.Mul(dz, cls.by_second(g, x, y)),
        )

    @staticmethod
    def by_second(g: Adjoint, x: Output, y: Output) -> Output:
        """The derivative by y."""
        raise NotImplementedError


class Xlogy(Guarded):
    """x log(y), which is 0 where x is 0."""

    @staticmethod
    def kernel(xp: ModuleType, x: Any, y: Any) -> Any:
        return xp.where(x == 0, xp.zeros((), x.dtype), x * xp.log(y))

    @staticmethod
    def by_second(g: Adjoint, x: Output, y: Output) -> Output:
        return g.Xdivy(x, y)


class Xlog1py(Guarded):
    """x log(1 + y), which is 0 where x is 0."""

    @staticmethod
    def kernel(xp: ModuleType, x: Any, y: Any) -> Any:
        return xp.where(x == 0, xp.zeros((), x.dtype), x * xp.log1p(y))

    @staticmethod
    def by_second(g: Adjoint, x: Output, y: Output) -> Output:
        return g.Xdivy(x, g.AddV2(y, 1))


class Xdivy(Guarded):
    """x / y, which is 0 where x is 0."""

    @staticmethod
    def kernel(xp: ModuleType, x: Any, y: Any) -> Any:
        return xp.where(x == 0, xp.zeros((), x.dtype), x / y)

    @staticmethod
    def by_second(g: Adjoint, x: Output, y: Output) -> Output:
        return g.Xdivy(g.Neg(x), g.Square(y))
