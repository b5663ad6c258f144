"""Bias addition: one value per channel."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.dtypes import bfloat16
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape, vector_shape
from cfgraph.ops.families.reduction import Sum
from cfgraph.ops.kernels.array_namespace import computed_in_float32
from cfgraph.ops.kernels.half_reductions import reduced_half
from cfgraph.ops.opdef.batching import BatchBuilder
from cfgraph.ops.opdef.facts import Aliasing
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, int32_constant
from cfgraph.ops.opdef.op import Kernel, Op, OpError, SameShape
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank_at_least

_TYPES = (
    "T: {float32, float64, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
    "bfloat16, qint16, quint16, uint16, complex128, float16, uint32, uint64}"
)
_FORMAT = ", data_format: {'NHWC', 'NCHW'} = 'NHWC'"


class BiasAddV1(SameShape):
    """Add a bias vector to the last dimension."""

    signature = "value: T, bias: T -> output: T"
    attrs = _TYPES
    has_data_format: ClassVar[bool] = False
    aliasing = Aliasing(reuses_input=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        first = cls.has_data_format and node.attr("data_format") == b"NCHW"

        def add(value: Any, bias: Any, out: Any = None) -> Any:
            if not first and bias.shape == value.shape[-1:] and value.ndim > 1:
                return value + bias if out is None else np.add(value, bias, out)
            if value.ndim < 2:
                raise OpError(f"Input tensor must be at least 2D: {list(value.shape)}")
            axis = 1 if first else value.ndim - 1
            if bias.shape != (value.shape[axis],):
                raise OpError(
                    "Must provide as many biases as the last dimension of the input tensor: "
                    f"{list(bias.shape)} vs. {list(value.shape)}"
                )
            return value + (bias.reshape((-1, *(1,) * (value.ndim - 2))) if first else bias)

        return add

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        first = cls.has_data_format and context.attr("data_format") == b"NCHW"
        return [require_rank_at_least(context.inputs[0], 3 if first else 2)]

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        layout = node.attr("data_format") if cls.has_data_format else b"NHWC"
        return dy, lambda: g.BiasAddGrad(dy, data_format=layout)


class BiasAdd(BiasAddV1):
    """Add a bias vector to the channel dimension, which `data_format` selects."""

    attrs = _TYPES + _FORMAT
    has_data_format = True


class BiasAddGrad(Op):
    """Gradient of BiasAdd with respect to the bias: sum over all dimensions but the channels."""

    signature = "out_backprop: T -> output: T"
    attrs = _TYPES + _FORMAT

    @staticmethod
    def batching(g: BatchBuilder, node: Node) -> Output:
        rank = g.rank(node.inputs[0])
        channels = 1 if node.attr("data_format") == b"NCHW" else rank - 1
        axes = [axis + 1 for axis in range(rank) if axis != channels]
        total: Output = g.Sum(g.value(0), g.const(axes))
        return total

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        first = node.attr("data_format") == b"NCHW"

        def total(dy: Any) -> Any:
            if dy.ndim < 2:
                raise OpError(f"Input tensor must be at least 2D: {list(dy.shape)}")
            axis = 1 if first else dy.ndim - 1
            axes = tuple([d for d in range(dy.ndim) if d != axis])
            if is_bfloat16 and dy.size:
                return reduced_half(np.add, dy, axes)
            return Sum.reduced(xp, dy, axes, keep=False)

        dtype = node.attr("T")
        is_bfloat16 = xp is np and dtype is bfloat16
        return total if is_bfloat16 else computed_in_float32(total, dtype)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        first = context.attr("data_format") == b"NCHW"
        dims = require_rank_at_least(context.inputs[0], 3 if first else 2).dims
        return [vector_shape(dims[1 if first else -1] if dims else None)]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        dy = node.inputs[0]
        if node.attr("data_format") == b"NCHW":
            dz = g.Reshape(dz, _channels_first_shape(g, dy))
        return [g.BroadcastTo(dz, g.shape(dy))]


def _channels_first_shape(g: GradientBuilder, dy: Output) -> Output:
    """Shape of a channel vector that broadcasts in NCHW layout: [-1, 1, 1, ...]."""
    rank = g.known_shape(dy).rank
    if rank is not None:
        return int32_constant(g, [-1, *[1] * (rank - 2)])
    within = g.Slice(g.shape(dy), int32_constant(g, [2]), int32_constant(g, [-1]))
    return g.ConcatV2(int32_constant(g, [-1]), g.OnesLike(within), int32_constant(g, 0))
