"""Sums, differences, products and powers of two tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials, conj, reduced
from cfgraph.ops.op import Kernel, OpError
from cfgraph.ops.pointwise import Pointwise
from cfgraph.ops.precision import widened
from cfgraph.ops.type_sets import COMPLEX, FLOATS, NUMBERS, REAL, SIGNED, one_of


class Binary(Pointwise, abstract=True):
    """A function of two tensors that broadcast."""

    signature = "x: T, y: T -> z: T"
    attrs = one_of(NUMBERS)


class Add(Binary):
    """The sum; of strings, one after the other."""

    attrs = one_of(FLOATS, SIGNED, "uint8", COMPLEX, "string")

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return concatenate if node.attr("T").kind == "string" else operator.add


def concatenate(x: Any, y: Any) -> Any:
    """Strings joined elementwise."""
    return np.asarray(x + y, object)


class AddV2(Binary):
    """The sum."""

    commutes = True
    function = operator.add

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        x, y = node.inputs
        return lambda: reduced(g, dz, x, y), lambda: reduced(g, dz, y, x)


class Sub(Binary):
    """The difference."""

    function = operator.sub

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        x, y = node.inputs
        return lambda: reduced(g, dz, x, y), lambda: g.Neg(reduced(g, dz, y, x))


class Mul(Binary):
    """The product."""

    commutes = True
    function = operator.mul

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        x, y = node.inputs
        return (
            lambda: reduced(g, g.Mul(dz, conj(g, y)), x, y),
            lambda: reduced(g, g.Mul(conj(g, x), dz), y, x),
        )


class MulNoNan(Binary):
    """The product, which is 0 where y is 0, whatever x is."""

    attrs = one_of(FLOATS, COMPLEX)

    @staticmethod
    def kernel(xp: ModuleType, x: Any, y: Any) -> Any:
        return xp.where(y == 0, xp.zeros((), y.dtype), x * y)


class SquaredDifference(Binary):
    """The square of the difference; of complex numbers, its squared length."""

    attrs = one_of(FLOATS, "int32, int64", COMPLEX)
    commutes = True

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if node.attr("T").is_complex:
            return _squared_length
        return lambda x, y: xp.square(x - y)


def _squared_length(x: Any, y: Any) -> Any:
    distance = x - y
    return distance * distance.conj()


class Pow(Binary):
    """A power; integers wrap around, and none has a negative power."""

    attrs = one_of(FLOATS, SIGNED, COMPLEX)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T")
        if not dtype.is_integer:
            return widened(xp.power, dtype)
        if xp is not np:
            power: Kernel = xp.power
            return power
        return _integer_power


def _integer_power(x: Any, y: Any) -> Any:
    if np.any(y < 0):
        message = "Integers to negative integer powers are not allowed"
        raise OpError(message)
    return np.power(x, y)


class Extreme(Binary, abstract=True):
    """The one of two that `better` prefers; NaN where one is NaN."""

    attrs = one_of(REAL)
    function: ClassVar[str]
    better: ClassVar[Callable[[Any, Any], Any]]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if xp is not np:
            return super().bind(node, xp)
        ufunc, better = getattr(np, cls.function), cls.better

        def extreme(x: Any, y: Any) -> Any:
            if x.ndim or y.ndim:
                return ufunc(x, y)
            # of scalars, in a third of the time; NaN is what differs from itself
            return x if better(x, y) or x != x else y  # noqa: PLR0124

        return extreme


class Maximum(Extreme):
    """The larger of two; NaN where one is NaN."""

    function = "maximum"
    better = operator.ge


class Minimum(Extreme):
    """The smaller of two; NaN where one is NaN."""

    function = "minimum"
    better = operator.le


class Atan2(Binary):
    """The angle of the point (x, y)."""

    signature = "y: T, x: T -> z: T"
    attrs = one_of(FLOATS)
    function = "arctan2"


class NextAfter(Binary):
    """The number that can be represented next to x1, towards x2."""

    signature = "x1: T, x2: T -> output: T"
    attrs = "T: {float64, float32} = float32"
    function = "nextafter"


class Guarded(Binary, abstract=True):
    """x times a function of y, which is 0 where x is 0."""

    attrs = one_of(FLOATS, COMPLEX)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return widened(super().bind(node, xp), node.attr("T"))


class Xlogy(Guarded):
    """x log(y), which is 0 where x is 0."""

    @staticmethod
    def kernel(xp: ModuleType, x: Any, y: Any) -> Any:
        return xp.where(x == 0, xp.zeros((), x.dtype), x * xp.log(y))


class Xlog1py(Guarded):
    """x log(1 + y), which is 0 where x is 0."""

    @staticmethod
    def kernel(xp: ModuleType, x: Any, y: Any) -> Any:
        return xp.where(x == 0, xp.zeros((), x.dtype), x * xp.log1p(y))


class Xdivy(Guarded):
    """x / y, which is 0 where x is 0."""

    @staticmethod
    def kernel(xp: ModuleType, x: Any, y: Any) -> Any:
        return xp.where(x == 0, xp.zeros((), x.dtype), x / y)
