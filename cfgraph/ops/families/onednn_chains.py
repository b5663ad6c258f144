"""Chains of ordinary ops that TensorFlow's rewrites leave as one op of oneDNN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import int32
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.families.fused import AddNode, FusedOp, add_epilogue, shared_attrs
from cfgraph.ops.families.onednn import CONSTANT, CUDNN, DILATIONS, EXPLICIT, FLOATS, WINDOW
from cfgraph.ops.opdef.op import SameShape

_EPILOGUE: Final = (
    "fused_ops: list(string) = [], epsilon: float = 0.0001, leakyrelu_alpha: float = 0.2"
)
_PADDINGS: Final = "Tpaddings: {int32, int64} = int32"


class _MklNativeConv2DWithBias(FusedOp):
    """Convolution and bias by oneDNN."""

    signature = "input: T, filter: T, bias: T -> output: T"
    attrs = f"{FLOATS}, {EXPLICIT}, {CUDNN}, {CONSTANT}, {DILATIONS}"

    @classmethod
    def unfused(cls, add: AddNode, node: Node, inputs: Sequence[Output]) -> Sequence[Output]:
        x, w, bias = inputs
        made = add("Conv2D", x, w, **shared_attrs(node, "Conv2D")).output()
        return [add("BiasAdd", made, bias, data_format=node.attr("data_format")).output()]


class _MklNativeConv2DBackpropFilterWithBias(FusedOp):
    """Gradient of a convolution for its filter and its bias, by oneDNN."""

    signature = "input: T, filter_sizes: int32, out_backprop: T -> output: T, bias_grad: T"
    attrs = f"{FLOATS}, {WINDOW}, {CUDNN}, {DILATIONS}"

    @classmethod
    def unfused(cls, add: AddNode, node: Node, inputs: Sequence[Output]) -> Sequence[Output]:
        attrs = shared_attrs(node, "Conv2DBackpropFilter")
        dw = add("Conv2DBackpropFilter", *inputs, **attrs).output()
        layout = node.attr("data_format")
        return [dw, add("BiasAddGrad", inputs[2], data_format=layout).output()]


class _MklNativePadWithConv2D(FusedOp):
    """Padding and convolution by oneDNN."""

    signature = "input: T, filter: T, paddings: Tpaddings -> output: T"
    attrs = f"{FLOATS}, {WINDOW}, {CUDNN}, {CONSTANT}, {DILATIONS}, {_PADDINGS}"

    @classmethod
    def unfused(cls, add: AddNode, node: Node, inputs: Sequence[Output]) -> Sequence[Output]:
        x, w, paddings = inputs
        x = add("Pad", x, paddings).output()
        return [add("Conv2D", x, w, **shared_attrs(node, "Conv2D")).output()]


class _MklNativePadWithFusedConv2D(FusedOp):
    """Padding and convolution by oneDNN, and what follows it."""

    signature = "input: T, filter: T, args: num_args*T, paddings: Tpaddings -> output: T"
    attrs = (
        f"{FLOATS}, num_args: int >= 0, {WINDOW}, {CONSTANT}, {DILATIONS}, {_PADDINGS}, {_EPILOGUE}"
    )

    @classmethod
    def unfused(cls, add: AddNode, node: Node, inputs: Sequence[Output]) -> Sequence[Output]:
        x, w, *args, paddings = inputs
        x = add("Pad", x, paddings).output()
        x = add("Conv2D", x, w, **shared_attrs(node, "Conv2D")).output()
        return [add_epilogue(add, node, x, args)]


class _MklFusedBatchMatMulV2(FusedOp):
    """Products of batches by oneDNN, and what is multiplied with or added to them."""

    signature = "x: T, y: T, args: num_args*T -> output: T"
    attrs = f"{FLOATS}, adj_x: bool = false, adj_y: bool = false, num_args: int >= 0, {_EPILOGUE}"

    @classmethod
    def unfused(cls, add: AddNode, node: Node, inputs: Sequence[Output]) -> Sequence[Output]:
        x, y, *args = inputs
        made = add("BatchMatMulV2", x, y, **shared_attrs(node, "BatchMatMulV2")).output()
        return [add_epilogue(add, node, made, args)]


class _MklLayerNorm(FusedOp, SameShape):
    """Normalization over the last axis by oneDNN."""

    signature = "x: T, scale: T, offset: T -> y: T"
    attrs = f"{FLOATS}, epsilon: float = 0.001"

    @classmethod
    def unfused(cls, add: AddNode, node: Node, inputs: Sequence[Output]) -> Sequence[Output]:
        x, scale, offset = inputs
        axis = add("Const", dtype=int32, value=TensorValue(np.array([-1], np.int32))).output()
        mean = add("Mean", x, axis, keep_dims=True).output()
        squared = add("SquaredDifference", x, mean).output()
        variance = add("Mean", squared, axis, keep_dims=True).output()
        dtype = node.attr("T")
        epsilon = np.array(node.attr("epsilon"), dtype.numpy)
        least = add("Const", dtype=dtype, value=TensorValue(epsilon)).output()
        inverse = add("Rsqrt", add("AddV2", variance, least).output()).output()
        centered = add("Sub", x, mean).output()
        scaled = add("Mul", add("Mul", centered, inverse).output(), scale).output()
        return [add("AddV2", scaled, offset).output()]


class _MklSwish(FusedOp, SameShape):
    """Swish by oneDNN."""

    signature = "features: T -> activations: T"
    attrs = f"{FLOATS} = float32"

    @classmethod
    def unfused(cls, add: AddNode, node: Node, inputs: Sequence[Output]) -> Sequence[Output]:
        (x,) = inputs
        return [add("Mul", x, add("Sigmoid", x).output()).output()]


class _MklFusedMish(FusedOp, SameShape):
    """Mish by oneDNN."""

    signature = "features: T -> activations: T"
    attrs = FLOATS

    @classmethod
    def unfused(cls, add: AddNode, node: Node, inputs: Sequence[Output]) -> Sequence[Output]:
        (x,) = inputs
        return [add("Mul", x, add("Tanh", add("Softplus", x).output()).output()).output()]
