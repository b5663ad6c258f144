"""Cumulative sums, products, and log-sum-exps along one dimension."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any, ClassVar

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.families.segment import extreme_finite
from cfgraph.ops.kernels.array_namespace import checked_axis, in_float32, rounds_each_step
from cfgraph.ops.opdef.batching import along_axes
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, conjugate
from cfgraph.ops.opdef.op import (
    ALL_NUMBERS,
    COMPLEX,
    FLOATS,
    INDEX,
    UNSIGNED,
    OpError,
    SameShape,
    one_of,
)

_FLAGS = f"exclusive: bool = false, reverse: bool = false, Tidx: {INDEX} = int32"


class ScanOp(SameShape, abstract=True):
    """The combination of all elements up to each position along one axis.

    `exclusive` omits the element itself; `reverse` scans from the end. `combine(xp, x, axis)`
    computes it; `neutral` is the result for no elements.
    """

    signature = "x: T, axis: const Tidx -> out: T"
    attrs = f"{_FLAGS}, {one_of(ALL_NUMBERS)}"
    batching = staticmethod(along_axes)
    neutral: ClassVar[float]
    combine: ClassVar[Callable[..., Any]]
    adapter = rounds_each_step

    @classmethod
    def kernel(cls, xp: ModuleType, exclusive: bool, reverse: bool, /, x: Any, axis: Any) -> Any:
        if axis.ndim:
            raise OpError(f"ScanOp: axis must be a scalar, not {list(axis.shape)}")
        dim = checked_axis(axis, x.ndim, "ScanOp: Expected scan axis")
        if x.size == 0:
            return x
        if reverse:
            x = xp.flip(x, dim)
        if exclusive:
            first = xp.full((*x.shape[:dim], 1, *x.shape[dim + 1 :]), cls.neutral, x.dtype)
            x = xp.concatenate((first, x[(*[slice(None)] * dim, slice(-1))]), dim)
        result = cls.combine(xp, x, dim)
        return xp.flip(result, dim) if reverse else result


def _reversed_flags(node: Node) -> dict[str, bool]:
    """The attributes of the same scan in the opposite direction."""
    return {"exclusive": node.attr("exclusive"), "reverse": not node.attr("reverse")}


class Cumsum(ScanOp):
    """Cumulative sum along one axis."""

    compilation = replace(
        ScanOp.compilation, uncompiled_types=f"int8, int16, {UNSIGNED}, {COMPLEX}"
    )
    neutral = 0
    combine = staticmethod(lambda xp, x, axis: x.cumsum(axis, x.dtype))
    gradient = staticmethod(
        lambda g, node, dz: (g.Cumsum(dz, node.inputs[1], **_reversed_flags(node)), None)
    )


class Cumprod(ScanOp):
    """Cumulative product along one axis."""

    compilation = replace(
        ScanOp.compilation, uncompiled_types=f"int8, int16, {UNSIGNED}, {COMPLEX}"
    )
    neutral = 1
    combine = staticmethod(lambda xp, x, axis: x.cumprod(axis, x.dtype))

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        x, axis = node.inputs
        total = g.Cumsum(g.Mul(conjugate(g, node.output()), dz), axis, **_reversed_flags(node))
        # as in TensorFlow's math_grad.py, the gradient of an element that is zero is zero
        return g.DivNoNan(total, conjugate(g, x)), None


class CumulativeLogsumexp(ScanOp):
    """Cumulative log-sum-exp along one axis: log(exp(x[0]) + ... + exp(x[i]))."""

    attrs = f"{_FLAGS}, {one_of(FLOATS)}"
    neutral = -float("inf")
    adapter = in_float32
    combine = staticmethod(lambda xp, x, axis: xp.logaddexp.accumulate(x, axis=axis))

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        x, axis = node.inputs
        size = g.Log(g.Abs(dz))
        lowest = g.const(extreme_finite(node.attr("T").numpy, largest=False), node.attr("T"))
        # replace -inf: the log-sum-exp of no elements, first element of an exclusive scan
        sums = g.Maximum(node.output(), lowest) if node.attr("exclusive") else node.output()

        def weighted(chosen: Output) -> Output:
            # computed in logarithms, because exp of the scanned elements may overflow
            share = g.Sub(g.SelectV2(chosen, size, lowest), sums)
            return g.Exp(g.AddV2(g.CumulativeLogsumexp(share, axis, **_reversed_flags(node)), x))

        return g.Sub(weighted(g.Greater(dz, 0)), weighted(g.Less(dz, 0))), None
