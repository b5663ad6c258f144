"""Batch normalization: each channel brought to mean zero and variance one, and the gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.ops import batch_normalization_gradients
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError

_FLAT = "data_format: {'NHWC', 'NCHW'} = 'NHWC', "
_ANY = "data_format: {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC', "
_FORWARD = "epsilon: float = 0.0001, exponential_avg_factor: float = 1.0, "
_NARROW = "T: {float16, bfloat16, float32}, "
_TRAINING = "is_training: bool = true"


class Normalization(Op, abstract=True):
    """Normalize by the batch's moments in training, else by those given; hand out both."""

    gradient = staticmethod(batch_normalization_gradients.normalized)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        first = node.attr("data_format").startswith(b"NC")
        training, epsilon = node.attr("is_training"), node.attr("epsilon")
        factor, spaces = node.attr("exponential_avg_factor"), cls.parsed().simple_outputs or 0

        def normalize(x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
            check_channels(x, first, training, scale, offset, mean, variance)
            last = _last(xp, x, first).astype(xp.float32)
            kind = scale.dtype
            if not training:
                y = _apply(xp, last, scale, offset, mean, variance, epsilon)
                results = mean, variance, mean, variance
            else:
                at, spread, fresh = _moments(xp, last)
                y = _apply(xp, last, scale, offset, at, spread, epsilon)
                if factor != 1:
                    fresh = [
                        (1 - factor) * old + factor * new
                        for old, new in zip((mean, variance), fresh, strict=True)
                    ]
                results = (*(value.astype(kind) for value in (*fresh, at, spread)),)
            more = (xp.zeros((0,), dtype=kind),) * (spaces - 5)
            return (_back(xp, y, first).astype(x.dtype), *results, *more)

        return normalize

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        x = context.inputs[0]
        first = context.attr("data_format").startswith(b"NC")
        channels = vector_shape(x.dims[1 if first else -1]) if x.dims else vector_shape()
        for other in context.inputs[1:3]:
            channels = channels.merge(other)
        return [x, *[channels] * 4, *[UNKNOWN_SHAPE] * (context.output_count - 5)]


def _last(xp: ModuleType, x: Any, first: bool) -> Any:
    return xp.moveaxis(x, 1, -1) if first else x


def _back(xp: ModuleType, x: Any, first: bool) -> Any:
    return xp.moveaxis(x, -1, 1) if first else x


def _moments(xp: ModuleType, x: Any) -> tuple[Any, Any, list[Any]]:
    """Mean and variance of the batch, and what it estimates of the population."""
    count = math.prod(x.shape[:-1])
    if count == 0:
        nothing = xp.zeros(x.shape[-1], dtype=x.dtype)
        return nothing, nothing, [nothing + xp.nan] * 2
    axes = tuple(range(x.ndim - 1))
    mean = xp.mean(x, axis=axes, dtype=x.dtype)
    variance = xp.mean(xp.square(x - mean), axis=axes, dtype=x.dtype)
    return mean, variance, [mean, variance * (count / max(count - 1, 1))]


def _apply(
    xp: ModuleType, x: Any, scale: Any, offset: Any, mean: Any, variance: Any, epsilon: float
) -> Any:
    return (x - mean) * (scale / xp.sqrt(variance + epsilon)) + offset


def check_channels(x: Any, first: bool, training: bool, scale: Any, *others: Any) -> None:
    """Refuse parameters that are no vector of one number a channel."""
    if x.ndim not in (4, 5):
        message = f"input must be 4 or 5-dimensional {list(x.shape)}"
        raise OpError(message)
    channels = x.shape[1 if first else -1]
    for place, other in enumerate((scale, *others)):
        if other.shape != (channels,) and not (training and place > 1 and other.shape == (0,)):
            message = f"every parameter must hold {channels} numbers, got {list(other.shape)}"
            raise OpError(message)


class FusedBatchNorm(Normalization):
    """Batch normalization of a float32 image."""

    signature = (
        "x: T, scale: T, offset: T, mean: T, variance: T -> y: T, batch_mean: T, "
        "batch_variance: T, reserve_space_1: T, reserve_space_2: T"
    )
    attrs = "T: {float32}, " + _FORWARD + _FLAT + _TRAINING


class FusedBatchNormV2(Normalization):
    """Batch normalization of an image, moments in float32."""

    signature = (
        "x: T, scale: U, offset: U, mean: U, variance: U -> y: T, batch_mean: U, "
        "batch_variance: U, reserve_space_1: U, reserve_space_2: U"
    )
    attrs = _NARROW + "U: {float32}, " + _FORWARD + _FLAT + _TRAINING


class FusedBatchNormV3(Normalization):
    """Batch normalization of an image or volume; the third space is for devices that need it."""

    signature = (
        "x: T, scale: U, offset: U, mean: U, variance: U -> y: T, batch_mean: U, "
        "batch_variance: U, reserve_space_1: U, reserve_space_2: U, reserve_space_3: U"
    )
    attrs = _NARROW + "U: {bfloat16, float32}, " + _FORWARD + _ANY + _TRAINING


class NormalizationGradient(Op, abstract=True):
    """Gradients of batch normalization with respect to the image, the scale and the offset."""

    gradient = staticmethod(batch_normalization_gradients.gradient)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        first = node.attr("data_format").startswith(b"NC")
        training, epsilon = node.attr("is_training"), node.attr("epsilon")

        def gradient(dy: Any, x: Any, scale: Any, mean: Any, variance: Any, *_: Any) -> Any:
            if dy.shape != x.shape:
                message = f"y_backprop has shape {list(dy.shape)}, x has {list(x.shape)}"
                raise OpError(message)
            check_channels(x, first, False, scale, mean, variance)
            dy, wide = (_last(xp, v, first).astype(xp.float32) for v in (dy, x))
            axes, count = tuple(range(x.ndim - 1)), math.prod(wide.shape[:-1])
            centred, inverse = wide - mean, 1 / xp.sqrt(variance + epsilon)
            total = xp.sum(dy, axis=axes, dtype=dy.dtype)
            along = xp.sum(dy * centred, axis=axes, dtype=dy.dtype)
            dx = dy
            if training and count:
                dx = dy - total / count - centred * (xp.square(inverse) * along / count)
            dx = _back(xp, dx * (scale * inverse), first).astype(x.dtype)
            nothing = xp.zeros((), dtype=scale.dtype)
            return dx, along * inverse, total, nothing, nothing

        return gradient

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        x = context.inputs[0].merge(context.inputs[1])
        first = context.attr("data_format").startswith(b"NC")
        channels = vector_shape(x.dims[1 if first else -1]) if x.dims else vector_shape()
        channels = channels.merge(context.inputs[2])
        return [x, channels, channels, UNKNOWN_SHAPE, UNKNOWN_SHAPE]


class FusedBatchNormGrad(NormalizationGradient):
    """Gradient of FusedBatchNorm."""

    signature = (
        "y_backprop: T, x: T, scale: T, reserve_space_1: T, reserve_space_2: T -> x_backprop: T, "
        "scale_backprop: T, offset_backprop: T, reserve_space_3: T, reserve_space_4: T"
    )
    attrs = "T: {float32}, epsilon: float = 0.0001, " + _FLAT + _TRAINING


class FusedBatchNormGradV2(NormalizationGradient):
    """Gradient of FusedBatchNormV2."""

    signature = (
        "y_backprop: T, x: T, scale: float32, reserve_space_1: U, reserve_space_2: U -> "
        "x_backprop: T, scale_backprop: U, offset_backprop: U, reserve_space_3: U, "
        "reserve_space_4: U"
    )
    attrs = _NARROW + "U: {float32}, epsilon: float = 0.0001, " + _FLAT + _TRAINING


class FusedBatchNormGradV3(NormalizationGradient):
    """Gradient of FusedBatchNormV3."""

    signature = (
        "y_backprop: T, x: T, scale: float32, reserve_space_1: U, reserve_space_2: U, "
        "reserve_space_3: U -> x_backprop: T, scale_backprop: U, offset_backprop: U, "
        "reserve_space_4: U, reserve_space_5: U"
    )
    attrs = _NARROW + "U: {float32}, epsilon: float = 0.0001, " + _ANY + _TRAINING
