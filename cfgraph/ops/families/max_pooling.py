"""Max pooling, its first and second gradients, and variants with indices of the maxima."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.families.pooling import Pooling, PoolingWindow, check_pooled_shape, first_maxima
from cfgraph.ops.kernels.array_namespace import accumulated_at
from cfgraph.ops.kernels.sliding_window import WindowGrid
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, same_attrs
from cfgraph.ops.opdef.op import INTEGERS, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext

WindowFunction = Callable[..., PoolingWindow]

_POOLED_TYPES = (
    "{float32, float64, int32, uint8, int16, int8, int64, bfloat16, uint16, float16, "
    "uint32, uint64}"
)
_WINDOW_ATTRS = "ksize: list(int) >= 4, strides: list(int) >= 4, "
_EXPLICIT_ATTRS = "padding: {'SAME', 'VALID', 'EXPLICIT'}, explicit_paddings: list(int) = [], "
_FORMAT_ATTR = "data_format: {'NHWC', 'NCHW'} = 'NHWC', "
_POOLING_ATTRS = (
    "T: {float16, bfloat16, float32, float64, int32, int64, uint8, int16, int8, uint16, qint8}"
    " = float32, "
)
_SOLID_ATTRS = (
    "ksize: list(int) >= 5, strides: list(int) >= 5, padding: {'SAME', 'VALID'}, "
    "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC', "
)


class MaxPooling(Pooling, abstract=True):
    """Maximum of each window."""

    signature = "input: T -> output: T"
    gradient_op: ClassVar[str] = "MaxPoolGrad"

    @staticmethod
    def kernel(xp: ModuleType, window_function: WindowFunction, /, x: Any, *sizes: Any) -> Any:
        return window_maximum(xp, window_function(*sizes), x)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        if context.node.attr("data_format") == b"NCHW_VECT_C":
            return [UNKNOWN_SHAPE]
        return [cls.pooled(context, context.inputs[0], cls.window(context.node))]

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        x, *sizes = node.inputs
        dx = same_attrs(g, cls.gradient_op, node, x, node.output(0), dy, *sizes)
        return [dx, *[None] * len(sizes)]


def window_maximum(xp: ModuleType, window: PoolingWindow, x: Any) -> Any:
    """Maximum of each window; NaN is ignored.

    On an image, it is at least the lowest finite number, as in TensorFlow.
    """
    layout = window.layout
    x = layout.channels_last(xp, x)
    fit, low = window.fit(x), lowest_finite(x.dtype)
    if window.depth != 1:
        window.check_depth(x.shape[-1])
        x = xp.max(x.reshape((*x.shape[:-1], -1, window.depth)), axis=-1)
    padded = fit.pad(xp, x, low)
    views = [view for _, view in fit.views()]
    if window.depth == 1 and x.ndim == 4:
        best = xp.full((x.shape[0], *fit.out, x.shape[-1]), low, dtype=x.dtype)
    else:
        best = xp.array(padded[views.pop(0)])
    for view in views:
        best = np.fmax(best, padded[view], out=best) if xp is np else xp.fmax(best, padded[view])
    return layout.restore(xp, best)


@lru_cache(maxsize=32)
def lowest_finite(dtype: Any) -> Any:
    """Lowest finite value of a dtype."""
    if np.issubdtype(dtype, np.integer):
        return np.iinfo(dtype).min
    if dtype in (np.float32, np.float64):
        return np.finfo(dtype).min
    import ml_dtypes

    limits: Any = ml_dtypes.finfo
    return limits(dtype).min


class MaxPool(MaxPooling):
    """Maximum of each window of an image."""

    attrs = (
        _POOLING_ATTRS
        + _WINDOW_ATTRS
        + _EXPLICIT_ATTRS
        + "data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'"
    )


class MaxPool3D(MaxPooling):
    """Maximum of each window of a volume."""

    gradient_op = "MaxPool3DGrad"
    attrs = _SOLID_ATTRS + "T: {float16, bfloat16, float32}"
    rank = 5


class MaxPoolV2(MaxPooling):
    """Maximum of each window of an image; inputs specify the window."""

    signature = "input: T, ksize: const int32, strides: const int32 -> output: T"
    gradient_op = "MaxPoolGradV2"
    attrs = (
        _POOLING_ATTRS + "padding: {'SAME', 'VALID'}, "
        "data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'"
    )

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        sizes, strides = context.value(1), context.value(2)
        if sizes is None or strides is None:
            return [Shape([None] * 4)]
        return [cls.pooled(context, context.inputs[0], cls.window(context.node, sizes, strides))]


class MaxPoolingGradient(Pooling, abstract=True):
    """Gradient of max pooling: each window's gradient goes to its first maximum."""

    signature = "orig_input: T, orig_output: T, grad: T -> output: T"
    adjoint: ClassVar[str]

    @classmethod
    def kernel(cls, xp: ModuleType, window_function: WindowFunction, /, *inputs: Any) -> Any:
        x, y, dy, *sizes = inputs
        window = window_function(*sizes)
        window.check_flat("MaxPoolingGrad")
        x, y, dy = (window.layout.channels_last(xp, v) for v in (x, y, dy))
        fit = window.fit(x)
        check_pooled_shape("orig_output", y, (x.shape[0], *fit.out, x.shape[-1]))
        check_pooled_shape("grad", dy, y.shape)
        zero = xp.zeros((), dtype=dy.dtype)
        parts = (xp.where(mask, dy, zero) for mask in cls.maximum_masks(xp, fit, x, y))
        dx = fit.spread_views(xp, parts, x.shape[0], x.shape[-1], dy.dtype)
        return window.layout.restore(xp, dx)

    @classmethod
    def maximum_masks(cls, xp: ModuleType, fit: WindowGrid, x: Any, y: Any) -> Iterator[Any]:
        """Yield the mask of maxima for each offset in the window."""
        _, where = first_maxima(xp, fit, x)
        for number in range(len(fit.views())):
            yield where == number

    shape = staticmethod(lambda context: [context.inputs[0]])

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        return linear_gradient(g, cls.adjoint, node, dz)


def linear_gradient(g: GradientBuilder, op: str, node: Node, dz: Output) -> InputGradients:
    """Gradient of an op that is linear in its third input; the maxima are constant."""
    x, y, _, *sizes = node.inputs
    return None, None, same_attrs(g, op, node, x, y, dz, *sizes), *[None] * len(sizes)


class MaxPoolGrad(MaxPoolingGradient):
    """Gradient of MaxPool: each window's gradient goes to its first maximum."""

    adjoint = "MaxPoolGradGrad"
    attrs = _WINDOW_ATTRS + _EXPLICIT_ATTRS + _FORMAT_ATTR + f"T: {_POOLED_TYPES} = float32"


class MaxPoolGradV2(MaxPoolingGradient):
    """Gradient of MaxPoolV2: each window's gradient goes to its first maximum."""

    signature = (
        "orig_input: T, orig_output: T, grad: T, ksize: const int32, strides: const int32 "
        "-> output: T"
    )
    adjoint = "MaxPoolGradGradV2"
    attrs = "padding: {'SAME', 'VALID'}, " + _FORMAT_ATTR + f"T: {_POOLED_TYPES} = float32"


class MaxPool3DGrad(MaxPoolingGradient):
    """Gradient of MaxPool3D: every maximum of a window receives the full gradient."""

    signature = "orig_input: TInput, orig_output: TInput, grad: T -> output: T"
    adjoint = "MaxPool3DGradGrad"
    attrs = (
        _SOLID_ATTRS + "T: {float16, bfloat16, float32} = float32, "
        "TInput: {float16, bfloat16, float32} = float32"
    )
    rank = 5

    @classmethod
    def maximum_masks(cls, xp: ModuleType, fit: WindowGrid, x: Any, y: Any) -> Iterator[Any]:
        padded = fit.pad(xp, x)
        for _, view in fit.views():
            yield padded[view] == y


class MaxPoolingGradGrad(Pooling, abstract=True):
    """Second gradient of max pooling: each window reads the gradient at its first maximum."""

    signature = "orig_input: T, orig_output: T, grad: T -> output: T"
    compilation = CompilerSupport(uncompiled_types=f"{INTEGERS}, float16, bfloat16, float64")
    adjoint: ClassVar[str]

    @staticmethod
    def kernel(
        xp: ModuleType, window_function: WindowFunction, /, x: Any, y: Any, ddx: Any, *sizes: Any
    ) -> Any:
        window = window_function(*sizes)
        window.check_flat("MaxPoolingGradGrad")
        x, y, ddx = (window.layout.channels_last(xp, v) for v in (x, y, ddx))
        fit = window.fit(x)
        check_pooled_shape("orig_output", y, (x.shape[0], *fit.out, x.shape[-1]))
        check_pooled_shape("grad", ddx, x.shape)
        inside = fit.pad(xp, xp.ones((1, *fit.sizes, 1), dtype=bool), value=False)
        x, ddx = fit.pad(xp, x), fit.pad(xp, ddx)
        taken, result = xp.zeros(y.shape, dtype=bool), xp.zeros(y.shape, dtype=ddx.dtype)
        for _, view in fit.views():
            is_first = (x[view] == y) & inside[view] & ~taken
            result, taken = xp.where(is_first, ddx[view], result), taken | is_first
        return window.layout.restore(xp, result)

    shape = staticmethod(lambda context: [context.inputs[1]])

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        return linear_gradient(g, cls.adjoint, node, dz)


class MaxPoolGradGrad(MaxPoolingGradGrad):
    """Gradient of MaxPoolGrad with respect to its upstream gradient."""

    adjoint = "MaxPoolGrad"
    attrs = _WINDOW_ATTRS + "padding: {'SAME', 'VALID'}, " + _FORMAT_ATTR + f"T: {_POOLED_TYPES}"


class MaxPoolGradGradV2(MaxPoolingGradGrad):
    """Gradient of MaxPoolGradV2 with respect to its upstream gradient."""

    signature = (
        "orig_input: T, orig_output: T, grad: T, ksize: const int32, strides: const int32 "
        "-> output: T"
    )
    adjoint = "MaxPoolGradV2"
    attrs = "padding: {'SAME', 'VALID'}, " + _FORMAT_ATTR + f"T: {_POOLED_TYPES}"


class MaxPool3DGradGrad(MaxPoolingGradGrad):
    """Gradient of MaxPool3DGrad with respect to its upstream gradient."""

    adjoint = "MaxPool3DGrad"
    attrs = _SOLID_ATTRS + f"T: {_POOLED_TYPES}"
    rank = 5


class ArgmaxPooling(Pooling, abstract=True):
    """Pooling with flat indices of the maxima."""

    compilation = CompilerSupport(traceable=False)

    @classmethod
    def batches(cls, xp: ModuleType, shape: Sequence[int]) -> Any:
        """Flat index of each image's first element in the batch, shaped to broadcast."""
        count, image = shape[0], int(np.prod(shape[1:]))
        return (xp.arange(count) * image).reshape((count, *(1,) * (len(shape) - 1)))


class MaxPoolWithArgmax(ArgmaxPooling):
    """Maximum of each window and its flat index."""

    signature = "input: T -> output: T, argmax: Targmax"
    attrs = (
        _WINDOW_ATTRS + "Targmax: {int32, int64} = int64, padding: {'SAME', 'VALID'}, "
        f"include_batch_in_index: bool = false, T: {_POOLED_TYPES}"
    )
    compilation = CompilerSupport(compiled=False)
    operation = "MaxPoolWithArgmax"

    @classmethod
    def kernel(
        cls,
        xp: ModuleType,
        flat_window: Any,
        Targmax: DType,
        include_batch_in_index: bool,
        /,
        x: Any,
    ) -> Any:
        fit = flat_window.fit(x)
        if not x.size:
            raise OpError(f"the image must not be empty, got shape {list(x.shape)}")
        best, where = first_maxima(xp, fit, x)
        offsets = np.indices(fit.window).reshape(len(fit.window), -1)
        index: Any = 0
        for d, size in enumerate(fit.sizes):
            start = xp.arange(fit.out[d]) * fit.slide.strides[d] - fit.pads[d][0]
            start = start.reshape((-1, *(1,) * (len(fit.sizes) - d)))
            index = index * size + start + xp.asarray(offsets[d])[where]
        index = index * x.shape[-1] + xp.arange(x.shape[-1])
        if include_batch_in_index:
            index = index + cls.batches(xp, x.shape)
        return best, index.astype(Targmax.numpy)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [cls.pooled(context, context.inputs[0], cls.window(context.node))] * 2

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output, dindex: None) -> InputGradients:
        return [same_attrs(g, "MaxPoolGradWithArgmax", node, node.inputs[0], dy, node.output(1))]


class MaxPoolGradWithArgmax(ArgmaxPooling):
    """Gradient of MaxPoolWithArgmax: gradients are added at the indices of the maxima."""

    signature = "input: T, grad: T, argmax: Targmax -> output: T"
    attrs = (
        _WINDOW_ATTRS + "padding: {'SAME', 'VALID'}, include_batch_in_index: bool = false, "
        f"Targmax: {{int32, int64}}, T: {_POOLED_TYPES}"
    )

    @classmethod
    def kernel(
        cls,
        xp: ModuleType,
        flat_window: Any,
        include_batch_in_index: bool,
        /,
        x: Any,
        dy: Any,
        index: Any,
    ) -> Any:
        flat_window.fit(x)
        check_pooled_shape("argmax", index, dy.shape)
        where = index if include_batch_in_index else index + cls.batches(xp, x.shape)
        check_argmax_indices(where, x.size)
        zeros = xp.zeros(x.size, dtype=x.dtype)
        return accumulated_at(xp, zeros, where.ravel(), dy.ravel(), "add").reshape(x.shape)

    shape = staticmethod(lambda context: [context.inputs[0]])

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dx: Output) -> InputGradients:
        x, _, index = node.inputs
        return None, same_attrs(g, "MaxPoolGradGradWithArgmax", node, x, dx, index), None


class MaxPoolGradGradWithArgmax(ArgmaxPooling):
    """Gradient of MaxPoolGradWithArgmax with respect to its upstream gradient."""

    signature = MaxPoolGradWithArgmax.signature
    attrs = MaxPoolGradWithArgmax.attrs

    @classmethod
    def kernel(
        cls, xp: ModuleType, include_batch_in_index: bool, /, x: Any, ddx: Any, index: Any
    ) -> Any:
        check_pooled_shape("grad", ddx, x.shape)
        where = index if include_batch_in_index else index + cls.batches(xp, x.shape)
        check_argmax_indices(where, x.size)
        return ddx.ravel()[where]

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [cls.pooled(context, context.inputs[0], cls.window(context.node))]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        x, _, index = node.inputs
        return None, same_attrs(g, "MaxPoolGradWithArgmax", node, x, dy, index), None


def check_argmax_indices(where: Any, count: int) -> None:
    """Check that all indices are in range."""
    if where.size and (where.min() < 0 or where.max() >= count):
        raise OpError(f"invalid output index: argmax lies outside of [0, {count})")
