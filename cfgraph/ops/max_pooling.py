"""Pooling by the greatest value, and its gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.adjoint import Adjoint, Partials, alike
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel
from cfgraph.ops.pooling import Pooling, Window, check_same, first
from cfgraph.ops.type_sets import INTEGERS
from cfgraph.ops.window import Fit, added

_REAL = (
    "{float32, float64, int32, uint8, int16, int8, int64, bfloat16, uint16, float16, "
    "uint32, uint64}"
)
_WINDOW = "ksize: list(int) >= 4, strides: list(int) >= 4, "
_EXPLICIT = "padding: {'SAME', 'VALID', 'EXPLICIT'}, explicit_paddings: list(int) = [], "
_FORMAT = "data_format: {'NHWC', 'NCHW'} = 'NHWC', "
_POOLED = (
    "T: {float16, bfloat16, float32, float64, int32, int64, uint8, int16, int8, uint16, qint8}"
    " = float32, "
)
_SOLID = (
    "ksize: list(int) >= 5, strides: list(int) >= 5, padding: {'SAME', 'VALID'}, "
    "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC', "
)


class MaxPooling(Pooling, abstract=True):
    """The greatest value that each window sees."""

    way_back: ClassVar[str] = "MaxPoolGrad"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        window = cls.window(node)
        return lambda x: greatest(xp, window, x)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        if context.node.attr("data_format") == b"NCHW_VECT_C":
            return [UNKNOWN_SHAPE]
        return [cls.pooled(context, context.inputs[0], cls.window(context.node))]

    @classmethod
    def gradient(cls, g: Adjoint, node: Node, dy: Output) -> Partials:
        x, *sizes = node.inputs
        dx = alike(g, cls.way_back, node, x, node.output(0), dy, *sizes)
        return [dx, *[None] * len(sizes)]


def greatest(xp: ModuleType, window: Window, x: Any) -> Any:
    """The greatest value of each window; a NaN is passed over."""
    layout = window.layout
    x = layout.channels_last(xp, x)
    fit, low = window.fit(x), lowest(x.dtype)
    if window.depth != 1:
        window.check_depth(x.shape[-1])
        x = xp.max(x.reshape((*x.shape[:-1], -1, window.depth)), axis=-1)
    padded = fit.pad(xp, x, low)
    best = xp.full((x.shape[0], *fit.out, x.shape[-1]), low, dtype=x.dtype)
    for _, view in fit.views():
        best = xp.fmax(best, padded[view])
    return layout.restore(xp, best)


def lowest(dtype: Any) -> Any:
    """The least finite value of a type."""
    if np.issubdtype(dtype, np.integer):
        return np.iinfo(dtype).min
    import ml_dtypes

    limits: Any = ml_dtypes.finfo
    return limits(dtype).min


class MaxPool(MaxPooling):
    """Greatest value of each window of an image."""

    signature = "input: T -> output: T"
    attrs = _POOLED + _WINDOW + _EXPLICIT + "data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'"


class MaxPool3D(MaxPooling):
    """Greatest value of each window of a volume."""

    signature = "input: T -> output: T"
    way_back = "MaxPool3DGrad"
    attrs = _SOLID + "T: {float16, bfloat16, float32}"
    rank = 5


class MaxPoolV2(MaxPooling):
    """Greatest value of each window of an image, the window given by inputs."""

    signature = "input: T, ksize: int32, strides: int32 -> output: T"
    way_back = "MaxPoolGradV2"
    attrs = (
        _POOLED + "padding: {'SAME', 'VALID'}, "
        "data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'"
    )
    host_inputs = (1, 2)
    constant_inputs = (1, 2)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return lambda x, sizes, strides: greatest(xp, cls.window(node, sizes, strides), x)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        sizes, strides = context.value(1), context.value(2)
        if sizes is None or strides is None:
            return [Shape([None] * 4)]
        return [cls.pooled(context, context.inputs[0], cls.window(context.node, sizes, strides))]


class MaxPoolingGradient(Pooling, abstract=True):
    """Each window's gradient goes to the first of its greatest values."""

    given: ClassVar[bool] = False
    adjoint: ClassVar[str]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        fixed = None if cls.given else cls.window(node)

        def gradient(x: Any, y: Any, dy: Any, *sizes: Any) -> Any:
            window = fixed or cls.window(node, *sizes)
            window.check_flat("MaxPoolingGrad")
            x, y, dy = (window.layout.channels_last(xp, v) for v in (x, y, dy))
            fit = window.fit(x)
            check_same("orig_output", y, (x.shape[0], *fit.out, x.shape[-1]))
            check_same("grad", dy, y.shape)
            padded = fit.pad(xp, xp.zeros(x.shape, dtype=dy.dtype))
            for view, wins in cls.winners(xp, fit, x, y):
                padded = added(padded, view, xp.where(wins, dy, xp.zeros((), dtype=dy.dtype)))
            return window.layout.restore(xp, fit.crop(padded))

        return gradient

    @classmethod
    def winners(cls, xp: ModuleType, fit: Fit, x: Any, y: Any) -> Iterator[tuple[Any, Any]]:
        """For each place in the window what it meets, and which windows have their peak there."""
        _, where = first(xp, fit, x)
        for place, (_, view) in enumerate(fit.views()):
            yield view, where == place

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.inputs[0]]

    @classmethod
    def gradient(cls, g: Adjoint, node: Node, dz: Output) -> Partials:
        return adjoint(g, cls.adjoint, node, dz)


def adjoint(g: Adjoint, op: str, node: Node, dz: Output) -> Partials:
    """The gradient of what is linear in its third input; the places of the peaks stay."""
    x, y, _, *sizes = node.inputs
    return None, None, alike(g, op, node, x, y, dz, *sizes), *[None] * len(sizes)


class MaxPoolGrad(MaxPoolingGradient):
    """Gradient of MaxPool."""

    signature = "orig_input: T, orig_output: T, grad: T -> output: T"
    adjoint = "MaxPoolGradGrad"
    attrs = _WINDOW + _EXPLICIT + _FORMAT + f"T: {_REAL} = float32"


class MaxPoolGradV2(MaxPoolingGradient):
    """Gradient of MaxPoolV2."""

    signature = "orig_input: T, orig_output: T, grad: T, ksize: int32, strides: int32 -> output: T"
    adjoint = "MaxPoolGradGradV2"
    attrs = "padding: {'SAME', 'VALID'}, " + _FORMAT + f"T: {_REAL} = float32"
    given = True
    host_inputs = (3, 4)
    constant_inputs = (3, 4)


class MaxPool3DGrad(MaxPoolingGradient):
    """Gradient of MaxPool3D; all that are equal to the greatest value get the whole of it."""

    signature = "orig_input: TInput, orig_output: TInput, grad: T -> output: T"
    adjoint = "MaxPool3DGradGrad"
    attrs = (
        _SOLID + "T: {float16, bfloat16, float32} = float32, "
        "TInput: {float16, bfloat16, float32} = float32"
    )
    rank = 5

    @classmethod
    def winners(cls, xp: ModuleType, fit: Fit, x: Any, y: Any) -> Iterator[tuple[Any, Any]]:
        padded = fit.pad(xp, x)
        for _, view in fit.views():
            yield view, padded[view] == y


class MaxPoolingSecondGradient(Pooling, abstract=True):
    """Each window takes from the gradient what lies at its greatest value."""

    given: ClassVar[bool] = False
    adjoint: ClassVar[str]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        fixed = None if cls.given else cls.window(node)

        def second(x: Any, y: Any, ddx: Any, *sizes: Any) -> Any:
            window = fixed or cls.window(node, *sizes)
            window.check_flat("MaxPoolingGradGrad")
            x, y, ddx = (window.layout.channels_last(xp, v) for v in (x, y, ddx))
            fit = window.fit(x)
            check_same("orig_output", y, (x.shape[0], *fit.out, x.shape[-1]))
            check_same("grad", ddx, x.shape)
            inside = fit.pad(xp, xp.ones((1, *fit.sizes, 1), dtype=bool), value=False)
            x, ddx = fit.pad(xp, x), fit.pad(xp, ddx)
            taken, result = xp.zeros(y.shape, dtype=bool), xp.zeros(y.shape, dtype=ddx.dtype)
            for _, view in fit.views():
                here = (x[view] == y) & inside[view] & ~taken
                result, taken = xp.where(here, ddx[view], result), taken | here
            return window.layout.restore(xp, result)

        return second

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.inputs[1]]

    @classmethod
    def gradient(cls, g: Adjoint, node: Node, dz: Output) -> Partials:
        return adjoint(g, cls.adjoint, node, dz)


class MaxPoolGradGrad(MaxPoolingSecondGradient):
    """Gradient of MaxPoolGrad with respect to the gradient it is given."""

    signature = "orig_input: T, orig_output: T, grad: T -> output: T"
    adjoint = "MaxPoolGrad"
    attrs = _WINDOW + "padding: {'SAME', 'VALID'}, " + _FORMAT + f"T: {_REAL}"
    uncompiled_types = f"{INTEGERS}, float16, bfloat16, float64"


class MaxPoolGradGradV2(MaxPoolingSecondGradient):
    """Gradient of MaxPoolGradV2 with respect to the gradient it is given."""

    signature = "orig_input: T, orig_output: T, grad: T, ksize: int32, strides: int32 -> output: T"
    adjoint = "MaxPoolGradV2"
    attrs = "padding: {'SAME', 'VALID'}, " + _FORMAT + f"T: {_REAL}"
    given = True
    host_inputs = (3, 4)
    constant_inputs = (3, 4)
    uncompiled_types = f"{INTEGERS}, float16, bfloat16, float64"


class MaxPool3DGradGrad(MaxPoolingSecondGradient):
    """Gradient of MaxPool3DGrad with respect to the gradient it is given."""

    signature = "orig_input: T, orig_output: T, grad: T -> output: T"
    adjoint = "MaxPool3DGrad"
    attrs = _SOLID + f"T: {_REAL}"
    uncompiled_types = f"{INTEGERS}, float16, bfloat16, float64"
    rank = 5
