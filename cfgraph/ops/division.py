"""Quotients and remainders: rounded down, towards zero, or not at all."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar, cast

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials, conj, no_gradient
from cfgraph.ops.arithmetic import Binary
from cfgraph.ops.host_only import is_card
from cfgraph.ops.op import Kernel, OpError
from cfgraph.ops.pointwise_gradients import of_pair
from cfgraph.ops.precision import widened
from cfgraph.ops.type_sets import COMPLEX, FLOATS, REAL, one_of


class Division(Binary, abstract=True):
    """A quotient or remainder: `function` or `kernel` of floats, `whole` of integers."""

    whole: ClassVar[str | Kernel]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T")
        if not dtype.is_integer:
            return widened(super().bind(node, xp), dtype)
        whole: Any = getattr(xp, cls.whole) if isinstance(cls.whole, str) else cls.whole
        if xp is not np:
            return cast(Kernel, whole)

        def divide(x: Any, y: Any) -> Any:
            if not (y.all() if y.ndim else y) and x.size:
                message = "Integer division by zero"
                raise OpError(message)
            return whole(x, y)

        return divide


def truncated_quotient(x: Any, y: Any) -> Any:
    """The quotient of integers, rounded towards zero."""
    quotient = x // y
    behind = (x < 0) ^ (y < 0)
    return quotient + (behind & (quotient * y != x)).astype(quotient.dtype)


def _of_quotient(g: Adjoint, node: Node, dz: Output, divide: Callable[..., Output]) -> Partials:
    y, z = conj(g, node.inputs[1]), conj(g, node.output())
    return of_pair(g, node, lambda: divide(dz, y), lambda: g.Mul(dz, divide(g.Neg(z), y)))


class RealDiv(Division):
    """The quotient; of integers, towards zero."""

    function = operator.truediv
    whole = staticmethod(truncated_quotient)

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        return _of_quotient(g, node, dz, g.RealDiv)


class Div(RealDiv):
    """The quotient; of integers, towards zero."""


class TruncateDiv(Division):
    """The quotient, rounded towards zero."""

    gradient = staticmethod(no_gradient)

    @staticmethod
    def kernel(xp: ModuleType, x: Any, y: Any) -> Any:
        return xp.trunc(x / y)

    whole = staticmethod(truncated_quotient)


class FloorDiv(Division):
    """The quotient, rounded down."""

    gradient = staticmethod(no_gradient)

    @staticmethod
    def kernel(xp: ModuleType, x: Any, y: Any) -> Any:
        return xp.floor(x / y)

    whole = operator.floordiv


def _of_remainder(g: Adjoint, node: Node, dz: Output, divide: Callable[..., Output]) -> Partials:
    x, y = node.inputs
    return of_pair(g, node, lambda: dz, lambda: g.Mul(dz, g.Neg(divide(x, y))))


def _exact_remainder(xp: ModuleType, x: Any, y: Any) -> Any:
    """The exact remainder with the sign of y; a card's own is x - floor(x / y) * y, rounded."""
    rest = xp.fmod(x, y)
    rest = xp.where((rest != 0) & ((rest < 0) ^ (y < 0)), rest + y, rest)
    return xp.where(rest == 0, xp.copysign(rest, y), rest)


class FloorMod(Division):
    """The remainder of the quotient rounded down: it has the sign of y."""

    attrs = one_of(REAL)
    function = operator.mod
    whole = operator.mod

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if is_card(xp) and not node.attr("T").is_integer:
            return lambda x, y: _exact_remainder(xp, x, y)
        return super().bind(node, xp)

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        return _of_remainder(g, node, dz, g.FloorDiv)


class TruncateMod(Division):
    """The remainder of the quotient rounded towards zero: it has the sign of x."""

    attrs = one_of("int32, int64", FLOATS)
    function = "fmod"
    whole = "fmod"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if is_card(xp) and node.attr("T").is_integer:  # a card's own goes through float64
            return lambda x, y: x - truncated_quotient(x, y) * y
        return super().bind(node, xp)

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        return _of_remainder(g, node, dz, g.TruncateDiv)


class Mod(TruncateMod):
    """The remainder of the quotient rounded towards zero: it has the sign of x."""


class DivNoNan(Division):
    """The quotient, which is 0 where y is 0."""

    attrs = one_of(FLOATS, COMPLEX)

    @staticmethod
    def kernel(xp: ModuleType, x: Any, y: Any) -> Any:
        return xp.where(y == 0, xp.zeros((), y.dtype), x / y)

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        return _of_quotient(g, node, dz, g.DivNoNan)
