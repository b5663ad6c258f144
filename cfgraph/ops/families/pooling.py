"""Pooling base class, and average pooling with its gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import repeat
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.kernels.array_namespace import in_float32
from cfgraph.ops.kernels.sliding_window import (
    ImageLayout,
    SlidingWindow,
    WindowGrid,
    image_layout,
    sliding_window,
    windowed_shape,
)
from cfgraph.ops.opdef.gradient_api import same_attrs
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext


class Pooling(Op, abstract=True):
    """A reduction over sliding windows of an image."""

    rank: ClassVar[int] = 4
    # the name of an operation for which a window must not extend over channels
    operation: ClassVar[str] = ""

    @classmethod
    def layout(cls, node: Node) -> ImageLayout:
        """The dimension order of the image."""
        has_format = "data_format" in cls.parsed().attrs
        return image_layout(node) if has_format else ImageLayout(cls.rank, cls.rank - 1)

    @classmethod
    def window(cls, node: Node, sizes: Any = None, strides: Any = None) -> PoolingWindow:
        """The pooling window, from the attributes unless sizes and strides are passed."""
        layout = cls.layout(node)
        sizes = node.attr("ksize") if sizes is None else sizes
        steps = node.attr("strides") if strides is None else strides
        sizes, steps = [int(n) for n in sizes], [int(n) for n in steps]
        if len(sizes) != layout.rank or len(steps) != layout.rank:
            raise OpError(f"ksize and strides must hold {layout.rank} numbers: {sizes}, {steps}")
        if sizes[0] != 1 or steps[0] != 1:
            raise OpError("Pooling is not yet supported on the batch dimension.")
        if min(sizes) < 1:
            raise OpError(f"ksize must be positive, got {sizes}")
        spatial = tuple(sizes[d] for d in layout.spatial)
        slide = sliding_window(
            node, layout, [s if d in layout.spatial else 1 for d, s in enumerate(steps)]
        )
        if any(max(pads) >= size for pads, size in zip(slide.explicit, spatial, strict=True)):
            raise OpError(f"padding {slide.explicit} must be smaller than the window {spatial}")
        return PoolingWindow(
            layout,
            slide,
            spatial,
            sizes[layout.channel],
            steps[layout.channel],
        )

    @classmethod
    def flat_window(cls, node: Node) -> PoolingWindow:
        """The window of a node. Raises OpError if it extends over channels."""
        window = cls.window(node)
        window.check_flat(cls.operation)
        return window

    @classmethod
    def window_function(cls, node: Node) -> Callable[..., PoolingWindow]:
        """A function from the inputs that give the window, if any, to the window."""
        if "ksize" not in cls.parsed().attrs:
            return partial(cls.window, node)
        window = cls.window(node)
        return lambda: window

    @classmethod
    def pooled(cls, context: InferenceContext, image: Shape, window: PoolingWindow) -> Shape:
        """The static output shape: one value per window."""
        if image.dims is None or len(image.dims) != window.layout.rank:
            return UNKNOWN_SHAPE
        channels = image.dims[window.layout.channel]
        if channels is not None:
            channels //= window.depth
        return windowed_shape(window.layout, window.slide, image, window.sizes, channels)


class PoolingWindow:
    """A pooling window: strides and padding, spatial size, and extent over channels."""

    def __init__(
        self,
        layout: ImageLayout,
        slide: SlidingWindow,
        sizes: tuple[int, ...],
        depth: int,
        depth_stride: int,
    ) -> None:
        self.layout, self.slide, self.sizes, self.depth = layout, slide, sizes, depth
        self.depth_stride = depth_stride

    def fit(self, image: Any) -> WindowGrid:
        """The windows over an image with channels last. Raises OpError if the ranks differ."""
        if image.ndim != self.layout.rank:
            raise OpError(f"the image must be {self.layout.rank}-dimensional: {list(image.shape)}")
        return self.slide.fit(image.shape[1:-1], self.sizes)

    def check_flat(self, operation: str) -> None:
        """Raise OpError for a window over several channels."""
        if self.depth != 1:
            raise OpError(f"{operation} is not yet supported on the depth dimension.")

    def check_depth(self, channels: int) -> None:
        """Raise OpError unless a depthwise window divides the channels evenly."""
        if max(self.sizes) > 1:
            raise OpError(
                "MaxPooling supports exactly one of pooling across depth "
                "or pooling across width/height."
            )
        if self.depth != self.depth_stride or channels % self.depth:
            raise OpError(
                "Depthwise max pooling requires the depth window to equal the depth stride "
                f"and to divide the depth: window {self.depth}, stride {self.depth_stride}, "
                f"depth {channels}"
            )


def check_pooled_shape(name: str, array: Any, expected: Sequence[int]) -> None:
    """Raise OpError unless an array has the expected shape."""
    if tuple(array.shape) != tuple(expected):
        raise OpError(f"{name} has shape {list(array.shape)}, expected {list(expected)}")


def first_maxima(xp: ModuleType, fit: WindowGrid, x: Any) -> tuple[Any, Any]:
    """The maximum of each window and the index of its first occurrence in the window.

    NaN compares neither greater nor less, so it is the maximum only if it is the first element.
    """
    padded = fit.pad(xp, x)
    if xp is np and not fit.is_padded and 0 not in fit.window:
        return _first_maxima_inside(fit, x)
    inside = fit.pad(xp, xp.ones((1, *fit.sizes, 1), dtype=bool), value=False)
    best = xp.zeros((x.shape[0], *fit.out, x.shape[-1]), dtype=x.dtype)
    positions = xp.full(best.shape, -1, dtype="int32")
    for index, (_, view) in enumerate(fit.views()):
        value = padded[view]
        better = ((value > best) | (positions < 0)) & inside[view]
        best, positions = xp.where(better, value, best), xp.where(better, index, positions)
    return best, positions


def _first_maxima_inside(fit: WindowGrid, x: Any) -> tuple[Any, Any]:
    """`first_maxima` of a NumPy image without padding."""
    views = fit.views()
    best = x[views[0][1]].copy()
    positions = np.zeros(best.shape, np.int32)
    for index, (_, view) in enumerate(views[1:], 1):
        value = x[view]
        better = value > best
        np.copyto(best, value, where=better)
        np.copyto(positions, index, where=better)
    return best, positions


_AVERAGE_2D = (
    "ksize: list(int) >= 4, strides: list(int) >= 4, padding: {'SAME', 'VALID'}, "
    "data_format: {'NHWC', 'NCHW'} = 'NHWC', T: {float16, bfloat16, float32, float64}"
)
_AVERAGE_3D = (
    "ksize: list(int) >= 5, strides: list(int) >= 5, padding: {'SAME', 'VALID'}, "
    "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC', T: {float16, bfloat16, float32, float64}"
)


@lru_cache(maxsize=256)
def window_counts(fit: WindowGrid, dtype: Any) -> Any:
    """The number of image elements (excluding padding) in each window."""
    inside = fit.pad(np, np.ones((1, *fit.sizes, 1), dtype=dtype))
    total = np.zeros((1, *fit.out, 1), dtype=dtype)
    for _, view in fit.views():
        total += inside[view]
    return total


class AveragePooling(Pooling, abstract=True):
    """The mean over each window, excluding padding."""

    operation = "AvgPooling"
    adapter = in_float32

    @staticmethod
    def kernel(xp: ModuleType, flat_window: PoolingWindow, /, x: Any) -> Any:
        x = flat_window.layout.channels_last(xp, x)
        fit = flat_window.fit(x)
        padded = fit.pad(xp, x)
        total = xp.zeros((x.shape[0], *fit.out, x.shape[-1]), dtype=x.dtype)
        for _, view in fit.views():
            total = np.add(total, padded[view], out=total) if xp is np else total + padded[view]
        if xp is np and not fit.is_padded:
            total /= total.dtype.type(math.prod(fit.window))
        else:
            total = total / xp.asarray(window_counts(fit, x.dtype))
        return flat_window.layout.restore(xp, total)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [cls.pooled(context, context.inputs[0], cls.window(context.node))]


class AvgPool(AveragePooling):
    """Mean over each window of a 4-D image."""

    signature = "value: T -> output: T"
    attrs = _AVERAGE_2D
    gradient = staticmethod(
        lambda g, node, dy: [same_attrs(g, "AvgPoolGrad", node, g.shape(node.inputs[0]), dy)]
    )


class AvgPool3D(AveragePooling):
    """Mean over each window of a 5-D volume."""

    signature = "input: T -> output: T"
    attrs = _AVERAGE_3D
    rank = 5
    gradient = staticmethod(
        lambda g, node, dy: [same_attrs(g, "AvgPool3DGrad", node, g.shape(node.inputs[0]), dy)]
    )


class AveragePoolingGradient(Pooling, abstract=True):
    """Gradient of average pooling: each window's gradient, spread evenly over its elements."""

    signature = "orig_input_shape: const int32, grad: T -> output: T"
    operation = "AvgPoolingGrad"
    adapter = in_float32

    @staticmethod
    def kernel(xp: ModuleType, flat_window: PoolingWindow, /, sizes: Any, dy: Any) -> Any:
        layout = flat_window.layout
        if sizes.shape != (layout.rank,):
            message = f"orig_input_shape must hold {layout.rank} sizes: {list(sizes.shape)}"
            raise OpError(message)
        dy = layout.channels_last(xp, dy)
        shape = [int(n) for n in sizes]
        fit = flat_window.slide.fit(tuple(shape[d] for d in layout.spatial), flat_window.sizes)
        check_pooled_shape("grad", dy, (shape[0], *fit.out, shape[layout.channel]))
        share = dy / xp.asarray(window_counts(fit, dy.dtype))
        image = fit.spread_views(xp, repeat(share), shape[0], dy.shape[-1], dy.dtype)
        return layout.restore(xp, image)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        known = context.shape_value(0)
        return [known if known.rank == cls.rank else Shape([None] * cls.rank)]


class AvgPoolGrad(AveragePoolingGradient):
    """Gradient of AvgPool."""

    attrs = _AVERAGE_2D
    gradient = staticmethod(lambda g, node, dx: (None, same_attrs(g, "AvgPool", node, dx)))


class AvgPool3DGrad(AveragePoolingGradient):
    """Gradient of AvgPool3D."""

    attrs = _AVERAGE_3D
    rank = 5
    gradient = staticmethod(lambda g, node, dx: (None, same_attrs(g, "AvgPool3D", node, dx)))
