"""Convolutions in 2 and 3 dimensions and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import ModuleType
from typing import Any, ClassVar, Final

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.kernels.array_namespace import in_float32
from cfgraph.ops.kernels.convolution_products import convolve, convolve_filter, convolve_input
from cfgraph.ops.kernels.sliding_window import (
    ImageLayout,
    SlidingWindow,
    image_layout,
    sliding_window,
    windowed_shape,
)
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, same_attrs
from cfgraph.ops.opdef.op import Dims, Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank


def check_convolution_ranks(rank: int, *arrays: Any) -> None:
    """Check that all arrays have the expected rank."""
    for array in arrays:
        if array.ndim != rank:
            raise OpError(f"inputs must be {rank}-dimensional: {list(array.shape)}")


_EMPTY_FILTER: Final = "filter must not have zero elements (all dimensions must be non-zero)"


def check_filter_depths(channels: int, w: Any) -> None:
    """Check that the filter's depth divides the channels, and the groups divide the filters."""
    depth, filters = w.shape[-2:]
    if not depth or channels % depth:
        message = f"input depth must be evenly divisible by filter depth: {channels} vs {depth}"
        raise OpError(message)
    if not channels:
        raise OpError("number of groups must not be 0")
    if filters % (channels // depth):
        raise OpError(
            "output depth must be evenly divisible by number of groups: "
            f"{filters} vs {channels // depth}"
        )


def check_output_gradient(dy: Any, expected: tuple[int, ...]) -> None:
    """Check the shape of an output gradient (channels last)."""
    if tuple(dy.shape) != expected:
        raise OpError(f"out_backprop has shape {list(dy.shape)}, the output has {list(expected)}")


class Convolution(Op, abstract=True):
    """A grouped convolution: each group of input channels has its own filters."""

    rank: ClassVar[int] = 4
    depthwise: ClassVar[bool] = False
    # op name of the convolution; its gradients append BackpropInput or BackpropFilter
    forward_op: ClassVar[str] = "Conv2D"
    version: ClassVar[str] = ""

    @classmethod
    def forward(cls, g: GradientBuilder, node: Node, x: Output, w: Output) -> Output:
        """The convolution of which the node is an instance or a gradient."""
        return same_attrs(g, cls.forward_op, node, x, w)

    @classmethod
    def image_gradient(
        cls, g: GradientBuilder, node: Node, x: Output, w: Output, dy: Output
    ) -> Output:
        """Gradient with respect to the image."""
        return same_attrs(g, f"{cls.forward_op}BackpropInput{cls.version}", node, g.shape(x), w, dy)

    @classmethod
    def filter_gradient(
        cls, g: GradientBuilder, node: Node, x: Output, w: Output, dy: Output
    ) -> Output:
        """Gradient with respect to the filter."""
        return same_attrs(
            g, f"{cls.forward_op}BackpropFilter{cls.version}", node, x, g.shape(w), dy
        )

    @classmethod
    def layout(cls, node: Node) -> ImageLayout:
        """Layout of the image: its rank and the position of the channels."""
        has_format = "data_format" in cls.parsed().attrs
        return image_layout(node) if has_format else ImageLayout(cls.rank, cls.rank - 1)

    @classmethod
    def slide(cls, node: Node) -> SlidingWindow:
        """Strides, padding, and dilations of the filter's window."""
        slide = sliding_window(node, cls.layout(node), dilations=node.attr("dilations"))
        if cls.depthwise and len(set(slide.strides)) > 1:
            raise OpError(f"strides of rows and columns must be equal, got {list(slide.strides)}")
        return slide

    @classmethod
    def as_grouped(cls, w: Any) -> Any:
        """Reshape a depthwise filter to a grouped filter of depth 1; others are unchanged."""
        return w.reshape((*w.shape[:-2], 1, w.shape[-2] * w.shape[-1])) if cls.depthwise else w

    # the positions of the filter and of the output (or its gradient) in inputs and outputs
    flops_positions: ClassVar[tuple[int, int]] = (1, 2)

    @classmethod
    def flops(cls, inputs: Sequence[Dims], outputs: Sequence[Dims]) -> float:
        # the same in all three directions
        w, y = ((*inputs, *outputs)[position] for position in cls.flops_positions)
        return 2.0 * prod(y) * prod(w[: -2 if cls.depthwise else -1])


class ConvolutionForward(Convolution, abstract=True):
    """Convolution of an image with a filter."""

    signature = "input: T, filter: T -> output: T"
    adapter = in_float32

    @classmethod
    def kernel(cls, xp: ModuleType, layout: Any, slide: Any, /, x: Any, w: Any) -> Any:
        check_convolution_ranks(layout.rank, x, w)
        x = layout.channels_last(xp, x)
        if not cls.depthwise:
            check_filter_depths(x.shape[-1], w)
        elif w.shape[-2] != x.shape[-1]:
            raise OpError(f"filter has {w.shape[-2]} channels, the image {x.shape[-1]}")
        w = cls.as_grouped(w)
        fit = slide.fit(x.shape[1:-1], w.shape[:-2])
        if w.size:
            return layout.restore(xp, convolve(xp, fit, x, w))
        empty = xp.zeros((x.shape[0], *fit.out, w.shape[-1]), x.dtype)
        if not cls.depthwise and (cls.rank == 5 or (x.size and empty.size)):
            raise OpError(_EMPTY_FILTER)
        return layout.restore(xp, empty)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        image, w = context.inputs
        layout, slide = cls.layout(context.node), cls.slide(context.node)
        image, w = require_rank(image, layout.rank), require_rank(w, layout.rank)
        window = tuple(w)
        channels = window[-1]
        if cls.depthwise:
            channels = None if None in window[-2:] else window[-1] * window[-2]  # type: ignore[operator]
        return [windowed_shape(layout, slide, image, window, channels)]

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        x, w = node.inputs
        return (
            lambda: cls.image_gradient(g, node, x, w, dy),
            lambda: cls.filter_gradient(g, node, x, w, dy),
        )


class ConvolutionInputGradient(Convolution, abstract=True):
    """Gradient of a convolution with respect to its image."""

    explicit_sizes: ClassVar[bool] = True
    adapter = in_float32

    @classmethod
    def kernel(cls, xp: ModuleType, layout: Any, slide: Any, /, sizes: Any, w: Any, dy: Any) -> Any:
        check_convolution_ranks(layout.rank, dy, w)
        shape = cls.image_shape(layout, sizes, w, dy)
        w, dy = cls.as_grouped(w), layout.channels_last(xp, dy)
        depth = shape[layout.channel]
        if not w.size:
            raise OpError(_EMPTY_FILTER)
        check_filter_depths(depth, w)
        fit = slide.fit(tuple(shape[d] for d in layout.spatial), w.shape[:-2])
        check_output_gradient(dy, (shape[0], *fit.out, w.shape[-1]))
        return layout.restore(xp, convolve_input(xp, fit, depth, w, dy))

    @classmethod
    def image_shape(cls, layout: ImageLayout, sizes: Any, w: Any, dy: Any) -> tuple[int, ...]:
        """Complete shape of the image, from the sizes or the image itself."""
        if not cls.explicit_sizes:
            return tuple(sizes.shape)
        if sizes.ndim == 1 and sizes.size == len(layout.spatial):
            return layout.shape_of([int(n) for n in sizes], dy.shape[0], w.shape[-2])
        if sizes.shape != (layout.rank,):
            message = f"input_sizes must contain {layout.rank} sizes, got shape {list(sizes.shape)}"
            raise OpError(message)
        return tuple(sizes.tolist())

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        if not cls.explicit_sizes:
            return [context.inputs[0]]
        known = context.shape_value(0)
        if known.rank == cls.rank:
            return [known]
        return [Shape([None] * cls.rank)]

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dx: Output) -> InputGradients:
        _, w, dy = node.inputs
        return (
            None,
            lambda: cls.filter_gradient(g, node, dx, w, dy),
            lambda: cls.forward(g, node, dx, w),
        )


class ConvolutionFilterGradient(Convolution, abstract=True):
    """Gradient of a convolution with respect to its filter."""

    signature = "input: T, filter_sizes: const int32, out_backprop: T -> output: T"
    explicit_sizes: ClassVar[bool] = True
    flops_positions = (3, 2)
    adapter = in_float32

    @classmethod
    def kernel(cls, xp: ModuleType, layout: Any, slide: Any, /, x: Any, sizes: Any, dy: Any) -> Any:
        check_convolution_ranks(layout.rank, x, dy)
        shape = tuple(sizes.tolist()) if cls.explicit_sizes else tuple(sizes.shape)
        if len(shape) != layout.rank:
            raise OpError(f"filter_sizes must contain {layout.rank} sizes, got {len(shape)}")
        x, dy = layout.channels_last(xp, x), layout.channels_last(xp, dy)
        fit = slide.fit(x.shape[1:-1], shape[:-2])
        depth, filters = shape[-2:]
        if cls.depthwise:
            depth, filters = 1, depth * filters
        if depth == 0 or x.shape[-1] % depth:
            raise OpError(
                f"input depth must be evenly divisible by filter depth: {x.shape[-1]} vs {depth}"
            )
        check_output_gradient(dy, (x.shape[0], *fit.out, filters))
        return convolve_filter(xp, fit, x, depth, dy).reshape(shape)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        if not cls.explicit_sizes:
            return [context.inputs[1]]
        known = context.shape_value(1)
        return [known if known.rank == cls.rank else Shape([None] * cls.rank)]

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dw: Output) -> InputGradients:
        x, _, dy = node.inputs
        return (
            lambda: cls.image_gradient(g, node, x, dw, dy),
            None,
            lambda: cls.forward(g, node, x, dw),
        )


_ATTRS_2D = (
    "T: {float16, bfloat16, float32, float64}, strides: list(int), use_cudnn_on_gpu: bool = true, "
    "padding: {'SAME', 'VALID', 'EXPLICIT'}, explicit_paddings: list(int) = [], "
    "data_format: {'NHWC', 'NCHW'} = 'NHWC', dilations: list(int) = [1, 1, 1, 1]"
)
_ATTRS_2D_INT = _ATTRS_2D.replace("float64}", "float64, int32}")


class Conv2D(ConvolutionForward):
    """2-D convolution (cross-correlation) of a batch of images with filters."""

    attrs = _ATTRS_2D_INT


class Conv(ConvolutionForward):
    """2-D or 3-D convolution of images, which may have several batch dimensions or none."""

    attrs = (
        "T: {float16, bfloat16, float32, float64, int32}, strides: list(int), "
        "padding: {'SAME', 'VALID', 'EXPLICIT'}, explicit_paddings: list(int) = [], "
        "data_format: {'CHANNELS_FIRST', 'CHANNELS_LAST'} = 'CHANNELS_LAST', "
        "dilations: list(int) = [], batch_dims: int = 1, groups: int = 1"
    )
    gradient = None  # type: ignore[assignment]

    @classmethod
    def layout(cls, node: Node) -> ImageLayout:
        """Layout of an image with one batch dimension, of the rank that the strides have."""
        rank = len(node.attr("strides"))
        if rank not in (4, 5):
            raise OpError(f"an image has 2 or 3 spatial dimensions, got {rank} strides")
        is_last = node.attr("data_format") == b"CHANNELS_LAST"
        return ImageLayout(rank, rank - 1 if is_last else 1)

    @classmethod
    def batch_rank(cls, node: Node) -> int:
        """The number of batch dimensions. Raises OpError if the node has groups."""
        if node.attr("groups") != 1:
            raise OpError(f"groups of channels are not supported, got {node.attr('groups')}")
        return int(node.attr("batch_dims"))

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        convolve_batch = super().bind(node, xp)
        layout, count = cls.layout(node), cls.batch_rank(node)

        def convolve_batches(x: Any, w: Any) -> Any:
            batch, image = x.shape[:count], x.shape[count:]
            if len(batch) != count or len(image) != layout.rank - 1:
                raise OpError(
                    f"the image must have {count} batch dimensions and {layout.rank - 1} others: "
                    f"{list(x.shape)}"
                )
            if not w.size:
                raise OpError(_EMPTY_FILTER)
            depth = image[layout.channel - 1]
            if w.ndim == layout.rank and w.shape[-2] != depth:
                raise OpError(
                    f"Input depth must be equal to filter depth: {depth} vs {w.shape[-2]}"
                )
            y = convolve_batch(x.reshape((prod(batch), *image)), w)
            return y.reshape((*batch, *y.shape[1:]))

        return convolve_batches

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        dims, count = context.inputs[0].dims, cls.batch_rank(context.node)
        if dims is None:
            return [UNKNOWN_SHAPE]
        inputs = (Shape((None, *dims[count:])), context.inputs[1])
        (pooled,) = super().shape(InferenceContext(context.node, inputs, context.value))
        return [Shape((*dims[:count], *pooled[1:]))]


class Conv2DBackpropInput(ConvolutionInputGradient):
    """Gradient of Conv2D with respect to the image."""

    signature = "input_sizes: const int32, filter: T, out_backprop: T -> output: T"
    attrs = _ATTRS_2D_INT


class Conv2DBackpropInputV2(ConvolutionInputGradient):
    """Gradient of Conv2D with respect to the image, whose shape an image input provides."""

    signature = "input: T, filter: T, out_backprop: T -> output: T"
    attrs = _ATTRS_2D_INT
    explicit_sizes = False
    compilation = CompilerSupport(compiled=False)


class Conv2DBackpropFilter(ConvolutionFilterGradient):
    """Gradient of Conv2D with respect to the filter."""

    attrs = _ATTRS_2D


class Conv2DBackpropFilterV2(ConvolutionFilterGradient):
    """Gradient of Conv2D with respect to the filter, whose shape a filter input provides."""

    signature = "input: T, filter: T, out_backprop: T -> output: T"
    attrs = _ATTRS_2D
    explicit_sizes = False
    compilation = CompilerSupport(compiled=False)


_ATTRS_DEPTHWISE = _ATTRS_2D.replace("use_cudnn_on_gpu: bool = true, ", "")


class DepthwiseConv2dNative(ConvolutionForward):
    """Depthwise 2-D convolution: each channel has its own filters."""

    attrs = _ATTRS_DEPTHWISE
    depthwise = True
    forward_op = "DepthwiseConv2dNative"


class DepthwiseConv2dNativeBackpropInput(ConvolutionInputGradient):
    """Gradient of DepthwiseConv2dNative with respect to the image."""

    signature = "input_sizes: const int32, filter: T, out_backprop: T -> output: T"
    attrs = _ATTRS_DEPTHWISE
    depthwise = True
    forward_op = "DepthwiseConv2dNative"


class DepthwiseConv2dNativeBackpropFilter(ConvolutionFilterGradient):
    """Gradient of DepthwiseConv2dNative with respect to the filter."""

    attrs = _ATTRS_DEPTHWISE
    depthwise = True
    forward_op = "DepthwiseConv2dNative"


_ATTRS_3D_LAST = (
    "T: {float16, float32, float64}, strides: list(int) >= 5, "
    "padding: {'SAME', 'VALID'}, dilations: list(int) = [1, 1, 1, 1, 1]"
)
_ATTRS_3D = (
    "T: {float16, bfloat16, float32, float64}, strides: list(int) >= 5, "
    "padding: {'SAME', 'VALID'}, data_format: {'NDHWC', 'NCDHW'} = 'NDHWC', "
    "dilations: list(int) = [1, 1, 1, 1, 1]"
)


class Conv3D(ConvolutionForward):
    """3-D convolution of a batch of volumes with filters."""

    attrs = _ATTRS_3D
    rank = 5
    forward_op, version = "Conv3D", "V2"


class Conv3DBackpropInput(ConvolutionInputGradient):
    """Gradient of Conv3D with respect to the volume, whose shape a volume input provides."""

    signature = "input: T, filter: T, out_backprop: T -> output: T"
    attrs = _ATTRS_3D_LAST
    rank = 5
    forward_op, version = "Conv3D", "V2"
    explicit_sizes = False
    compilation = CompilerSupport(compiled=False)


class Conv3DBackpropInputV2(ConvolutionInputGradient):
    """Gradient of Conv3D with respect to the volume."""

    signature = "input_sizes: const Tshape, filter: T, out_backprop: T -> output: T"
    attrs = _ATTRS_3D + ", Tshape: {int32, int64} = int32"
    rank = 5
    forward_op, version = "Conv3D", "V2"


class Conv3DBackpropFilter(ConvolutionFilterGradient):
    """Gradient of Conv3D with respect to the filter, whose shape a filter input provides."""

    signature = "input: T, filter: T, out_backprop: T -> output: T"
    attrs = _ATTRS_3D_LAST
    rank = 5
    forward_op, version = "Conv3D", "V2"
    explicit_sizes = False
    compilation = CompilerSupport(compiled=False)


class Conv3DBackpropFilterV2(ConvolutionFilterGradient):
    """Gradient of Conv3D with respect to the filter."""

    attrs = _ATTRS_3D
    rank = 5
    forward_op, version = "Conv3D", "V2"
