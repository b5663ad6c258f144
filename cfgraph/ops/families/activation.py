"""Activation functions of neural networks and their gradient ops."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir.dtypes import bfloat16, float16
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.kernels.array_namespace import (
    computed_in_float32,
    rounds_each_step,
)
from cfgraph.ops.opdef.batching import elementwise
from cfgraph.ops.opdef.facts import AlgebraicFacts, Aliasing
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    gradient_from_input,
    gradient_from_output,
    select_gradient,
)
from cfgraph.ops.opdef.op import FLOATS, REAL, Kernel, OpError, SameShape, one_of

# Klambauer et al. 2017, Self-Normalizing Neural Networks
SCALE: Final = 1.0507009873554804934193349852946
SCALE_ALPHA: Final = 1.7580993408473768599402175208123


class Activation(SameShape, abstract=True):
    """An elementwise nonlinearity."""

    signature = "features: T -> activations: T"
    attrs = one_of(FLOATS)
    adapter = rounds_each_step


class Softplus(Activation):
    """Smooth approximation of Relu: log(1 + exp(x))."""

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T")
        is_half = xp is np and dtype in (float16, bfloat16)
        return partial(_half_softplus, _HALF_EPSILON[dtype]) if is_half else super().bind(node, xp)

    @staticmethod
    def kernel(xp: ModuleType, x: Any) -> Any:
        if xp is not np:
            return xp.logaddexp(x, x.dtype.type(0))
        return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))

    gradient = gradient_from_input(lambda g, dy, x: g.SoftplusGrad(dy, x))


# of Eigen, which is not the difference to the next float16
_HALF_EPSILON: Final = {float16: 2.0**-13, bfloat16: 2.0**-7}


def _half_softplus(epsilon: float, x: Any) -> Any:
    """Softplus of half-precision floats, in the steps of TensorFlow's `softplus_op.h`."""
    kind = x.dtype.type
    threshold = kind(np.log(epsilon)) + kind(2)
    raised = np.exp(x)
    return np.where(x > -threshold, x, np.where(x < threshold, raised, np.log1p(raised)))[()]


class Softsign(Activation):
    """Softsign function x / (1 + |x|)."""

    kernel = staticmethod(lambda xp, x: x / (1 + xp.abs(x)))
    gradient = gradient_from_input(lambda g, dy, x: g.SoftsignGrad(dy, x))


class Elu(Activation):
    """Exponential linear unit: x, or exp(x) - 1 if x is negative."""

    @staticmethod
    def kernel(xp: ModuleType, x: Any) -> Any:
        if xp is not np:
            return xp.where(x < 0, xp.expm1(x), x)
        # a selection by random signs takes ten times as long as a sum
        return np.maximum(x, 0) + _exp_minus_one(np.minimum(x, 0))

    gradient = gradient_from_output(lambda g, dy, y: g.EluGrad(dy, y))


def _exp_minus_one(x: Any) -> Any:
    # TensorFlow subtracts, which shows in half precision only
    return np.exp(x) - x.dtype.type(1) if x.dtype.itemsize == 2 else np.expm1(x)


class Selu(Activation):
    """Scaled exponential linear unit: Elu with scales that preserve the variance of activations."""

    @staticmethod
    def kernel(xp: ModuleType, x: Any) -> Any:
        if xp is not np:
            return xp.where(x < 0, SCALE_ALPHA * xp.expm1(x), SCALE * x)
        kind = x.dtype.type
        negative = kind(SCALE_ALPHA) * _exp_minus_one(np.minimum(x, kind(0)))
        return kind(SCALE) * np.maximum(x, kind(0)) + negative

    gradient = gradient_from_output(lambda g, dy, y: g.SeluGrad(dy, y))


class Relu(Activation):
    """Rectified linear unit: max(x, 0)."""

    algebra = AlgebraicFacts(idempotent=True)
    aliasing = Aliasing(reuses_input=True)
    attrs = one_of(REAL, "qint8")

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        maximum, zero = xp.maximum, node.attr("T").numpy.type(0)
        return lambda x, out=None: maximum(x, zero) if out is None else maximum(x, zero, out=out)

    gradient = gradient_from_output(lambda g, dy, y: g.ReluGrad(dy, y))


class Relu6(Activation):
    """Relu capped at 6: min(max(x, 0), 6)."""

    algebra = AlgebraicFacts(idempotent=True)
    aliasing = Aliasing(reuses_input=True)
    attrs = one_of(REAL)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        kind = node.attr("T").numpy.type
        zero, six = kind(0), kind(6)

        def clip(x: Any, out: Any = None) -> Any:
            positive = xp.maximum(x, zero) if out is None else xp.maximum(x, zero, out=out)
            if isinstance(positive, np.ndarray):
                return np.minimum(positive, six, out=positive)
            return xp.minimum(positive, six)

        return clip

    gradient = gradient_from_output(lambda g, dy, y: g.Relu6Grad(dy, y))


class LeakyRelu(Activation):
    """Leaky rectified linear unit: x, or alpha * x if x is negative."""

    attrs = f"alpha: float = 0.2, {one_of(FLOATS)} = float32"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        alpha = node.attr("alpha")
        if 0 < alpha <= 1:
            return computed_in_float32(lambda x: xp.maximum(x, alpha * x), node.attr("T"))
        return computed_in_float32(lambda x: xp.where(x > 0, x, alpha * x), node.attr("T"))

    gradient = staticmethod(
        lambda g, node, dy: [g.LeakyReluGrad(dy, node.inputs[0], alpha=node.attr("alpha"))]
    )


class ActivationGrad(SameShape, abstract=True):
    """Gradient of an activation, computed from its features or outputs."""

    signature = "gradients: T, features: T -> backprops: T"
    attrs = one_of(FLOATS)
    batching = staticmethod(elementwise)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        kernel = cls.formula(node, xp)

        def checked(gradients: Any, features: Any) -> Any:
            if gradients.shape != features.shape:
                raise OpError(
                    "Inputs to Operation must have the same number of elements: "
                    f"{list(gradients.shape)} against {list(features.shape)}"
                )
            return kernel(gradients, features)

        return checked

    @classmethod
    def formula(cls, node: Node, xp: ModuleType) -> Kernel:
        """The kernel without the shape check."""
        kernel: Any = cls.kernel
        return rounds_each_step(lambda dy, x: kernel(xp, dy, x), node, xp)

    shape = staticmethod(lambda context: [context.inputs[0].merge(context.inputs[1])])

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        return (
            lambda: cls.gradients_gradient(g, node, dz),
            lambda: cls.features_gradient(g, dz, *node.inputs),
        )

    @classmethod
    def gradients_gradient(cls, g: GradientBuilder, node: Node, dz: Output) -> Output:
        """Gradient with respect to `gradients`, in which the op is linear."""
        gradient: Output = getattr(g, cls.name)(dz, node.inputs[1])
        return gradient

    @staticmethod
    def features_gradient(g: GradientBuilder, dz: Output, dy: Output, x: Output) -> Output | None:
        """Gradient with respect to `features`, or None if the activation is piecewise linear."""
        return None


def _masked_gradients(xp: ModuleType, gradients: Any, where: Any) -> Any:
    """Gradients multiplied by a mask; NaN in a masked-out gradient remains NaN."""
    if xp is np:
        return gradients * where
    # a compiler turns a product with a mask into a select, which would drop the NaN
    return xp.where(where, gradients, gradients * gradients.dtype.type(0))


class ReluGrad(ActivationGrad):
    """Gradient of Relu."""

    attrs = one_of(REAL)

    @staticmethod
    def kernel(xp: ModuleType, gradients: Any, features: Any) -> Any:
        return _masked_gradients(xp, gradients, features > 0)


class Relu6Grad(ActivationGrad):
    """Gradient of Relu6."""

    attrs = one_of(REAL)

    @staticmethod
    def kernel(xp: ModuleType, gradients: Any, features: Any) -> Any:
        return _masked_gradients(xp, gradients, (features > 0) & (features < 6))


class LeakyReluGrad(ActivationGrad):
    """Gradient of LeakyRelu."""

    attrs = f"alpha: float = 0.2, {one_of(FLOATS)} = float32"

    @classmethod
    def formula(cls, node: Node, xp: ModuleType) -> Kernel:
        alpha = node.attr("alpha")
        return computed_in_float32(lambda dy, x: xp.where(x > 0, dy, alpha * dy), node.attr("T"))

    @classmethod
    def gradients_gradient(cls, g: GradientBuilder, node: Node, dz: Output) -> Output:
        return g.LeakyReluGrad(dz, node.inputs[1], alpha=node.attr("alpha"))


def _second_gradient_below_zero(g: GradientBuilder, dz: Output, dy: Output, x: Output) -> Output:
    return select_gradient(g, g.Mul(dz, dy), g.Less(x, 0))


class EluGrad(ActivationGrad):
    """Gradient of Elu, computed from its output."""

    signature = "gradients: T, outputs: T -> backprops: T"

    @staticmethod
    def kernel(xp: ModuleType, gradients: Any, outputs: Any) -> Any:
        return xp.where(outputs < 0, (outputs + 1) * gradients, gradients)

    features_gradient = staticmethod(_second_gradient_below_zero)


class SeluGrad(ActivationGrad):
    """Gradient of Selu, computed from its output."""

    signature = "gradients: T, outputs: T -> backprops: T"

    @staticmethod
    def kernel(xp: ModuleType, gradients: Any, outputs: Any) -> Any:
        scale, scale_alpha = (outputs.dtype.type(value) for value in (SCALE, SCALE_ALPHA))
        return gradients * xp.where(outputs < 0, outputs + scale_alpha, scale)

    features_gradient = staticmethod(_second_gradient_below_zero)


class SoftplusGrad(ActivationGrad):
    """Gradient of Softplus."""

    @classmethod
    def formula(cls, node: Node, xp: ModuleType) -> Kernel:
        one = node.attr("T").numpy.type(1)
        # float16 and bfloat16 overflow as in TensorFlow, so they are not widened
        return lambda dy, x: dy / (xp.exp(-x) + one)

    @staticmethod
    def features_gradient(g: GradientBuilder, dz: Output, dy: Output, x: Output) -> Output:
        width = g.AddV2(g.AddV2(g.Exp(g.Neg(x)), 2), g.Exp(x))
        return g.RealDiv(g.Mul(dz, dy), width)


class SoftsignGrad(ActivationGrad):
    """Gradient of Softsign."""

    @staticmethod
    def kernel(xp: ModuleType, gradients: Any, features: Any) -> Any:
        return gradients / xp.square(1 + xp.abs(features))

    @staticmethod
    def features_gradient(g: GradientBuilder, dz: Output, dy: Output, x: Output) -> Output:
        along = g.Mul(g.SoftsignGrad(g.Mul(dz, dy), x), g.Mul(g.Sign(x), -2))
        return g.RealDiv(along, g.AddV2(g.Abs(x), 1))
