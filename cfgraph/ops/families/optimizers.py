"""Update rules: gradient descent, momentum, Adam, RMSProp, and variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cfgraph.ops.families.optimizer_rule import ALL_FORMS, DENSE_FORMS, UpdateRule, register_forms

Options = Mapping[str, Any]


@register_forms(*DENSE_FORMS)
class GradientDescent(UpdateRule, abstract=True):
    """Gradient descent."""

    inputs = "alpha delta"

    @staticmethod
    def update(options: Options, var: Any, alpha: Any, delta: Any) -> Sequence[Any]:
        return (var - delta * alpha,)


@register_forms(*ALL_FORMS)
class Momentum(UpdateRule, abstract=True):
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


@register_forms("ResourceApply", "ResourceSparseApply")
class KerasMomentum(UpdateRule, abstract=True):
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


@register_forms(*DENSE_FORMS)
class Adam(UpdateRule, abstract=True):
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


@register_forms("ResourceApply")
class AdamWithAmsgrad(UpdateRule, abstract=True):
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


@register_forms(*DENSE_FORMS)
class AdaMax(UpdateRule, abstract=True):
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


@register_forms(*ALL_FORMS)
class RMSProp(UpdateRule, abstract=True):
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


@register_forms(*ALL_FORMS)
class CenteredRMSProp(UpdateRule, abstract=True):
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


@register_forms(*DENSE_FORMS)
class AddSign(UpdateRule, abstract=True):
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


@register_forms(*DENSE_FORMS)
class PowerSign(UpdateRule, abstract=True):
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
