"""Sums, differences, products and powers of two tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials, conj, reduced
from cfgraph.ops.host_only import is_card
from cfgraph.ops.op import Kernel, OpError
from cfgraph.ops.pointwise import Pointwise
from cfgraph.ops.pointwise_gradients import like, of_pair, over
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

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        return of_pair(g, node, lambda: dz, lambda: dz)


def concatenate(x: Any, y: Any) -> Any:
    """Strings joined elementwise."""
    return np.asarray(x + y, object)


class AddV2(Binary):
    """The sum."""

    commutes = True
    function = operator.add
    gradient = staticmethod(Add.gradient)


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
        return of_pair(g, node, lambda: g.Mul(dz, conj(g, y)), lambda: g.Mul(conj(g, x), dz))


class SquaredDifference(Binary):
    """The square of the difference; of complex numbers, its squared length."""

    attrs = one_of(FLOATS, "int32, int64", COMPLEX)
    commutes = True

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if node.attr("T").is_complex:
            return _squared_length
        return lambda x, y: xp.square(x - y)

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        x, y = node.inputs
        if node.attr("T").is_complex:  # the square is real, so the imaginary part is of no account
            real = g.Real(dz, Tout=node.attr("T").real)
            dz = g.Complex(real, 0, Tout=node.attr("T"))
        along = g.Mul(g.Mul(dz, 2), g.Sub(x, y))
        return lambda: reduced(g, along, x, y), lambda: g.Neg(reduced(g, along, y, x))


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

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        x, y = (conj(g, item) for item in node.inputs)
        return of_pair(
            g,
            node,
            lambda: g.Mul(g.Mul(dz, y), _lesser_power(g, x, y)),
            lambda: g.Mul(g.Mul(dz, conj(g, node.output())), _safe_log(g, x)),
        )


def _lesser_power(g: Adjoint, x: Output, y: Output) -> Output:
    """x to the power of y - 1."""
    known = g.known_value(y)
    if known is None or y.dtype is None:
        return g.Pow(x, g.Sub(y, 1))
    return x if np.all(known == 2) and not known.ndim else g.Pow(x, g.const(known - 1, y.dtype))


def _safe_log(g: Adjoint, x: Output) -> Output:
    """The logarithm; 0 where there is none."""
    is_complex = x.dtype is not None and x.dtype.is_complex
    there = g.NotEqual(x, 0) if is_complex else g.Greater(x, 0)
    return over(g, g.Log(g.SelectV2(there, x, like(g, 1, x))), there)


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
    wins: ClassVar[str]  # the op that says where the first one is taken, of equal ones too

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

    @classmethod
    def gradient(cls, g: Adjoint, node: Node, dz: Output) -> Partials:
        wins = getattr(g, cls.wins)(*node.inputs)
        return of_pair(g, node, lambda: over(g, dz, wins), lambda: over(g, dz, wins, negated=True))


class Maximum(Extreme):
    """The larger of two; NaN where one is NaN."""

    function = "maximum"
    better = operator.ge
    wins = "GreaterEqual"


class Minimum(Extreme):
    """The smaller of two; NaN where one is NaN."""

    function = "minimum"
    better = operator.le
    wins = "LessEqual"


class Atan2(Binary):
    """The angle of the point (x, y)."""

    signature = "y: T, x: T -> z: T"
    attrs = one_of(FLOATS)
    function = "arctan2"

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        y, x = node.inputs
        along = g.RealDiv(dz, g.AddV2(g.Square(y), g.Square(x)))
        return of_pair(g, node, lambda: g.Mul(x, along), lambda: g.Mul(g.Neg(y), along))


def _next_of_bits(xp: ModuleType) -> Kernel:
    """The next number found by its bits: to a card's own functions the least numbers are 0."""

    def next_after(x: Any, y: Any) -> Any:
        kind = np.dtype(f"i{x.dtype.itemsize}")
        lowest = np.iinfo(kind).min
        # integers in the order of the numbers; -0.0 and 0.0 are 0
        places = [item.view(kind) for item in (x, y)]
        mine, theirs = (xp.where(place < 0, lowest - place, place) for place in places)
        there = mine + (mine < theirs).astype(kind) - (mine > theirs).astype(kind)
        down = (there < 0) | ((there == 0) & (mine < 0))
        made = xp.where(down, lowest - there, there).view(x.dtype)
        made = xp.where(mine == theirs, y, made)
        return xp.where(xp.isnan(x) | xp.isnan(y), x + y, made)

    return next_after


class NextAfter(Binary):
    """The number that can be represented next to x1, towards x2."""

    signature = "x1: T, x2: T -> output: T"
    attrs = "T: {float64, float32} = float32"
    function = "nextafter"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return _next_of_bits(xp) if is_card(xp) else super().bind(node, xp)

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        x, y = node.inputs
        return lambda: reduced(g, dz, x, y), None
