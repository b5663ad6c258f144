"""Batch normalization and local response normalization (LRN), with their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.ops.kernels.array_namespace import channel_sums, in_float32
from cfgraph.ops.opdef.facts import Aliasing, CompilerSupport
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    int32_constant,
    reject_gradients,
    same_attrs,
)
from cfgraph.ops.opdef.op import ALL_NUMBERS, Op, OpError, SameShape, one_of
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank


def batch_norm_gradient(
    g: GradientBuilder, node: Node, dy: Output | None, *other_grads: Output | None
) -> InputGradients:
    """Gradients of FusedBatchNorm* with respect to image, scale, and offset.

    In training, the batch moments are read from the reserve outputs, which each device fills as its
    own gradient kernel expects. Raises Unsupported if an output other than `y` has a gradient.
    """
    reject_gradients(node, other_grads, "its moments")
    assert dy is not None
    op = node.op.replace("FusedBatchNorm", "FusedBatchNormGrad")
    x, scale, _, *moments = node.inputs
    layout = node.attr("data_format")
    reserved = [node.output(port) for port in range(3, len(other_grads) + 1)]
    if node.attr("is_training"):
        grad_node = same_attrs(g, op, node, dy, x, scale, *reserved).node
        dx = grad_node.output(0)
    else:
        dy, x = (_move_channels(g, tensor, layout, last=True) for tensor in (dy, x))
        attrs = {"epsilon": node.attr("epsilon"), "is_training": False}
        attrs["data_format"] = b"NHWC" if len(layout) == 4 else b"NDHWC"
        nhwc_gradient = getattr(g, op)(dy, x, scale, *moments, *reserved[2:], **attrs)
        grad_node = nhwc_gradient.node
        dx = _move_channels(g, grad_node.output(0), layout, last=False)
    return dx, grad_node.output(1), grad_node.output(2), None, None


def _move_channels(g: GradientBuilder, x: Output, layout: bytes, *, last: bool) -> Output:
    """Transpose an image of this layout to channels last, or back to its own layout."""
    if not layout.startswith(b"NC"):
        return x
    spatial = list(range(2, len(layout)))
    to_channels_first = [0, len(layout) - 1, *range(1, len(layout) - 1)]
    return g.Transpose(x, int32_constant(g, [0, *spatial, 1] if last else to_channels_first))


def batch_norm_second_gradient(
    g: GradientBuilder, node: Node, *output_grads: Output | None
) -> InputGradients:
    """Gradients of FusedBatchNormGrad* with respect to `y_backprop`, `x`, and `scale`.

    In training, the moments are recomputed from the image, so the gradient with respect to `x` is
    complete and the reserve inputs have none. With u the normalized image, r the inverse deviation,
    s the scale, and P the projection of `_BatchInFloat32.projected`, the node computes
    dx = s r P(dy) and ds = sum(dy u).
    """
    reject_gradients(node, output_grads[3:], "its reserve outputs")
    dy, x, *_ = node.inputs
    batch = _BatchInFloat32(g, node)
    image, scale, offset = output_grads[:3]
    by_dy, by_x, by_scale = list[Output](), list[Output](), None
    dy = batch.to_float32(dy)
    if image is not None:
        image = batch.to_float32(image)
        projected = batch.projected(image)
        by_dy.append(g.Mul(batch.slope, projected))
        product = g.Mul(dy, projected)
        by_scale = g.Mul(batch.sum(product), g.Reshape(batch.inverse, int32_constant(g, [-1])))
        by_x += batch.moment_terms(image, dy, product)
    if scale is not None:
        scale = batch.column(scale)
        by_dy.append(g.Mul(scale, batch.unit))
        by_x.append(g.Mul(batch.inverse, batch.projected(g.Mul(scale, dy))))
    if offset is not None:
        offset = batch.column(offset)
        by_dy.append(offset if by_dy else g.BroadcastTo(offset, g.shape(dy)))
    grads = [_sum_terms(g, terms, x) for terms in (by_dy, by_x)]
    return *grads, by_scale, *[None] * (len(node.inputs) - 3)


def _sum_terms(g: GradientBuilder, terms: list[Output], like: Output) -> Output | None:
    """The sum of gradients in the dtype of `like`, or None if the list is empty."""
    if not terms:
        return None
    total = reduce(g.AddV2, terms)
    return total if total.dtype is like.dtype else g.Cast(total, DstT=like.dtype)


class _BatchInFloat32:
    """The normalized image of a FusedBatchNormGrad* node, recomputed in float32."""

    def __init__(self, g: GradientBuilder, node: Node) -> None:
        layout = node.attr("data_format")
        rank, channels_first = len(layout), layout.startswith(b"NC")
        self.g = g
        self.training: bool = node.attr("is_training")
        self._axes = int32_constant(
            g, [0, *range(2, rank)] if channels_first else list(range(rank - 1))
        )
        self._column = int32_constant(g, [-1, *[1] * (rank - 2)]) if channels_first else None
        _, x, scale, mean, variance, *_ = node.inputs
        x = self.to_float32(x)
        if self.training:
            centered = g.Sub(x, self.mean(x))
            batch_variance = self.mean(g.Square(centered))
        else:
            centered, batch_variance = g.Sub(x, self.column(mean)), self.column(variance)
        self.inverse = g.Rsqrt(g.AddV2(batch_variance, node.attr("epsilon")))
        self.unit = g.Mul(centered, self.inverse)
        self.slope = g.Mul(self.column(scale), self.inverse)

    def to_float32(self, v: Output) -> Output:
        """A tensor cast to float32."""
        return v if v.dtype is dtypes.float32 else self.g.Cast(v, DstT=dtypes.float32)

    def column(self, v: Output) -> Output:
        """A vector with one value per channel, reshaped to broadcast against the image."""
        v = self.to_float32(v)
        return v if self._column is None else self.g.Reshape(v, self._column)

    def mean(self, v: Output) -> Output:
        """The mean per channel, shaped to broadcast."""
        return self.g.Mean(v, self._axes, keep_dims=True)

    def sum(self, v: Output) -> Output:
        """Add nodes for the sum over all dimensions but the channels."""
        return self.g.Sum(v, self._axes)

    def projected(self, v: Output) -> Output:
        """In training, an image without its mean and its component along the normalized image."""
        g = self.g
        if not self.training:
            return v
        component = g.Mul(self.unit, self.mean(g.Mul(v, self.unit)))
        return g.Sub(g.Sub(v, self.mean(v)), component)

    def moment_terms(self, image: Output, dy: Output, product: Output) -> list[Output]:
        """The terms of the gradient with respect to `x` that come from the moments in dx."""
        g = self.g
        if not self.training:
            return []
        image_term = g.Mul(self.mean(g.Mul(dy, self.unit)), image)
        dy_term = g.Mul(self.mean(g.Mul(image, self.unit)), dy)
        through_unit = self.projected(g.AddV2(image_term, dy_term))
        through_inverse = g.Mul(self.unit, self.mean(product))
        rate = g.Mul(self.slope, self.inverse)
        return [g.Neg(g.Mul(rate, g.AddV2(through_unit, through_inverse)))]


_ATTRS_2D = "data_format: {'NHWC', 'NCHW'} = 'NHWC', "
_ATTRS_2D_3D = "data_format: {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC', "
_FORWARD_SIGNATURE = "epsilon: float = 0.0001, exponential_avg_factor: float = 1.0, "
_NARROW_TYPES = "T: {float16, bfloat16, float32}, "
_TRAINING_ATTRS = "is_training: bool = true"


class BatchNormalization(Op, abstract=True):
    """Normalization by the moments of the batch in training, otherwise by the input moments.

    The outputs are the normalized image, the (running) mean and variance, and reserve spaces for
    the gradient.
    """

    aliasing = Aliasing(reuses_input=True)
    gradient = staticmethod(batch_norm_gradient)

    @classmethod
    def kernel(
        cls,
        xp: ModuleType,
        data_format: bytes,
        is_training: bool,
        epsilon: float,
        exponential_avg_factor: float,
        /,
        x: Any,
        scale: Any,
        offset: Any,
        mean: Any,
        variance: Any,
        out: Any = None,
    ) -> Any:
        channels_first = data_format.startswith(b"NC")
        check_channel_vectors(x, channels_first, is_training, scale, offset, mean, variance)
        image = _channels_last(xp, x, channels_first)
        image = _converted(image, xp.float32)
        out = out if image is x else None
        dtype = scale.dtype
        if not is_training:
            y = _normalize(xp, image, scale, offset, mean, variance, epsilon, out)
            results = mean, variance, mean, variance
        else:
            batch_mean, batch_variance, estimates = _moments(xp, image)
            y = _normalize(xp, image, scale, offset, batch_mean, batch_variance, epsilon, out)
            if exponential_avg_factor != 1:
                estimates = [
                    (1 - exponential_avg_factor) * old + exponential_avg_factor * new
                    for old, new in zip((mean, variance), estimates, strict=True)
                ]
            results = (
                *(value.astype(dtype) for value in (*estimates, batch_mean, batch_variance)),
            )
        extra = (xp.zeros((0,), dtype=dtype),) * ((cls.parsed().simple_outputs or 0) - 5)
        y = _converted(_channels_restored(xp, y, channels_first), x.dtype)
        return (y, *results, *extra)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        x = context.inputs[0]
        channels_first = context.attr("data_format").startswith(b"NC")
        channels = vector_shape(x.dims[1 if channels_first else -1]) if x.dims else vector_shape()
        for parameter in context.inputs[1:3]:
            channels = channels.merge(parameter)
        return [x, *[channels] * 4, *[UNKNOWN_SHAPE] * (context.output_count - 5)]


def _converted(x: Any, dtype: Any) -> Any:
    """An array of a type, without a copy if it has it."""
    return x if x.dtype == dtype else x.astype(dtype)


def _channels_last(xp: ModuleType, x: Any, channels_first: bool) -> Any:
    return xp.moveaxis(x, 1, -1) if channels_first else x


def _channels_restored(xp: ModuleType, x: Any, channels_first: bool) -> Any:
    return xp.moveaxis(x, -1, 1) if channels_first else x


def _moments(xp: ModuleType, x: Any) -> tuple[Any, Any, list[Any]]:
    """Mean, variance, and estimates of both for the population (Bessel's correction)."""
    count = math.prod(x.shape[:-1])
    if count == 0:
        zeros = xp.zeros(x.shape[-1], dtype=x.dtype)
        return zeros, zeros, [zeros + xp.nan] * 2
    mean = channel_sums(xp, x) / x.dtype.type(count)
    centered = x - mean
    squares = np.square(centered, out=centered) if xp is np else xp.square(centered)
    variance = channel_sums(xp, squares) / x.dtype.type(count)
    return mean, variance, [mean, variance * (count / max(count - 1, 1))]


def _normalize(
    xp: ModuleType,
    x: Any,
    scale: Any,
    offset: Any,
    mean: Any,
    variance: Any,
    epsilon: float,
    out: Any = None,
) -> Any:
    if xp is not np:
        return (x - mean) * (scale / xp.sqrt(variance + epsilon)) + offset
    y = np.subtract(x, mean, out)
    y *= scale / np.sqrt(variance + epsilon)
    y += offset
    return y


def check_channel_vectors(
    x: Any, channels_first: bool, training: bool, scale: Any, *parameters: Any
) -> None:
    """Raise OpError unless every parameter is a vector with one value per channel."""
    if x.ndim not in (4, 5):
        raise OpError(f"input must be 4 or 5-dimensional {list(x.shape)}")
    channels = x.shape[1 if channels_first else -1]
    for index, parameter in enumerate((scale, *parameters)):
        if parameter.shape != (channels,) and not (
            training and index > 1 and parameter.shape == (0,)
        ):
            message = f"every parameter must hold {channels} numbers, got {list(parameter.shape)}"
            raise OpError(message)


class FusedBatchNorm(BatchNormalization):
    """Batch normalization of a 4-D float32 image."""

    signature = (
        "x: T, scale: T, offset: T, mean: T, variance: T -> y: T, batch_mean: T, "
        "batch_variance: T, reserve_space_1: T, reserve_space_2: T"
    )
    attrs = "T: {float32}, " + _FORWARD_SIGNATURE + _ATTRS_2D + _TRAINING_ATTRS


class FusedBatchNormV2(BatchNormalization):
    """Batch normalization of a 4-D image with moments in float32."""

    signature = (
        "x: T, scale: U, offset: U, mean: U, variance: U -> y: T, batch_mean: U, "
        "batch_variance: U, reserve_space_1: U, reserve_space_2: U"
    )
    attrs = _NARROW_TYPES + "U: {float32}, " + _FORWARD_SIGNATURE + _ATTRS_2D + _TRAINING_ATTRS


class FusedBatchNormV3(BatchNormalization):
    """Batch normalization of a 4-D image or 5-D volume; reserve space 3 is device-specific."""

    signature = (
        "x: T, scale: U, offset: U, mean: U, variance: U -> y: T, batch_mean: U, "
        "batch_variance: U, reserve_space_1: U, reserve_space_2: U, reserve_space_3: U"
    )
    attrs = (
        _NARROW_TYPES
        + "U: {bfloat16, float32}, "
        + _FORWARD_SIGNATURE
        + _ATTRS_2D_3D
        + _TRAINING_ATTRS
    )


class BatchNormalizationGradient(Op, abstract=True):
    """Gradients of batch normalization with respect to image, scale, and offset."""

    gradient = staticmethod(batch_norm_second_gradient)

    @staticmethod
    def kernel(
        xp: ModuleType, data_format: bytes, is_training: bool, epsilon: float, /, *inputs: Any
    ) -> Any:
        dy, x, scale, mean, variance, *_ = inputs
        channels_first = data_format.startswith(b"NC")
        if dy.shape != x.shape:
            raise OpError(f"y_backprop has shape {list(dy.shape)}, x has {list(x.shape)}")
        check_channel_vectors(x, channels_first, False, scale, mean, variance)
        dy, image = (_converted(_channels_last(xp, v, channels_first), xp.float32) for v in (dy, x))
        count = math.prod(image.shape[:-1])
        centered, inverse = image - mean, 1 / xp.sqrt(variance + epsilon)
        total = channel_sums(xp, dy)
        centered_sum = channel_sums(xp, dy * centered)
        dx = dy
        if is_training and count:
            dx = dy - total / count - centered * (xp.square(inverse) * centered_sum / count)
        dx = _channels_restored(xp, dx * (scale * inverse), channels_first)
        dx = _converted(dx, x.dtype)
        unused = xp.zeros((), dtype=scale.dtype)
        return dx, centered_sum * inverse, total, unused, unused

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        x = context.inputs[0].merge(context.inputs[1])
        channels_first = context.attr("data_format").startswith(b"NC")
        channels = vector_shape(x.dims[1 if channels_first else -1]) if x.dims else vector_shape()
        channels = channels.merge(context.inputs[2])
        return [x, channels, channels, UNKNOWN_SHAPE, UNKNOWN_SHAPE]


class FusedBatchNormGrad(BatchNormalizationGradient):
    """Gradient of FusedBatchNorm."""

    signature = (
        "y_backprop: T, x: T, scale: T, reserve_space_1: T, reserve_space_2: T -> x_backprop: T, "
        "scale_backprop: T, offset_backprop: T, reserve_space_3: T, reserve_space_4: T"
    )
    attrs = "T: {float32}, epsilon: float = 0.0001, " + _ATTRS_2D + _TRAINING_ATTRS


class FusedBatchNormGradV2(BatchNormalizationGradient):
    """Gradient of FusedBatchNormV2."""

    signature = (
        "y_backprop: T, x: T, scale: float32, reserve_space_1: U, reserve_space_2: U -> "
        "x_backprop: T, scale_backprop: U, offset_backprop: U, reserve_space_3: U, "
        "reserve_space_4: U"
    )
    attrs = _NARROW_TYPES + "U: {float32}, epsilon: float = 0.0001, " + _ATTRS_2D + _TRAINING_ATTRS


class FusedBatchNormGradV3(BatchNormalizationGradient):
    """Gradient of FusedBatchNormV3."""

    signature = (
        "y_backprop: T, x: T, scale: float32, reserve_space_1: U, reserve_space_2: U, "
        "reserve_space_3: U -> x_backprop: T, scale_backprop: U, offset_backprop: U, "
        "reserve_space_4: U, reserve_space_5: U"
    )
    attrs = (
        _NARROW_TYPES + "U: {float32}, epsilon: float = 0.0001, " + _ATTRS_2D_3D + _TRAINING_ATTRS
    )


class GlobalNormalization(Op, abstract=True):
    """Normalization of a 4-D image by given moments, or its gradients; removed in version 9."""

    attrs = f"{one_of(ALL_NUMBERS)}, variance_epsilon: float, scale_after_normalization: bool"
    adapter = in_float32
    # only float16, float32, and float64 have kernels in TensorFlow, and none for XLA
    compilation = CompilerSupport(compiled=False)

    @staticmethod
    def image_and_channels(context: InferenceContext, vectors: int, like: int) -> tuple[Shape, Any]:
        """The shape of the image, merged with that of input `like`, and of a moment."""
        image = require_rank(context.inputs[0], 4)
        if like:
            image = image.merge(context.inputs[like])
        assert image.dims is not None
        channels = vector_shape(image.dims[3])
        for moment in context.inputs[1 : 1 + vectors]:
            channels = channels.merge(moment)
        assert channels.dims is not None
        return Shape((*image.dims[:3], channels.dims[0])), channels


def _check_global_moments(x: Any, moments: Sequence[Any], other: Any) -> None:
    """Raise OpError unless a float image of rank 4 has one moment of each kind per channel."""
    if x.dtype.kind != "f":
        raise OpError(f"no kernel for {x.dtype}")
    if x.ndim != 4 or other.shape != x.shape:
        raise OpError(f"input must be 4-dimensional {list(x.shape)} {list(other.shape)}")
    if any(moment.shape != x.shape[3:] for moment in moments):
        shapes = ", ".join(str(list(moment.shape)) for moment in moments)
        raise OpError(f"moments of shapes {shapes} do not fit an image of {list(x.shape)}")


class BatchNormWithGlobalNormalization(GlobalNormalization):
    """Batch normalization of a 4-D image by given moments, of TensorFlow's first graphs."""

    signature = "t: T, m: T, v: T, beta: T, gamma: T -> result: T"

    @staticmethod
    def kernel(
        xp: ModuleType,
        variance_epsilon: float,
        scale_after_normalization: bool,
        /,
        x: Any,
        mean: Any,
        variance: Any,
        beta: Any,
        gamma: Any,
    ) -> Any:
        _check_global_moments(x, (mean, variance, beta, gamma), x)
        scale = 1 / xp.sqrt(variance + x.dtype.type(variance_epsilon))
        return (x - mean) * (scale * gamma if scale_after_normalization else scale) + beta

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [cls.image_and_channels(context, 4, 0)[0]]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        x, mean, variance, _, gamma = node.inputs
        scaled = node.attr("scale_after_normalization")

        def inverse() -> Output:
            return g.Rsqrt(g.AddV2(variance, node.attr("variance_epsilon")))

        def slope() -> Output:
            return g.Mul(inverse(), gamma) if scaled else inverse()

        def per_channel(v: Output) -> Output:
            return g.Sum(v, int32_constant(g, [0, 1, 2]))

        def moment() -> Output:
            return per_channel(g.Mul(dy, g.Sub(x, mean)))

        def by_variance() -> Output:
            rate = g.Mul(g.Mul(slope(), g.Square(inverse())), -0.5)
            return g.Mul(moment(), rate)

        return (
            lambda: g.Mul(dy, slope()),
            lambda: g.Neg(g.Mul(per_channel(dy), slope())),
            by_variance,
            lambda: per_channel(dy),
            (lambda: g.Mul(moment(), inverse())) if scaled else None,
        )


class BatchNormWithGlobalNormalizationGrad(GlobalNormalization):
    """Gradients of BatchNormWithGlobalNormalization."""

    signature = "t: T, m: T, v: T, gamma: T, backprop: T -> dx: T, dm: T, dv: T, db: T, dg: T"

    @staticmethod
    def kernel(
        xp: ModuleType,
        variance_epsilon: float,
        scale_after_normalization: bool,
        /,
        x: Any,
        mean: Any,
        variance: Any,
        gamma: Any,
        dy: Any,
    ) -> Any:
        _check_global_moments(x, (mean, variance, gamma), dy)
        inverse = 1 / xp.sqrt(variance + x.dtype.type(variance_epsilon))
        slope = inverse * gamma if scale_after_normalization else inverse
        total, moment = channel_sums(xp, dy), channel_sums(xp, dy * (x - mean))
        by_scale = moment * inverse if scale_after_normalization else xp.zeros_like(gamma)
        by_variance = moment * slope * inverse * inverse / x.dtype.type(-2)
        return dy * slope, -total * slope, by_variance, total, by_scale

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        image, channels = cls.image_and_channels(context, 3, 4)
        return [image, *[channels] * 4]


_LRN_ATTRS = (
    "depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5, "
    "T: {float16, bfloat16, float32} = float32"
)


def sum_of_neighbors(xp: ModuleType, x: Any, radius: int) -> Any:
    """The sum over a window of 2 * radius + 1 channels, centered on each; channels are last."""
    depth = x.shape[-1]
    radius = min(radius, max(depth - 1, 0))
    padded = xp.pad(x, ((0, 0),) * (x.ndim - 1) + ((radius, radius),))
    total = xp.zeros_like(x)
    for shift in range(2 * radius + 1):
        total = total + padded[..., shift : shift + depth]
    return total


class LRN(SameShape):
    """Local response normalization: x * (bias + alpha * S)^-beta.

    S is the sum of x^2 over the channels within `depth_radius`.
    """

    signature = "input: T -> output: T"
    attrs = _LRN_ATTRS
    adapter = in_float32

    @staticmethod
    def kernel(
        xp: ModuleType, depth_radius: int, bias: float, alpha: float, beta: float, /, x: Any
    ) -> Any:
        check_lrn_image(x)
        return x * (bias + alpha * sum_of_neighbors(xp, xp.square(x), depth_radius)) ** -beta

    gradient = staticmethod(
        lambda g, node, dy: [same_attrs(g, "LRNGrad", node, dy, node.inputs[0], node.output(0))]
    )


class LRNGrad(SameShape):
    """Gradient of LRN."""

    signature = "input_grads: T, input_image: T, output_image: T -> output: T"
    attrs = _LRN_ATTRS
    adapter = in_float32

    @staticmethod
    def kernel(
        xp: ModuleType, depth_radius: int, bias: float, alpha: float, beta: float, /, *images: Any
    ) -> Any:
        dy, x, y = images
        check_lrn_image(x)
        if dy.shape != x.shape or y.shape != x.shape:
            raise OpError("input_grads, input_image, and out_image should have the same shape")
        norm = bias + alpha * sum_of_neighbors(xp, xp.square(x), depth_radius)
        shared = sum_of_neighbors(xp, dy * y / norm, depth_radius)
        return dy * norm**-beta - (2 * alpha * beta) * x * shared


def check_lrn_image(x: Any) -> None:
    """Raise OpError unless the image has four dimensions."""
    if x.ndim != 4:
        raise OpError("in must be 4-dimensional")
