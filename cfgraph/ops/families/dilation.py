"""Grayscale morphological dilation and its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.families.max_pooling import lowest_finite
from cfgraph.ops.families.pooling import check_pooled_shape
from cfgraph.ops.kernels.sliding_window import (
    ImageLayout,
    SlidingWindow,
    WindowGrid,
    add_at,
    sliding_window,
    windowed_shape,
)
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, same_attrs
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext

_DILATION_LAYOUT = ImageLayout(4, 3)


class Dilation(Op, abstract=True):
    """A dilation or its gradient."""

    attrs = (
        "T: {float32, float64, int32, uint8, int16, int8, int64, bfloat16, uint16, float16, "
        "uint32, uint64}, strides: list(int) >= 4, rates: list(int) >= 4, "
        "padding: {'SAME', 'VALID'}"
    )
    compilation = CompilerSupport(compiled=False)

    @classmethod
    def slide(cls, node: Node) -> SlidingWindow:
        """Strides, padding, and rates of the filter's window."""
        return sliding_window(node, _DILATION_LAYOUT, dilations=node.attr("rates"))


def dilation_windows(slide: SlidingWindow, x: Any, w: Any) -> WindowGrid:
    """Positions of the filter over an image, after checks of both shapes."""
    if x.ndim != 4 or w.ndim != 3:
        raise OpError(f"input must be 4-dimensional and filter 3: {list(x.shape)}, {list(w.shape)}")
    if x.shape[3] != w.shape[2]:
        raise OpError(f"input and filter must have the same depth: {x.shape[3]} vs {w.shape[2]}")
    return slide.fit(x.shape[1:3], w.shape[:2])


def window_maxima(xp: ModuleType, fit: WindowGrid, x: Any, w: Any) -> tuple[Any, Any]:
    """Maximum of image + filter in each window, and the index of its first occurrence.

    The index is -1 where no sum is above the lowest finite number.
    """
    padded = fit.pad(xp, x)
    inside = fit.pad(xp, xp.ones((1, *fit.sizes, 1), dtype=bool), value=False)
    best = xp.full((x.shape[0], *fit.out, x.shape[-1]), lowest_finite(x.dtype), dtype=x.dtype)
    where = xp.full(best.shape, -1, dtype="int32")
    for number, (offset, view) in enumerate(fit.views()):
        value = padded[view] + w[offset]
        better = (value > best) & inside[view]
        best, where = xp.where(better, value, best), xp.where(better, number, where)
    return best, where


def _first_inside(xp: ModuleType, fit: WindowGrid) -> Any:
    """The first index in each window that is no padding."""
    inside = fit.pad(xp, xp.ones((1, *fit.sizes, 1), dtype=bool), value=False)
    first = xp.zeros((1, *fit.out, 1), dtype="int32")
    for number, (_, view) in reversed(list(enumerate(fit.views()))):
        first = xp.where(inside[view], number, first)
    return first


class Dilation2D(Dilation):
    """Grayscale dilation: maximum of image + filter in each window."""

    signature = "input: T, filter: T -> output: T"

    @staticmethod
    def kernel(xp: ModuleType, slide: Any, /, x: Any, w: Any) -> Any:
        return window_maxima(xp, dilation_windows(slide, x, w), x, w)[0]

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        image, w = context.inputs
        if image.dims is None or len(image.dims) != 4:
            return [UNKNOWN_SHAPE]
        window = w.dims if w.dims is not None else (None,) * 3
        return [
            windowed_shape(_DILATION_LAYOUT, cls.slide(context.node), image, window, image.dims[3])
        ]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        x, w = node.inputs
        return (
            lambda: same_attrs(g, "Dilation2DBackpropInput", node, x, w, dy),
            lambda: same_attrs(g, "Dilation2DBackpropFilter", node, x, w, dy),
        )


class Dilation2DBackpropInput(Dilation):
    """Gradient of Dilation2D with respect to the image."""

    signature = "input: T, filter: T, out_backprop: T -> in_backprop: T"

    @staticmethod
    def kernel(xp: ModuleType, slide: Any, /, x: Any, w: Any, dy: Any) -> Any:
        fit = dilation_windows(slide, x, w)
        check_pooled_shape("out_backprop", dy, (x.shape[0], *fit.out, x.shape[-1]))
        _, where = window_maxima(xp, fit, x, w)
        padded = fit.pad(xp, xp.zeros(x.shape, dtype=x.dtype))
        where = xp.where(where < 0, _first_inside(xp, fit), where)
        for number, (_, view) in enumerate(fit.views()):
            share = xp.where(where == number, dy, xp.zeros((), dtype=dy.dtype))
            padded = add_at(padded, view, share)
        return fit.crop(padded)

    shape = staticmethod(lambda context: [context.inputs[0]])


class Dilation2DBackpropFilter(Dilation):
    """Gradient of Dilation2D with respect to the filter."""

    signature = "input: T, filter: T, out_backprop: T -> filter_backprop: T"

    @staticmethod
    def kernel(xp: ModuleType, slide: Any, /, x: Any, w: Any, dy: Any) -> Any:
        fit = dilation_windows(slide, x, w)
        check_pooled_shape("out_backprop", dy, (x.shape[0], *fit.out, x.shape[-1]))
        where = xp.maximum(window_maxima(xp, fit, x, w)[1], 0)
        none = xp.zeros((), dtype=dy.dtype)
        shares = [
            xp.sum(xp.where(where == number, dy, none), axis=(0, 1, 2), dtype=dy.dtype)
            for number in range(len(fit.views()))
        ]
        return xp.stack(shares).reshape(w.shape) if shares else xp.zeros_like(w)

    shape = staticmethod(lambda context: [context.inputs[1]])
