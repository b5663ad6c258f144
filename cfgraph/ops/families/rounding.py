"""Rounding, clipping, and the classification of floats."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.families.constants import identity
from cfgraph.ops.opdef.elementwise import Elementwise, SameShape, select_gradient
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    sum_to_shape,
    zero_gradient,
)
from cfgraph.ops.opdef.op import Kernel, OpError
from cfgraph.ops.opdef.type_sets import ALL_NUMBERS, COMPLEX, FLOATS, SIGNED, one_of


class Rounding(Elementwise, abstract=True):
    """A whole number near the given one."""

    signature = "x: T -> y: T"
    attrs = one_of(FLOATS)
    gradient = staticmethod(zero_gradient)


class Floor(Rounding):
    """Rounded down."""

    function = "floor"


class Ceil(Rounding):
    """Rounded up."""

    function = "ceil"


class Rint(Rounding):
    """Rounded to the nearest, halves to the even one."""

    function = "rint"


class Round(Rounding):
    """Rounded to the nearest, halves to the even one; integers as they are."""

    attrs = one_of(FLOATS, SIGNED, COMPLEX)
    function = "rint"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return identity if node.attr("T").is_integer else super().bind(node, xp)


class Classification(Elementwise, abstract=True):
    """What kind of number a float is."""

    signature = "x: T -> y: bool"
    attrs = one_of(FLOATS)


class IsNan(Classification):
    """Whether it is not a number."""

    function = "isnan"


class IsInf(Classification):
    """Whether it is infinite."""

    function = "isinf"


class IsFinite(Classification):
    """Whether it is neither infinite nor NaN."""

    function = "isfinite"


class ClipByValue(SameShape):
    """The number, or the bound that it lies beyond; a bound that is NaN is none."""

    signature = "t: T, clip_value_min: T, clip_value_max: T -> output: T"
    attrs = one_of(ALL_NUMBERS)

    @staticmethod
    def kernel(xp: ModuleType, t: Any, low: Any, high: Any) -> Any:
        for bound in (low, high):
            if bound.ndim and bound.shape != t.shape:
                message = (
                    "clip_value_min and clip_value_max must be either of the same shape as input, "
                    f"or a scalar: input shape {list(t.shape)}, not {list(bound.shape)}"
                )
                raise OpError(message)
        capped = xp.where(high < t, high, t)
        return xp.where(low > capped, low, capped)

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        x, low, high = node.inputs
        below, above = g.Less(x, low), g.Greater(x, high)
        return (
            lambda: select_gradient(g, dy, g.LogicalOr(below, above), negated=True),
            lambda: sum_to_shape(g, select_gradient(g, dy, below), low, x),
            lambda: sum_to_shape(g, select_gradient(g, dy, above), high, x),
        )
