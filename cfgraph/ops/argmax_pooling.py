"""Pooling by the greatest value that also tells where it lies, and its gradients."""

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
from cfgraph.ops.pooling import Pooling, check_same, first
from cfgraph.ops.writes import accumulated

_REAL = (
    "{float32, float64, int32, uint8, int16, int8, int64, bfloat16, uint16, float16, "
    "uint32, uint64}"
)
_WINDOW = "ksize: list(int) >= 4, strides: list(int) >= 4, "


class Argmax(Pooling, abstract=True):
    """Pooling that tells, by a flat index, where each greatest value lies."""

    @classmethod
    def batches(cls, xp: ModuleType, shape: Sequence[int]) -> Any:
        """What to add to an index within an image to make it one within the whole batch."""
        count, image = shape[0], int(np.prod(shape[1:]))
        return (xp.arange(count) * image).reshape((count, *(1,) * (len(shape) - 1)))


class MaxPoolWithArgmax(Argmax):
    """Greatest value of each window, and where it lies."""

    signature = "input: T -> output: T, argmax: Targmax"
    attrs = (
        _WINDOW + "Targmax: {int32, int64} = int64, padding: {'SAME', 'VALID'}, "
        f"include_batch_in_index: bool = false, T: {_REAL}"
    )
    compiled = False

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        window = cls.window(node)
        window.check_flat("MaxPoolWithArgmax")
        kind = node.attr("Targmax").numpy
        whole = node.attr("include_batch_in_index")

        def pool(x: Any) -> Any:
            fit = window.fit(x)
            best, where = first(xp, fit, x)
            places = np.indices(fit.window).reshape(len(fit.window), -1)
            index: Any = 0
            for d, size in enumerate(fit.sizes):
                start = xp.arange(fit.out[d]) * fit.slide.strides[d] - fit.pads[d][0]
                start = start.reshape((-1, *(1,) * (len(fit.sizes) - d)))
                index = index * size + start + xp.asarray(places[d])[where]
            index = index * x.shape[-1] + xp.arange(x.shape[-1])
            if whole:
                index = index + cls.batches(xp, x.shape)
            return best, index.astype(kind)

        return pool

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [cls.pooled(context, context.inputs[0], cls.window(context.node))] * 2

    @staticmethod
    def gradient(g: Adjoint, node: Node, dy: Output, dindex: None) -> Partials:
        return [alike(g, "MaxPoolGradWithArgmax", node, node.inputs[0], dy, node.output(1))]


class MaxPoolGradWithArgmax(Argmax):
    """Gradient of MaxPoolWithArgmax: each gradient is added where its index says."""

    signature = "input: T, grad: T, argmax: Targmax -> output: T"
    attrs = (
        _WINDOW + "padding: {'SAME', 'VALID'}, include_batch_in_index: bool = false, "
        f"Targmax: {{int32, int64}}, T: {_REAL}"
    )
    traceable = False

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        whole = node.attr("include_batch_in_index")

        def gradient(x: Any, dy: Any, index: Any) -> Any:
            check_same("argmax", index, dy.shape)
            where = index if whole else index + cls.batches(xp, x.shape)
            check_indices(where, x.size)
            none = xp.zeros(x.size, dtype=x.dtype)
            return accumulated(xp, none, where.ravel(), dy.ravel(), "add").reshape(x.shape)

        return gradient

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.inputs[0]]

    @staticmethod
    def gradient(g: Adjoint, node: Node, dx: Output) -> Partials:
        x, _, index = node.inputs
        return None, alike(g, "MaxPoolGradGradWithArgmax", node, x, dx, index), None


class MaxPoolGradGradWithArgmax(Argmax):
    """Gradient of MaxPoolGradWithArgmax with respect to the gradient it is given."""

    signature = "input: T, grad: T, argmax: Targmax -> output: T"
    attrs = MaxPoolGradWithArgmax.attrs
    traceable = False

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        whole = node.attr("include_batch_in_index")

        def second(x: Any, ddx: Any, index: Any) -> Any:
            check_same("grad", ddx, x.shape)
            where = index if whole else index + cls.batches(xp, x.shape)
            check_indices(where, x.size)
            return ddx.ravel()[where]

        return second

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [cls.pooled(context, context.inputs[0], cls.window(context.node))]

    @staticmethod
    def gradient(g: Adjoint, node: Node, dy: Output) -> Partials:
        x, _, index = node.inputs
        return None, alike(g, "MaxPoolGradWithArgmax", node, x, dy, index), None


def check_indices(where: Any, count: int) -> None:
    """Refuse indices that lie outside."""
    if where.size and (where.min() < 0 or where.max() >= count):
        message = f"invalid output index: argmax lies outside of [0, {count})"
        raise OpError(message)
