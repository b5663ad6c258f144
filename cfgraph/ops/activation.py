"""Activations of neural networks, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, OpError
from cfgraph.ops.pointwise import SameShape
from cfgraph.ops.precision import widened
from cfgraph.ops.type_sets import COMPLEX, FLOATS, REAL, one_of

# Klambauer et al. 2017, Self-Normalizing Neural Networks
_SCALE: Final = 1.0507009873554804934193349852946
_SCALE_ALPHA: Final = 1.7580993408473768599402175208123


class Activation(SameShape, abstract=True):
    """A nonlinear function of each feature."""

    signature = "features: T -> activations: T"
    attrs = one_of(FLOATS)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return widened(super().bind(node, xp), node.attr("T"))


class Sigmoid(Activation):
    """1 / (1 + exp(-x))."""

    signature = "x: T -> y: T"
    attrs = one_of(FLOATS, COMPLEX)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if xp is np and not node.attr("T").is_complex:
            return widened(_sigmoid, node.attr("T"))
        return super().bind(node, xp)

    @staticmethod
    def kernel(xp: ModuleType, x: Any) -> Any:
        return xp.reciprocal(1 + xp.exp(-x))


def _sigmoid(x: Any) -> Any:
    result = -x
    if not isinstance(result, np.ndarray):
        return 1 / (1 + np.exp(result))
    np.exp(result, out=result)
    result += 1
    return np.reciprocal(result, out=result)


class Softplus(Activation):
    """log(1 + exp(x))."""

    @staticmethod
    def kernel(xp: ModuleType, x: Any) -> Any:
        return xp.logaddexp(x, x.dtype.type(0))


class Softsign(Activation):
    """x / (1 + |x|)."""

    @staticmethod
    def kernel(xp: ModuleType, x: Any) -> Any:
        return x / (1 + xp.abs(x))


class Elu(Activation):
    """x, or exp(x) - 1 where it is negative."""

    @staticmethod
    def kernel(xp: ModuleType, x: Any) -> Any:
        return xp.where(x < 0, xp.expm1(x), x)


class Selu(Activation):
    """Elu, scaled so that layers keep their variance."""

    @staticmethod
    def kernel(xp: ModuleType, x: Any) -> Any:
        return xp.where(x < 0, _SCALE_ALPHA * xp.expm1(x), _SCALE * x)


class Relu(Activation):
    """x, or 0 where it is negative."""

    attrs = one_of(REAL, "qint8")

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        maximum, zero = xp.maximum, node.attr("T").numpy.type(0)
        return lambda x: maximum(x, zero)


class Relu6(Activation):
    """x, at least 0 and at most 6."""

    attrs = one_of(REAL)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        kind = node.attr("T").numpy.type
        zero, six = kind(0), kind(6)
        return lambda x: xp.minimum(xp.maximum(x, zero), six)


class LeakyRelu(Activation):
    """x, or alpha times x where it is negative."""

    attrs = f"alpha: float = 0.2, {one_of(FLOATS)} = float32"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        alpha = node.attr("alpha")
        return widened(lambda x: xp.where(x > 0, x, alpha * x), node.attr("T"))


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


class EluGrad(ActivationGrad):
    """Gradient of Elu, from its result."""

    signature = "gradients: T, outputs: T -> backprops: T"

    @staticmethod
    def kernel(xp: ModuleType, gradients: Any, outputs: Any) -> Any:
        return xp.where(outputs < 0, (outputs + 1) * gradients, gradients)


class SeluGrad(ActivationGrad):
    """Gradient of Selu, from its result."""

    signature = "gradients: T, outputs: T -> backprops: T"

    @staticmethod
    def kernel(xp: ModuleType, gradients: Any, outputs: Any) -> Any:
        return gradients * xp.where(outputs < 0, outputs + _SCALE_ALPHA, _SCALE)


class SoftplusGrad(ActivationGrad):
    """Gradient of Softplus."""

    @classmethod
    def formula(cls, node: Node, xp: ModuleType) -> Kernel:
        one = node.attr("T").numpy.type(1)
        # half-width floats overflow here as in TensorFlow, so they are not widened
        return lambda dy, x: dy / (xp.exp(-x) + one)


class SoftsignGrad(ActivationGrad):
    """Gradient of Softsign."""

    @staticmethod
    def kernel(xp: ModuleType, gradients: Any, features: Any) -> Any:
        return gradients / xp.square(1 + xp.abs(features))
