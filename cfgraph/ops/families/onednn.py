"""Ops of oneDNN that TensorFlow's rewrites leave in the graphs of CPUs, in the ordinary layout.

Each has the inputs and attributes of an ordinary op, and sometimes more: a constant filter, a
workspace for the gradient, a padding before the product. Their kernels run those of the ordinary
ops, and `unfused` replaces them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np

from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import uint8
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ir.signature import Signature
from cfgraph.ops.families.fused import (
    AddNode,
    FusedOp,
    _FusedConv2D,
    _FusedDepthwiseConv2dNative,
    _FusedMatMul,
    add_epilogue,
    shared_attrs,
)
from cfgraph.ops.opdef.op import Op, lookup
from cfgraph.ops.opdef.shape_functions import InferenceContext

TYPES: Final = "{bfloat16, float32, float16}"
FLOATS: Final = f"T: {TYPES}"
_WITH_DOUBLE: Final = "T: {bfloat16, float16, float32, float64}"
FORMAT: Final = "data_format: {'NHWC', 'NCHW'} = 'NHWC'"
WINDOW: Final = f"strides: list(int), padding: {{'SAME', 'VALID'}}, {FORMAT}"
EXPLICIT: Final = (
    "strides: list(int), padding: {'SAME', 'VALID', 'EXPLICIT'}, "
    f"explicit_paddings: list(int) = [], {FORMAT}"
)
DILATIONS: Final = "dilations: list(int) = [1, 1, 1, 1]"
CONSTANT: Final = "is_filter_const: bool = false"
CUDNN: Final = "use_cudnn_on_gpu: bool = true"
_POOL: Final = "ksize: list(int) >= 4"
_POOL_3D: Final = "ksize: list(int) >= 5"
_VOLUME: Final = (
    "strides: list(int) >= 5, padding: {'SAME', 'VALID'}, data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'"
)
_DILATIONS_3D: Final = "dilations: list(int) = [1, 1, 1, 1, 1]"
_WORKSPACE: Final = "workspace_enabled: bool = false"
_GRADS_AB: Final = "grad_a: bool = false, grad_b: bool = false"
_BATCH: Final = (
    f"{FLOATS}, adj_x: bool = false, adj_y: bool = false, grad_x: bool = false, "
    "grad_y: bool = false"
)


class OneDnnOp(FusedOp, abstract=True):
    """An op that oneDNN computes in place of an ordinary one.

    It has the signature and the attributes of the ordinary op unless it declares its own.
    """

    ordinary: ClassVar[str]

    @classmethod
    def ordinary_op(cls) -> type[Op]:
        """The class of the op that it replaces."""
        op = lookup(cls.ordinary)
        assert op is not None
        return op

    @classmethod
    def parsed(cls) -> Signature:
        if cls._parsed is None:
            op = cls.ordinary_op()
            signature = getattr(cls, "signature", op.signature)
            cls._parsed = Signature(signature, cls.attrs or op.attrs)
        return cls._parsed

    @classmethod
    def unfused(cls, add: AddNode, node: Node, inputs: Sequence[Output]) -> Sequence[Output]:
        op = cls.ordinary_op()
        if issubclass(op, FusedOp):
            return op.unfused(add, node, inputs)
        made = add(cls.ordinary, *inputs, **shared_attrs(node, cls.ordinary))
        return [made.output(port) for port in range(len(op.parsed().outputs))]

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return cls.ordinary_op().shape(context)


class _MklMatMul(OneDnnOp):
    """Matrix product by oneDNN."""

    ordinary = "MatMul"
    attrs = f"transpose_a: bool = false, transpose_b: bool = false, {FLOATS}, {_GRADS_AB}"


class _MklBatchMatMul(OneDnnOp):
    """Products of batches of matrices by oneDNN."""

    ordinary = "BatchMatMul"
    attrs = _BATCH


class _MklBatchMatMulV2(OneDnnOp):
    """Products of broadcast batches of matrices by oneDNN."""

    ordinary = "BatchMatMulV2"
    attrs = _BATCH


class _MklTranspose(OneDnnOp):
    """Transposition by oneDNN."""

    ordinary = "Transpose"
    attrs = "T: type, Tperm: {int32, int64} = int32"


class _MklConjugateTranspose(OneDnnOp):
    """Conjugate transposition by oneDNN."""

    ordinary = "ConjugateTranspose"
    attrs = "T: type, Tperm: {int32, int64} = int32"


class _MklEinsum(OneDnnOp):
    """Sum of products by oneDNN."""

    ordinary = "Einsum"
    attrs = f"equation: string, N: int >= 1, {FLOATS}"


class _MklSoftmax(OneDnnOp):
    """Softmax by oneDNN."""

    ordinary = "Softmax"
    attrs = f"{FLOATS} = float32"


class _MklNativeConv2D(OneDnnOp):
    """Convolution by oneDNN."""

    ordinary = "Conv2D"
    attrs = f"{FLOATS}, {EXPLICIT}, {CUDNN}, {CONSTANT}, {DILATIONS}"


class _MklNativeDepthwiseConv2dNative(OneDnnOp):
    """Depthwise convolution by oneDNN."""

    ordinary = "DepthwiseConv2dNative"
    attrs = f"{_WITH_DOUBLE}, {EXPLICIT}, {CONSTANT}, {DILATIONS}"


class _MklNativeConv3D(OneDnnOp):
    """Convolution of volumes by oneDNN."""

    ordinary = "Conv3D"
    attrs = f"{FLOATS}, {_VOLUME}, {CONSTANT}, {_DILATIONS_3D}"


class _MklNativeConv2DBackpropInput(OneDnnOp):
    """Gradient of a convolution for its input, by oneDNN."""

    ordinary = "Conv2DBackpropInput"
    attrs = f"{FLOATS}, {EXPLICIT}, {CUDNN}, {DILATIONS}"


class _MklNativeConv2DBackpropFilter(OneDnnOp):
    """Gradient of a convolution for its filter, by oneDNN."""

    ordinary = "Conv2DBackpropFilter"
    attrs = f"{FLOATS}, {EXPLICIT}, {CUDNN}, {DILATIONS}"


class _MklNativeDepthwiseConv2dNativeBackpropInput(OneDnnOp):
    """Gradient of a depthwise convolution for its input, by oneDNN."""

    ordinary = "DepthwiseConv2dNativeBackpropInput"
    attrs = f"{_WITH_DOUBLE}, {EXPLICIT}, {DILATIONS}"


class _MklNativeDepthwiseConv2dNativeBackpropFilter(OneDnnOp):
    """Gradient of a depthwise convolution for its filter, by oneDNN."""

    ordinary = "DepthwiseConv2dNativeBackpropFilter"
    attrs = f"{_WITH_DOUBLE}, {EXPLICIT}, {DILATIONS}"


class _MklNativeConv3DBackpropInputV2(OneDnnOp):
    """Gradient of a convolution of volumes for its input, by oneDNN."""

    ordinary = "Conv3DBackpropInputV2"
    attrs = f"{FLOATS}, {_VOLUME}, {_DILATIONS_3D}, Tshape: {{int32, int64}} = int32"


class _MklNativeConv3DBackpropFilterV2(OneDnnOp):
    """Gradient of a convolution of volumes for its filter, by oneDNN."""

    ordinary = "Conv3DBackpropFilterV2"
    attrs = f"{FLOATS}, {_VOLUME}, {_DILATIONS_3D}"


class _MklNativeAvgPool(OneDnnOp):
    """Averages over windows by oneDNN."""

    ordinary = "AvgPool"
    attrs = f"{_POOL}, {WINDOW}, {_WITH_DOUBLE}"


class _MklNativeAvgPool3D(OneDnnOp):
    """Averages over windows of volumes by oneDNN."""

    ordinary = "AvgPool3D"
    signature = "value: T -> output: T"
    attrs = f"{_POOL_3D}, {_VOLUME}, {_WITH_DOUBLE}"


class _MklNativeAvgPoolGrad(OneDnnOp):
    """Gradient of averages over windows, by oneDNN."""

    ordinary = "AvgPoolGrad"
    attrs = f"{_POOL}, {WINDOW}, {_WITH_DOUBLE}"


class _MklNativeAvgPool3DGrad(OneDnnOp):
    """Gradient of averages over windows of volumes, by oneDNN."""

    ordinary = "AvgPool3DGrad"
    attrs = f"{_POOL_3D}, {_VOLUME}, {_WITH_DOUBLE}"


class _MklNativeFusedBatchNorm(OneDnnOp):
    """Batch normalization by oneDNN."""

    ordinary = "FusedBatchNorm"


class _MklNativeFusedBatchNormV2(OneDnnOp):
    """Batch normalization by oneDNN."""

    ordinary = "FusedBatchNormV2"


class _MklNativeFusedBatchNormV3(OneDnnOp):
    """Batch normalization by oneDNN."""

    ordinary = "FusedBatchNormV3"


class _MklNativeFusedBatchNormGrad(OneDnnOp):
    """Gradient of batch normalization, by oneDNN."""

    ordinary = "FusedBatchNormGrad"


class _MklNativeFusedBatchNormGradV2(OneDnnOp):
    """Gradient of batch normalization, by oneDNN."""

    ordinary = "FusedBatchNormGradV2"


class _MklNativeFusedBatchNormGradV3(OneDnnOp):
    """Gradient of batch normalization, by oneDNN."""

    ordinary = "FusedBatchNormGradV3"


class _MklNativeFusedBatchNormEx(OneDnnOp):
    """Batch normalization, a sum, and an activation by oneDNN."""

    ordinary = "_FusedBatchNormEx"


class _MklNativeFusedConv2D(OneDnnOp):
    """Convolution by oneDNN, and what follows it."""

    ordinary = "_FusedConv2D"
    attrs = f"{_FusedConv2D.attrs.replace('T: {', 'T: {bfloat16, ', 1)}, {CONSTANT}"


class _MklNativeFusedDepthwiseConv2dNative(OneDnnOp):
    """Depthwise convolution by oneDNN, and what follows it."""

    ordinary = "_FusedDepthwiseConv2dNative"
    attrs = f"{_FusedDepthwiseConv2dNative.attrs}, {CONSTANT}"


class _MklNativeFusedMatMul(OneDnnOp):
    """Matrix product by oneDNN, and what follows it; the bias may be a row."""

    ordinary = "_FusedMatMul"
    attrs = f"{_FusedMatMul.attrs}, {CONSTANT}"

    @classmethod
    def unfused(cls, add: AddNode, node: Node, inputs: Sequence[Output]) -> Sequence[Output]:
        a, b, *args = inputs
        x = add("MatMul", a, b, **shared_attrs(node, "MatMul")).output()
        return [add_epilogue(add, node, x, args, broadcasts_bias=True)]


class PoolWithWorkspace(OneDnnOp, abstract=True):
    """A pool whose second output only its gradient reads; it is empty."""

    @classmethod
    def unfused(cls, add: AddNode, node: Node, inputs: Sequence[Output]) -> Sequence[Output]:
        workspace = add("Const", dtype=uint8, value=TensorValue(np.zeros([0], np.uint8)))
        return [*super().unfused(add, node, inputs), workspace.output()]

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [*super().shape(context), UNKNOWN_SHAPE]


class PoolGradientWithWorkspace(OneDnnOp, abstract=True):
    """The gradient of such a pool, which needs no workspace here."""

    @classmethod
    def unfused(cls, add: AddNode, node: Node, inputs: Sequence[Output]) -> Sequence[Output]:
        return super().unfused(add, node, inputs[:3])

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return super().shape(InferenceContext(context.node, context.inputs[:3], context.value))


class _MklNativeMaxPool(PoolWithWorkspace):
    """Maxima over windows by oneDNN."""

    ordinary = "MaxPool"
    signature = "input: T -> output: T, workspace: uint8"
    attrs = f"{FLOATS} = float32, {_POOL}, {EXPLICIT}, {_WORKSPACE}"


class _MklNativeMaxPool3D(PoolWithWorkspace):
    """Maxima over windows of volumes by oneDNN."""

    ordinary = "MaxPool3D"
    signature = "input: T -> output: T, workspace: uint8"
    attrs = f"{_POOL_3D}, {_VOLUME}, {FLOATS}, {_WORKSPACE}"


class _MklNativeMaxPoolGrad(PoolGradientWithWorkspace):
    """Gradient of maxima over windows, by oneDNN."""

    ordinary = "MaxPoolGrad"
    signature = "orig_input: T, orig_output: T, grad: T, workspace: uint8 -> output: T"
    attrs = f"{FLOATS} = float32, {_POOL}, {EXPLICIT}, {_WORKSPACE}"


class _MklNativeMaxPool3DGrad(PoolGradientWithWorkspace):
    """Gradient of maxima over windows of volumes, by oneDNN."""

    ordinary = "MaxPool3DGrad"
    signature = "orig_input: TInput, orig_output: TInput, grad: T, workspace: uint8 -> output: T"
    attrs = f"{_POOL_3D}, {_VOLUME}, {FLOATS} = float32, TInput: {TYPES} = float32, {_WORKSPACE}"
