"""Normalization of each value by its neighbours in the channels."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials, alike
from cfgraph.ops.op import Kernel, OpError
from cfgraph.ops.pointwise import SameShape
from cfgraph.ops.precision import widened

_ATTRS = (
    "depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5, "
    "T: {float16, bfloat16, float32} = float32"
)


def neighbours(xp: ModuleType, x: Any, radius: int) -> Any:
    """The sum of each value and its neighbours up to a distance, over the last dimension."""
    depth = x.shape[-1]
    radius = min(radius, max(depth - 1, 0))
    padded = xp.pad(x, ((0, 0),) * (x.ndim - 1) + ((radius, radius),))
    total = xp.zeros_like(x)
    for shift in range(2 * radius + 1):
        total = total + padded[..., shift : shift + depth]
    return total


class LRN(SameShape):
    """Divide by a power of the sum of the squares of the neighbouring channels."""

    signature = "input: T -> output: T"
    attrs = _ATTRS

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        radius, bias, alpha, beta = parameters(node)

        def normalize(x: Any) -> Any:
            check_image(x)
            return x * (bias + alpha * neighbours(xp, xp.square(x), radius)) ** -beta

        return widened(normalize, node.attr("T"))

    @staticmethod
    def gradient(g: Adjoint, node: Node, dy: Output) -> Partials:
        return [alike(g, "LRNGrad", node, dy, node.inputs[0], node.output(0))]


class LRNGrad(SameShape):
    """Gradient of LRN."""

    signature = "input_grads: T, input_image: T, output_image: T -> output: T"
    attrs = _ATTRS

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        radius, bias, alpha, beta = parameters(node)

        def gradient(dy: Any, x: Any, y: Any) -> Any:
            check_image(x)
            if dy.shape != x.shape or y.shape != x.shape:
                message = "input_grads, input_image, and out_image should have the same shape"
                raise OpError(message)
            norm = bias + alpha * neighbours(xp, xp.square(x), radius)
            shared = neighbours(xp, dy * y / norm, radius)
            return dy * norm**-beta - (2 * alpha * beta) * x * shared

        return widened(gradient, node.attr("T"))


def parameters(node: Node) -> tuple[int, float, float, float]:
    """Radius, bias, alpha and beta."""
    return node.attr("depth_radius"), node.attr("bias"), node.attr("alpha"), node.attr("beta")


def check_image(x: Any) -> None:
    """Refuse what has not four dimensions."""
    if x.ndim != 4:
        message = "in must be 4-dimensional"
        raise OpError(message)
