"""Rounding, clipping, and the classification of floats."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.families.constants import identity
from cfgraph.ops.opdef.facts import AlgebraicFacts
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    select_gradient,
    sum_to_shape,
    zero_gradient,
)
from cfgraph.ops.opdef.op import (
    ALL_NUMBERS,
    COMPLEX,
    FLOATS,
    SIGNED,
    Elementwise,
    Kernel,
    OpError,
    SameShape,
    one_of,
)


class Rounding(Elementwise, abstract=True):
    """A real function that rounds each element."""

    signature = "x: T -> y: T"
    attrs = one_of(FLOATS)
    algebra = AlgebraicFacts(idempotent=True)
    gradient = staticmethod(zero_gradient)


class Floor(Rounding):
    """Largest integer not greater than x."""

    function = "floor"


class Ceil(Rounding):
    """Smallest integer not less than x."""

    function = "ceil"


class Rint(Rounding):
    """Nearest integer; ties to even."""

    function = "rint"


class Round(Rounding):
    """Nearest integer, ties to even; integer tensors are unchanged."""

    attrs = one_of(FLOATS, SIGNED, COMPLEX)
    function = "rint"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return identity if node.attr("T").is_integer else super().bind(node, xp)


class Classification(Elementwise, abstract=True):
    """A test of the floating-point class of each element."""

    signature = "x: T -> y: bool"
    attrs = one_of(FLOATS)


class IsNan(Classification):
    """True for NaN."""

    function = "isnan"


class IsInf(Classification):
    """True for positive and negative infinity."""

    function = "isinf"


class IsFinite(Classification):
    """True for numbers that are neither infinite nor NaN."""

    function = "isfinite"


class ClipByValue(SameShape):
    """Elements limited to [clip_value_min, clip_value_max]; a NaN bound has no effect."""

    signature = "t: T, clip_value_min: T, clip_value_max: T -> output: T"
    attrs = one_of(ALL_NUMBERS)

    @staticmethod
    def kernel(xp: ModuleType, t: Any, low: Any, high: Any) -> Any:
        for bound in (low, high):
            if bound.ndim and bound.shape != t.shape:
                raise OpError(
                    "clip_value_min and clip_value_max must be either of the same shape as input, "
                    f"or a scalar: input shape {list(t.shape)}, not {list(bound.shape)}"
                )
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
