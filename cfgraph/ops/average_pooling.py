"""Pooling by the mean, and its gradient; what lies outside of the image does not count."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.adjoint import Adjoint, Partials, alike
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, OpError
from cfgraph.ops.pooling import Pooling, check_same
from cfgraph.ops.precision import widened
from cfgraph.ops.window import Fit, added

_FLAT = (
    "ksize: list(int) >= 4, strides: list(int) >= 4, padding: {'SAME', 'VALID'}, "
    "data_format: {'NHWC', 'NCHW'} = 'NHWC', T: {float16, bfloat16, float32, float64}"
)
_SOLID = (
    "ksize: list(int) >= 5, strides: list(int) >= 5, padding: {'SAME', 'VALID'}, "
    "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC', T: {float16, bfloat16, float32, float64}"
)


def counts(fit: Fit, dtype: Any) -> Any:
    """How many values each window sees."""
    inside = fit.pad(np, np.ones((1, *fit.sizes, 1), dtype=dtype))
    total = np.zeros((1, *fit.out, 1), dtype=dtype)
    for _, view in fit.views():
        total += inside[view]
    return total


class AveragePooling(Pooling, abstract=True):
    """The mean of what each window sees."""

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        window = cls.window(node)
        window.check_flat("AvgPooling")

        def pool(x: Any) -> Any:
            x = window.layout.channels_last(xp, x)
            fit = window.fit(x)
            padded = fit.pad(xp, x)
            total = xp.zeros((x.shape[0], *fit.out, x.shape[-1]), dtype=x.dtype)
            for _, view in fit.views():
                total = total + padded[view]
            return window.layout.restore(xp, total / xp.asarray(counts(fit, x.dtype)))

        return widened(pool, node.attr("T"))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [cls.pooled(context, context.inputs[0], cls.window(context.node))]


class AvgPool(AveragePooling):
    """Mean of each window of an image."""

    signature = "value: T -> output: T"
    attrs = _FLAT

    @staticmethod
    def gradient(g: Adjoint, node: Node, dy: Output) -> Partials:
        return [alike(g, "AvgPoolGrad", node, g.shape(node.inputs[0]), dy)]


class AvgPool3D(AveragePooling):
    """Mean of each window of a volume."""

    signature = "input: T -> output: T"
    attrs = _SOLID
    rank = 5

    @staticmethod
    def gradient(g: Adjoint, node: Node, dy: Output) -> Partials:
        return [alike(g, "AvgPool3DGrad", node, g.shape(node.inputs[0]), dy)]


class AveragePoolingGradient(Pooling, abstract=True):
    """Each window's gradient is shared by all that it sees."""

    host_inputs = (0,)
    constant_inputs = (0,)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        window = cls.window(node)
        window.check_flat("AvgPoolingGrad")
        layout = window.layout

        def gradient(sizes: Any, dy: Any) -> Any:
            if sizes.shape != (layout.rank,):
                message = f"orig_input_shape must hold {layout.rank} sizes: {list(sizes.shape)}"
                raise OpError(message)
            dy = layout.channels_last(xp, dy)
            shape = [int(n) for n in sizes]
            fit = window.slide.fit([shape[d] for d in layout.spatial], window.sizes)
            check_same("grad", dy, (shape[0], *fit.out, shape[layout.channel]))
            share = dy / xp.asarray(counts(fit, dy.dtype))
            padded = fit.pad(xp, xp.zeros((shape[0], *fit.sizes, dy.shape[-1]), dtype=dy.dtype))
            for _, view in fit.views():
                padded = added(padded, view, share)
            return layout.restore(xp, fit.crop(padded))

        return widened(gradient, node.attr("T"))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        known = context.shape_value(0)
        return [known if known.rank == cls.rank else Shape([None] * cls.rank)]


class AvgPoolGrad(AveragePoolingGradient):
    """Gradient of AvgPool."""

    signature = "orig_input_shape: int32, grad: T -> output: T"
    attrs = _FLAT

    @staticmethod
    def gradient(g: Adjoint, node: Node, dx: Output) -> Partials:
        return None, alike(g, "AvgPool", node, dx)


class AvgPool3DGrad(AveragePoolingGradient):
    """Gradient of AvgPool3D."""

    signature = "orig_input_shape: int32, grad: T -> output: T"
    attrs = _SOLID
    rank = 5

    @staticmethod
    def gradient(g: Adjoint, node: Node, dx: Output) -> Partials:
        return None, alike(g, "AvgPool3D", node, dx)
