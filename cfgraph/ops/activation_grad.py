"""Gradients of activations, each from its features or from its result."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.activation import SCALE, SCALE_ALPHA
from cfgraph.ops.adjoint import Adjoint, Partials
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, OpError
from cfgraph.ops.pointwise import SameShape
from cfgraph.ops.pointwise_gradients import over
from cfgraph.ops.precision import widened
from cfgraph.ops.type_sets import FLOATS, REAL, one_of


class ActivationGrad(SameShape, abstract=True):
    """The gradient of an activation, from its features."""

    signature = "gradients: T, features: T -> backprops: T"
    attrs = one_of(FLOATS)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        kernel = cls.formula(node, xp)

        def checked(gradients: Any, features: Any) -> Any:
            if gradients.shape != features.shape:
                message = (
                    "Inputs to Operation must have the same number of elements: "
                    f"{list(gradients.shape)} against {list(features.shape)}"
                )
                raise OpError(message)
            return kernel(gradients, features)

        return checked

    @classmethod
    def formula(cls, node: Node, xp: ModuleType) -> Kernel:
        """The kernel, once shapes are checked."""
        kernel: Any = cls.kernel
        return widened(lambda dy, x: kernel(xp, dy, x), node.attr("T"))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.inputs[0].merge(context.inputs[1])]

    @classmethod
    def gradient(cls, g: Adjoint, node: Node, dz: Output) -> Partials:
        return lambda: cls.again(g, node, dz), lambda: cls.bend(g, dz, *node.inputs)

    @classmethod
    def again(cls, g: Adjoint, node: Node, dz: Output) -> Output:
        """The gradient by the gradients, in which the op is linear."""
        made: Output = getattr(g, cls.name)(dz, node.inputs[1])
        return made

    @staticmethod
    def bend(g: Adjoint, dz: Output, dy: Output, x: Output) -> Output | None:
        """The gradient by the features; none where the activation is made of straight lines."""
        return None


def _kept(xp: ModuleType, gradients: Any, where: Any) -> Any:
    """The gradients in some places, elsewhere zero times them: NaN stays NaN."""
    if xp is np:
        return gradients * where
    # compilers take a product with a mask for a choice, and would lose the NaN
    return xp.where(where, gradients, gradients * gradients.dtype.type(0))


class ReluGrad(ActivationGrad):
    """Gradient of Relu."""

    attrs = one_of(REAL)

    @staticmethod
    def kernel(xp: ModuleType, gradients: Any, features: Any) -> Any:
        return _kept(xp, gradients, features > 0)


class Relu6Grad(ActivationGrad):
    """Gradient of Relu6."""

    attrs = one_of(REAL)

    @staticmethod
    def kernel(xp: ModuleType, gradients: Any, features: Any) -> Any:
        return _kept(xp, gradients, (features > 0) & (features < 6))


class LeakyReluGrad(ActivationGrad):
    """Gradient of LeakyRelu."""

    attrs = f"alpha: float = 0.2, {one_of(FLOATS)} = float32"

    @classmethod
    def formula(cls, node: Node, xp: ModuleType) -> Kernel:
        alpha = node.attr("alpha")
        return widened(lambda dy, x: xp.where(x > 0, dy, alpha * dy), node.attr("T"))

    @classmethod
    def again(cls, g: Adjoint, node: Node, dz: Output) -> Output:
        return g.LeakyReluGrad(dz, node.inputs[1], alpha=node.attr("alpha"))


def _bend_below_zero(g: Adjoint, dz: Output, dy: Output, x: Output) -> Output:
    return over(g, g.Mul(dz, dy), g.Less(x, 0))


class EluGrad(ActivationGrad):
    """Gradient of Elu, from its result."""

    signature = "gradients: T, outputs: T -> backprops: T"

    @staticmethod
    def kernel(xp: ModuleType, gradients: Any, outputs: Any) -> Any:
        return xp.where(outputs < 0, (outputs + 1) * gradients, gradients)

    bend = staticmethod(_bend_below_zero)


class SeluGrad(ActivationGrad):
    """Gradient of Selu, from its result."""

    signature = "gradients: T, outputs: T -> backprops: T"

    @staticmethod
    def kernel(xp: ModuleType, gradients: Any, outputs: Any) -> Any:
        return gradients * xp.where(outputs < 0, outputs + SCALE_ALPHA, SCALE)

    bend = staticmethod(_bend_below_zero)


class SoftplusGrad(ActivationGrad):
    """Gradient of Softplus."""

    @classmethod
    def formula(cls, node: Node, xp: ModuleType) -> Kernel:
        one = node.attr("T").numpy.type(1)
        # half-width floats overflow here as in TensorFlow, so they are not widened
        return lambda dy, x: dy / (xp.exp(-x) + one)

    @staticmethod
    def bend(g: Adjoint, dz: Output, dy: Output, x: Output) -> Output:
        width = g.AddV2(g.AddV2(g.Exp(g.Neg(x)), 2), g.Exp(x))
        return g.RealDiv(g.Mul(dz, dy), width)


class SoftsignGrad(ActivationGrad):
    """Gradient of Softsign."""

    @staticmethod
    def kernel(xp: ModuleType, gradients: Any, features: Any) -> Any:
        return gradients / xp.square(1 + xp.abs(features))

    @staticmethod
    def bend(g: Adjoint, dz: Output, dy: Output, x: Output) -> Output:
        along = g.Mul(g.SoftsignGrad(g.Mul(dz, dy), x), g.Mul(g.Sign(x), -2))
        return g.RealDiv(along, g.AddV2(g.Abs(x), 1))
