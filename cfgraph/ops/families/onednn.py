"""Ops of oneDNN that TensorFlow's rewrites leave in the graphs of CPUs, in the ordinary layout.

Each has the inputs and attributes of an ordinary op, and sometimes more: a constant filter, a
workspace for the gradient, a padding before the product. Their kernels run those of the ordinary
ops, and `unfused` replaces them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
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
from cfgraph.ops.opdef.op import Op, define_op, lookup
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
_IMAGE: Final = f"{FLOATS}, {EXPLICIT}"
_PERMUTED: Final = "T: type, Tperm: {int32, int64} = int32"
_SIZES_TYPE: Final = ", Tshape: {int32, int64} = int32"
_AVERAGES: Final = f"{_POOL}, {WINDOW}, {_WITH_DOUBLE}"
_AVERAGES_3D: Final = f"{_POOL_3D}, {_VOLUME}, {_WITH_DOUBLE}"
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


def _define(prefix: str, ordinary: str, doc: str, attrs: str = "", **facts: str) -> None:
    """Define the op of oneDNN in place of an ordinary one."""
    name = prefix + ordinary.removeprefix("_")
    define_op(__name__, name, OneDnnOp, doc, ordinary=ordinary, attrs=attrs, **facts)


_define_plain: Final = partial(_define, "_Mkl")
_define_native: Final = partial(_define, "_MklNative")

_define_plain(
    "MatMul",
    "Matrix product by oneDNN.",
    f"transpose_a: bool = false, transpose_b: bool = false, {FLOATS}, {_GRADS_AB}",
)
_define_plain("BatchMatMul", "Products of batches of matrices by oneDNN.", _BATCH)
_define_plain("BatchMatMulV2", "Products of broadcast batches of matrices by oneDNN.", _BATCH)
_define_plain("Transpose", "Transposition by oneDNN.", _PERMUTED)
_define_plain("ConjugateTranspose", "Conjugate transposition by oneDNN.", _PERMUTED)
_define_plain("Einsum", "Sum of products by oneDNN.", f"equation: string, N: int >= 1, {FLOATS}")
_define_plain("Softmax", "Softmax by oneDNN.", f"{FLOATS} = float32")

_define_native("Conv2D", "Convolution by oneDNN.", f"{_IMAGE}, {CUDNN}, {CONSTANT}, {DILATIONS}")
_define_native(
    "Conv3D",
    "Convolution of volumes by oneDNN.",
    f"{FLOATS}, {_VOLUME}, {CONSTANT}, {_DILATIONS_3D}",
)
_define_native(
    "DepthwiseConv2dNative",
    "Depthwise convolution by oneDNN.",
    f"{_WITH_DOUBLE}, {EXPLICIT}, {CONSTANT}, {DILATIONS}",
)
for _side, _argument in ("Input", "input"), ("Filter", "filter"):
    _define_native(
        f"Conv2DBackprop{_side}",
        f"Gradient of a convolution for its {_argument}, by oneDNN.",
        f"{_IMAGE}, {CUDNN}, {DILATIONS}",
    )
    _define_native(
        f"DepthwiseConv2dNativeBackprop{_side}",
        f"Gradient of a depthwise convolution for its {_argument}, by oneDNN.",
        f"{_WITH_DOUBLE}, {EXPLICIT}, {DILATIONS}",
    )
    _define_native(
        f"Conv3DBackprop{_side}V2",
        f"Gradient of a convolution of volumes for its {_argument}, by oneDNN.",
        f"{FLOATS}, {_VOLUME}, {_DILATIONS_3D}{_SIZES_TYPE if _side == 'Input' else ''}",
    )

_define_native("AvgPool", "Averages over windows by oneDNN.", _AVERAGES)
_define_native("AvgPoolGrad", "Gradient of averages over windows, by oneDNN.", _AVERAGES)
_define_native(
    "AvgPool3D",
    "Averages over windows of volumes by oneDNN.",
    _AVERAGES_3D,
    signature="value: T -> output: T",
)
_define_native(
    "AvgPool3DGrad", "Gradient of averages over windows of volumes, by oneDNN.", _AVERAGES_3D
)

for _version in ("", "V2", "V3"):
    _define_native(f"FusedBatchNorm{_version}", "Batch normalization by oneDNN.")
    _define_native(f"FusedBatchNormGrad{_version}", "Gradient of batch normalization, by oneDNN.")
_define_native("_FusedBatchNormEx", "Batch normalization, a sum, and an activation by oneDNN.")
_define_native(
    "_FusedConv2D",
    "Convolution by oneDNN, and what follows it.",
    f"{_FusedConv2D.attrs.replace('T: {', 'T: {bfloat16, ', 1)}, {CONSTANT}",
)
_define_native(
    "_FusedDepthwiseConv2dNative",
    "Depthwise convolution by oneDNN, and what follows it.",
    f"{_FusedDepthwiseConv2dNative.attrs}, {CONSTANT}",
)


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

    signature = "input: T -> output: T, workspace: uint8"

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
    attrs = f"{FLOATS} = float32, {_POOL}, {EXPLICIT}, {_WORKSPACE}"


class _MklNativeMaxPool3D(PoolWithWorkspace):
    """Maxima over windows of volumes by oneDNN."""

    ordinary = "MaxPool3D"
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
