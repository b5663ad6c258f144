"""The rules of optimizers: gradient descent, momentum, Adam and RMSProp with their kin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cfgraph.ops.training import ALL, DENSE, Rule, forms

Options = Mapping[str, Any]


@forms(*DENSE)
class GradientDescent(Rule, abstract=True):
    """Gradient descent."""

    inputs = "alpha delta"

    @staticmethod
    def update(options: Options, var: Any, alpha: Any, delta: Any) -> Sequence[Any]:
        return (var - delta * alpha,)


@forms(*ALL)
class Momentum(Rule, abstract=True):
    """Gradient descent with momentum."""

    slots = "accum"
    inputs = "lr grad momentum"
    options = "use_nesterov: bool = false"

    @staticmethod
    def update(
        options: Options, var: Any, accum: Any, lr: Any, grad: Any, momentum: Any
    ) -> Sequence[Any]:
        accum = accum * momentum + grad
        if options["use_nesterov"]:
            return var - (grad * lr + accum * momentum * lr), accum
        return var - accum * lr, accum


@forms("ResourceApply", "ResourceSparseApply")
class KerasMomentum(Rule, abstract=True):
    """Gradient descent with momentum, the learning rate inside of the accumulator."""

    slots = "accum"
    inputs = "lr grad momentum"
    options = "use_nesterov: bool = false"

    @staticmethod
    def update(
        options: Options, var: Any, accum: Any, lr: Any, grad: Any, momentum: Any
    ) -> Sequence[Any]:
        accum = accum * momentum - grad * lr
        if options["use_nesterov"]:
            return var + (accum * momentum - grad * lr), accum
        return var + accum, accum


@forms(*DENSE)
class Adam(Rule, abstract=True):
    """Adam: steps by the mean over the root of the mean square of the gradients."""

    slots = "m v"
    inputs = "beta1_power beta2_power lr beta1 beta2 epsilon grad"
    options = "use_nesterov: bool = false"

    @staticmethod
    def update(
        options: Options,
        var: Any,
        m: Any,
        v: Any,
        beta1_power: Any,
        beta2_power: Any,
        lr: Any,
        beta1: Any,
        beta2: Any,
        epsilon: Any,
        grad: Any,
    ) -> Sequence[Any]:
        alpha = lr * np.sqrt(1 - beta2_power) / (1 - beta1_power)
        m = m + (grad - m) * (1 - beta1)
        v = v + (grad * grad - v) * (1 - beta2)
        mean = grad * (1 - beta1) + m * beta1 if options["use_nesterov"] else m
        return var - mean * alpha / (np.sqrt(v) + epsilon), m, v


@forms("ResourceApply")
class AdamWithAmsgrad(Rule, abstract=True):
    """Adam with the largest mean square that there was."""

    slots = "m v vhat"
    inputs = "beta1_power beta2_power lr beta1 beta2 epsilon grad"

    @staticmethod
    def update(
        options: Options,
        var: Any,
        m: Any,
        v: Any,
        vhat: Any,
        beta1_power: Any,
        beta2_power: Any,
        lr: Any,
        beta1: Any,
        beta2: Any,
        epsilon: Any,
        grad: Any,
    ) -> Sequence[Any]:
        alpha = lr * np.sqrt(1 - beta2_power) / (1 - beta1_power)
        m = m + (grad - m) * (1 - beta1)
        v = v + (grad * grad - v) * (1 - beta2)
        vhat = np.maximum(vhat, v)
        return var - m * alpha / (np.sqrt(vhat) + epsilon), m, v, vhat


@forms(*DENSE)
class AdaMax(Rule, abstract=True):
    """Adam with the largest gradient for the mean square."""

    slots = "m v"
    inputs = "beta1_power lr beta1 beta2 epsilon grad"

    @staticmethod
    def update(
        options: Options,
        var: Any,
        m: Any,
        v: Any,
        beta1_power: Any,
        lr: Any,
        beta1: Any,
        beta2: Any,
        epsilon: Any,
        grad: Any,
    ) -> Sequence[Any]:
        m = m + (grad - m) * (1 - beta1)
        v = np.maximum(beta2 * v, abs(grad))
        return var - lr / (1 - beta1_power) * (m / (v + epsilon)), m, v


@forms(*ALL)
class RMSProp(Rule, abstract=True):
    """Steps by the gradient over the root of its mean square, with momentum."""

    slots = "ms mom"
    inputs = "lr rho momentum epsilon grad"

    @staticmethod
    def update(
        options: Options,
        var: Any,
        ms: Any,
        mom: Any,
        lr: Any,
        rho: Any,
        momentum: Any,
        epsilon: Any,
        grad: Any,
    ) -> Sequence[Any]:
        ms = ms + (grad * grad - ms) * (1 - rho)
        mom = mom * momentum + grad * lr / np.sqrt(ms + epsilon)
        return var - mom, ms, mom


@forms(*ALL)
class CenteredRMSProp(Rule, abstract=True):
    """Steps by the gradient over the root of its variance, with momentum."""

    slots = "mg ms mom"
    inputs = "lr rho momentum epsilon grad"

    @staticmethod
    def update(
        options: Options,
        var: Any,
        mg: Any,
        ms: Any,
        mom: Any,
        lr: Any,
        rho: Any,
        momentum: Any,
        epsilon: Any,
        grad: Any,
    ) -> Sequence[Any]:
        ms = ms + (grad * grad - ms) * (1 - rho)
        mg = mg + (grad - mg) * (1 - rho)
        mom = mom * momentum + grad * lr / np.sqrt(ms - mg * mg + epsilon)
        return var - mom, mg, ms, mom


@forms(*DENSE)
class AddSign(Rule, abstract=True):
    """Larger steps where the gradient agrees in sign with its mean."""

    slots = "m"
    inputs = "lr alpha sign_decay beta grad"

    @staticmethod
    def update(
        options: Options,
        var: Any,
        m: Any,
        lr: Any,
        alpha: Any,
        sign_decay: Any,
        beta: Any,
        grad: Any,
    ) -> Sequence[Any]:
        m = m * beta + grad * (1 - beta)
        agree = np.sign(grad) * np.sign(m)
        return var - lr * (alpha + sign_decay * agree) * grad, m


@forms(*DENSE)
class PowerSign(Rule, abstract=True):
    """Steps scaled up where the gradient agrees in sign with its mean, else down."""

    slots = "m"
    inputs = "lr logbase sign_decay beta grad"

    @staticmethod
    def update(
        options: Options,
        var: Any,
        m: Any,
        lr: Any,
        logbase: Any,
        sign_decay: Any,
        beta: Any,
        grad: Any,
    ) -> Sequence[Any]:
        m = m * beta + grad * (1 - beta)
        agree = np.sign(grad) * np.sign(m)
        return var - lr * np.exp(logbase * sign_decay * agree) * grad, m
