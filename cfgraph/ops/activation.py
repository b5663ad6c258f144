"""Activations of neural networks."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials
from cfgraph.ops.op import Kernel
from cfgraph.ops.pointwise import SameShape
from cfgraph.ops.pointwise_gradients import by_input, by_output
from cfgraph.ops.precision import widened
from cfgraph.ops.type_sets import COMPLEX, FLOATS, REAL, one_of

# Klambauer et al. 2017, Self-Normalizing Neural Networks
SCALE: Final = 1.0507009873554804934193349852946
SCALE_ALPHA: Final = 1.7580993408473768599402175208123


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

    gradient = by_output(lambda g, dy, y: g.SigmoidGrad(y, dy))


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

    gradient = by_input(lambda g, dy, x: g.SoftplusGrad(dy, x))


class Softsign(Activation):
    """x / (1 + |x|)."""

    @staticmethod
    def kernel(xp: ModuleType, x: Any) -> Any:
        return x / (1 + xp.abs(x))

    gradient = by_input(lambda g, dy, x: g.SoftsignGrad(dy, x))


class Elu(Activation):
    """x, or exp(x) - 1 where it is negative."""

    @staticmethod
    def kernel(xp: ModuleType, x: Any) -> Any:
        return xp.where(x < 0, xp.expm1(x), x)

    gradient = by_output(lambda g, dy, y: g.EluGrad(dy, y))


class Selu(Activation):
    """Elu, scaled so that layers keep their variance."""

    @staticmethod
    def kernel(xp: ModuleType, x: Any) -> Any:
        return xp.where(x < 0, SCALE_ALPHA * xp.expm1(x), SCALE * x)

    gradient = by_output(lambda g, dy, y: g.SeluGrad(dy, y))


class Relu(Activation):
    """x, or 0 where it is negative."""

    attrs = one_of(REAL, "qint8")

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        maximum, zero = xp.maximum, node.attr("T").numpy.type(0)
        return lambda x: maximum(x, zero)

    gradient = by_output(lambda g, dy, y: g.ReluGrad(dy, y))


class Relu6(Activation):
    """x, at least 0 and at most 6."""

    attrs = one_of(REAL)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        kind = node.attr("T").numpy.type
        zero, six = kind(0), kind(6)
        return lambda x: xp.minimum(xp.maximum(x, zero), six)

    gradient = by_output(lambda g, dy, y: g.Relu6Grad(dy, y))


class LeakyRelu(Activation):
    """x, or alpha times x where it is negative."""

    attrs = f"alpha: float = 0.2, {one_of(FLOATS)} = float32"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        alpha = node.attr("alpha")
        return widened(lambda x: xp.where(x > 0, x, alpha * x), node.attr("T"))

    @staticmethod
    def gradient(g: Adjoint, node: Node, dy: Output) -> Partials:
        return [g.LeakyReluGrad(dy, node.inputs[0], alpha=node.attr("alpha"))]
