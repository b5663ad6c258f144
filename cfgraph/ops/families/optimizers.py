"""Update rules: gradient descent, momentum, Adam, RMSProp, and variants."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfgraph.ops.families.optimizer_rule import ALL_FORMS, DENSE_FORMS, UpdateRule, register_forms


@register_forms(*DENSE_FORMS)
class GradientDescent(UpdateRule, abstract=True):
    """Gradient descent: var -= alpha * delta."""

    inputs = "alpha delta"

    @staticmethod
    def update(x: Any) -> None:
        x.var = x.var - x.delta * x.alpha


@register_forms(*ALL_FORMS)
class Momentum(UpdateRule, abstract=True):
    """Gradient descent with momentum: accum = momentum * accum + grad; var -= lr * accum."""

    slots = "accum"
    inputs = "lr grad momentum"
    options = "use_nesterov: bool = false"

    @staticmethod
    def update(x: Any) -> None:
        x.accum = x.accum * x.momentum + x.grad
        if x.use_nesterov:
            x.var = x.var - (x.grad * x.lr + x.accum * x.momentum * x.lr)
        else:
            x.var = x.var - x.accum * x.lr


@register_forms("ResourceApply", "ResourceSparseApply")
class KerasMomentum(UpdateRule, abstract=True):
    """Gradient descent with momentum, with the learning rate inside the accumulator."""

    slots = "accum"
    inputs = "lr grad momentum"
    options = "use_nesterov: bool = false"

    @staticmethod
    def update(x: Any) -> None:
        x.accum = x.accum * x.momentum - x.grad * x.lr
        if x.use_nesterov:
            x.var = x.var + (x.accum * x.momentum - x.grad * x.lr)
        else:
            x.var = x.var + x.accum


@register_forms(*DENSE_FORMS)
class Adam(UpdateRule, abstract=True):
    """Adam (Kingma and Ba 2015): steps by mean gradient / root of mean squared gradient."""

    slots = "m v"
    inputs = "beta1_power beta2_power lr beta1 beta2 epsilon grad"
    options = "use_nesterov: bool = false"

    @staticmethod
    def update(x: Any) -> None:
        alpha = x.lr * np.sqrt(1 - x.beta2_power) / (1 - x.beta1_power)
        x.m = x.m + (x.grad - x.m) * (1 - x.beta1)
        x.v = x.v + (x.grad * x.grad - x.v) * (1 - x.beta2)
        mean = x.grad * (1 - x.beta1) + x.m * x.beta1 if x.use_nesterov else x.m
        x.var = x.var - mean * alpha / (np.sqrt(x.v) + x.epsilon)


@register_forms("ResourceApply")
class AdamWithAmsgrad(UpdateRule, abstract=True):
    """Adam with the running maximum of the mean squared gradient (AMSGrad)."""

    slots = "m v vhat"
    inputs = "beta1_power beta2_power lr beta1 beta2 epsilon grad"

    @staticmethod
    def update(x: Any) -> None:
        alpha = x.lr * np.sqrt(1 - x.beta2_power) / (1 - x.beta1_power)
        x.m = x.m + (x.grad - x.m) * (1 - x.beta1)
        x.v = x.v + (x.grad * x.grad - x.v) * (1 - x.beta2)
        x.vhat = np.maximum(x.vhat, x.v)
        x.var = x.var - x.m * alpha / (np.sqrt(x.vhat) + x.epsilon)


@register_forms(*DENSE_FORMS)
class AdaMax(UpdateRule, abstract=True):
    """Adam with the decayed maximum norm of the gradient instead of its mean square."""

    slots = "m v"
    inputs = "beta1_power lr beta1 beta2 epsilon grad"

    @staticmethod
    def update(x: Any) -> None:
        x.m = x.m + (x.grad - x.m) * (1 - x.beta1)
        x.v = np.maximum(x.beta2 * x.v, abs(x.grad))
        x.var = x.var - x.lr / (1 - x.beta1_power) * (x.m / (x.v + x.epsilon))


@register_forms(*ALL_FORMS)
class RMSProp(UpdateRule, abstract=True):
    """RMSProp: steps by gradient / root of mean squared gradient, with momentum."""

    slots = "ms mom"
    inputs = "lr rho momentum epsilon grad"

    @staticmethod
    def update(x: Any) -> None:
        x.ms = x.ms + (x.grad * x.grad - x.ms) * (1 - x.rho)
        x.mom = x.mom * x.momentum + x.grad * x.lr / np.sqrt(x.ms + x.epsilon)
        x.var = x.var - x.mom


@register_forms(*ALL_FORMS)
class CenteredRMSProp(UpdateRule, abstract=True):
    """RMSProp normalized by the gradient's variance instead of its mean square."""

    slots = "mg ms mom"
    inputs = "lr rho momentum epsilon grad"

    @staticmethod
    def update(x: Any) -> None:
        x.ms = x.ms + (x.grad * x.grad - x.ms) * (1 - x.rho)
        x.mg = x.mg + (x.grad - x.mg) * (1 - x.rho)
        x.mom = x.mom * x.momentum + x.grad * x.lr / np.sqrt(x.ms - x.mg * x.mg + x.epsilon)
        x.var = x.var - x.mom


@register_forms(*DENSE_FORMS)
class AddSign(UpdateRule, abstract=True):
    """AddSign: steps lr * (alpha + sign_decay * sign(grad) * sign(m)) * grad."""

    slots = "m"
    inputs = "lr alpha sign_decay beta grad"

    @staticmethod
    def update(x: Any) -> None:
        x.m = x.m * x.beta + x.grad * (1 - x.beta)
        agree = np.sign(x.grad) * np.sign(x.m)
        x.var = x.var - x.lr * (x.alpha + x.sign_decay * agree) * x.grad


@register_forms(*DENSE_FORMS)
class PowerSign(UpdateRule, abstract=True):
    """PowerSign: steps lr * exp(logbase * sign_decay * sign(grad) * sign(m)) * grad."""

    slots = "m"
    inputs = "lr logbase sign_decay beta grad"

    @staticmethod
    def update(x: Any) -> None:
        x.m = x.m * x.beta + x.grad * (1 - x.beta)
        agree = np.sign(x.grad) * np.sign(x.m)
        x.var = x.var - x.lr * np.exp(x.logbase * x.sign_decay * agree) * x.grad
