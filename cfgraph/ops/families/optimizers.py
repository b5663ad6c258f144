"""Update rules: gradient descent, momentum, Adam, RMSProp, and variants."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfgraph.ops.families.optimizer_rule import ALL_FORMS, DENSE_FORMS, UpdateRule, register_forms


@register_forms(*DENSE_FORMS)
class GradientDescent(UpdateRule, abstract=True):
    """Gradient descent."""

    inputs = "alpha delta"

    @staticmethod
    def update(x: Any) -> None:
        x.var = x.var - x.delta * x.alpha


@register_forms(*ALL_FORMS)
class Momentum(UpdateRule, abstract=True):
    """Gradient descent with momentum."""

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
    """Gradient descent with momentum, the learning rate inside of the accumulator."""

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
    """Adam: steps by the mean over the root of the mean square of the gradients."""

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
    """Adam with the largest mean square that there was."""

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
    """Adam with the largest gradient for the mean square."""

    slots = "m v"
    inputs = "beta1_power lr beta1 beta2 epsilon grad"

    @staticmethod
    def update(x: Any) -> None:
        x.m = x.m + (x.grad - x.m) * (1 - x.beta1)
        x.v = np.maximum(x.beta2 * x.v, abs(x.grad))
        x.var = x.var - x.lr / (1 - x.beta1_power) * (x.m / (x.v + x.epsilon))


@register_forms(*ALL_FORMS)
class RMSProp(UpdateRule, abstract=True):
    """Steps by the gradient over the root of its mean square, with momentum."""

    slots = "ms mom"
    inputs = "lr rho momentum epsilon grad"

    @staticmethod
    def update(x: Any) -> None:
        x.ms = x.ms + (x.grad * x.grad - x.ms) * (1 - x.rho)
        x.mom = x.mom * x.momentum + x.grad * x.lr / np.sqrt(x.ms + x.epsilon)
        x.var = x.var - x.mom


@register_forms(*ALL_FORMS)
class CenteredRMSProp(UpdateRule, abstract=True):
    """Steps by the gradient over the root of its variance, with momentum."""

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
    """Larger steps where the gradient agrees in sign with its mean."""

    slots = "m"
    inputs = "lr alpha sign_decay beta grad"

    @staticmethod
    def update(x: Any) -> None:
        x.m = x.m * x.beta + x.grad * (1 - x.beta)
        agree = np.sign(x.grad) * np.sign(x.m)
        x.var = x.var - x.lr * (x.alpha + x.sign_decay * agree) * x.grad


@register_forms(*DENSE_FORMS)
class PowerSign(UpdateRule, abstract=True):
    """Steps scaled up where the gradient agrees in sign with its mean, else down."""

    slots = "m"
    inputs = "lr logbase sign_decay beta grad"

    @staticmethod
    def update(x: Any) -> None:
        x.m = x.m * x.beta + x.grad * (1 - x.beta)
        agree = np.sign(x.grad) * np.sign(x.m)
        x.var = x.var - x.lr * np.exp(x.logbase * x.sign_decay * agree) * x.grad
