"""Optimizer updates of variables: gradient descent, momentum, Adam, Adagrad, and their kind."""

from __future__ import annotations

from typing import Any, Final

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
    compiled_kinds = "f"
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
        alpha = x.lr * x.xp.sqrt(1 - x.beta2_power) / (1 - x.beta1_power)
        x.m = x.m + (x.grad - x.m) * (1 - x.beta1)
        x.v = x.v + (x.grad * x.grad - x.v) * (1 - x.beta2)
        mean = x.grad * (1 - x.beta1) + x.m * x.beta1 if x.use_nesterov else x.m
        x.var = x.var - mean * alpha / (x.xp.sqrt(x.v) + x.epsilon)


@register_forms("ResourceApply")
class AdamWithAmsgrad(UpdateRule, abstract=True):
    """Adam with the running maximum of the mean squared gradient (AMSGrad)."""

    slots = "m v vhat"
    compiled_kinds = ""
    inputs = "beta1_power beta2_power lr beta1 beta2 epsilon grad"

    @staticmethod
    def update(x: Any) -> None:
        alpha = x.lr * x.xp.sqrt(1 - x.beta2_power) / (1 - x.beta1_power)
        x.m = x.m + (x.grad - x.m) * (1 - x.beta1)
        x.v = x.v + (x.grad * x.grad - x.v) * (1 - x.beta2)
        x.vhat = x.xp.maximum(x.vhat, x.v)
        x.var = x.var - x.m * alpha / (x.xp.sqrt(x.vhat) + x.epsilon)


@register_forms(*DENSE_FORMS)
class AdaMax(UpdateRule, abstract=True):
    """Adam with the decayed maximum norm of the gradient instead of its mean square."""

    slots = "m v"
    inputs = "beta1_power lr beta1 beta2 epsilon grad"
    compiled_kinds = "f"

    @staticmethod
    def update(x: Any) -> None:
        x.m = x.m + (x.grad - x.m) * (1 - x.beta1)
        x.v = x.xp.maximum(x.beta2 * x.v, abs(x.grad))
        x.var = x.var - x.lr / (1 - x.beta1_power) * (x.m / (x.v + x.epsilon))


@register_forms(*ALL_FORMS)
class RMSProp(UpdateRule, abstract=True):
    """RMSProp: steps by gradient / root of mean squared gradient, with momentum."""

    slots = "ms mom"
    inputs = "lr rho momentum epsilon grad"

    @staticmethod
    def update(x: Any) -> None:
        x.ms = x.ms + (x.grad * x.grad - x.ms) * (1 - x.rho)
        x.mom = x.mom * x.momentum + x.grad * x.lr / x.xp.sqrt(x.ms + x.epsilon)
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
        x.mom = x.mom * x.momentum + x.grad * x.lr / x.xp.sqrt(x.ms - x.mg * x.mg + x.epsilon)
        x.var = x.var - x.mom


@register_forms(*DENSE_FORMS)
class AddSign(UpdateRule, abstract=True):
    """AddSign: steps lr * (alpha + sign_decay * sign(grad) * sign(m)) * grad."""

    slots = "m"
    inputs = "lr alpha sign_decay beta grad"
    compiled_kinds = "f"

    @staticmethod
    def update(x: Any) -> None:
        x.m = x.m * x.beta + x.grad * (1 - x.beta)
        agree = x.xp.sign(x.grad) * x.xp.sign(x.m)
        x.var = x.var - x.lr * (x.alpha + x.sign_decay * agree) * x.grad


@register_forms(*DENSE_FORMS)
class PowerSign(UpdateRule, abstract=True):
    """PowerSign: steps lr * exp(logbase * sign_decay * sign(grad) * sign(m)) * grad."""

    slots = "m"
    inputs = "lr logbase sign_decay beta grad"
    compiled_kinds = "f"

    @staticmethod
    def update(x: Any) -> None:
        x.m = x.m * x.beta + x.grad * (1 - x.beta)
        agree = x.xp.sign(x.grad) * x.xp.sign(x.m)
        x.var = x.var - x.lr * x.xp.exp(x.logbase * x.sign_decay * agree) * x.grad


_SHRINK_SIGNS: Final = {"lr": "positive", "l1": "non-negative", "l2": "non-negative"}
_FTRL_SIGNS: Final = _SHRINK_SIGNS | {"l2_shrinkage": "non-negative", "lr_power": "non-positive"}


@register_forms(*ALL_FORMS)
class Adagrad(UpdateRule, abstract=True):
    """Steps by the gradient over the root of the sum of its squares."""

    slots = "accum"
    inputs = "lr grad"
    options = "update_slots: bool = true"

    @staticmethod
    def update(x: Any) -> None:
        if x.update_slots:
            x.accum = x.accum + x.grad * x.grad
        x.var = x.var - x.grad * x.lr / x.xp.sqrt(x.accum)


@register_forms(*ALL_FORMS)
class AdagradV2(UpdateRule, abstract=True):
    """Adagrad with an epsilon beside the root."""

    slots = "accum"
    inputs = "lr epsilon grad"
    options = "update_slots: bool = true"

    @staticmethod
    def update(x: Any) -> None:
        if x.update_slots:
            x.accum = x.accum + x.grad * x.grad
        x.var = x.var - x.grad * x.lr / (x.xp.sqrt(x.accum) + x.epsilon)


@register_forms(*ALL_FORMS)
class Adadelta(UpdateRule, abstract=True):
    """Steps scaled by the ratio of the root mean squares of former steps and gradients."""

    slots = "accum accum_update"
    inputs = "lr rho epsilon grad"

    @staticmethod
    def update(x: Any) -> None:
        x.accum = x.accum * x.rho + x.grad * x.grad * (1 - x.rho)
        change = x.xp.sqrt(x.accum_update + x.epsilon) / x.xp.sqrt(x.accum + x.epsilon) * x.grad
        x.accum_update = x.accum_update * x.rho + change * change * (1 - x.rho)
        x.var = x.var - change * x.lr


@register_forms(*ALL_FORMS)
class ProximalGradientDescent(UpdateRule, abstract=True):
    """Gradient descent, then a step of l1 and l2 shrinkage."""

    inputs = "alpha l1 l2 delta"

    @staticmethod
    def update(x: Any) -> None:
        x.var = _shrink(x, x.var - x.delta * x.alpha, x.alpha)


@register_forms(*ALL_FORMS)
class ProximalAdagrad(UpdateRule, abstract=True):
    """Adagrad, then a step of l1 and l2 shrinkage."""

    slots = "accum"
    inputs = "lr l1 l2 grad"
    signs = _SHRINK_SIGNS

    @staticmethod
    def update(x: Any) -> None:
        x.accum = x.accum + x.grad * x.grad
        rate = x.lr / x.xp.sqrt(x.accum)
        x.var = _shrink(x, x.var - x.grad * rate, rate)


def _shrink(x: Any, value: Any, rate: Any) -> Any:
    return _toward_zero(x, value, rate * x.l1) / (1 + x.l2 * rate)


def _toward_zero(x: Any, value: Any, step: Any) -> Any:
    """The value moved toward zero by a step, if there is l1 shrinkage."""
    return x.xp.where(x.l1 > 0, x.xp.sign(value) * x.xp.maximum(abs(value) - step, 0), value)


@register_forms(*ALL_FORMS)
class AdagradDA(UpdateRule, abstract=True):
    """Adagrad by dual averaging: from the sums of the gradients, not from the last value."""

    slots = "gradient_accumulator gradient_squared_accumulator"
    inputs = "grad lr l1 l2 global_step:int64"
    compiled_kinds = "f"

    @staticmethod
    def update(x: Any) -> None:
        step = x.xp.asarray(x.global_step).astype(x.lr.dtype)
        x.gradient_accumulator = x.gradient_accumulator + x.grad
        x.gradient_squared_accumulator = x.gradient_squared_accumulator + x.grad * x.grad
        shrunk = _toward_zero(x, x.gradient_accumulator, x.l1 * step)
        x.var = -(shrunk * x.lr) / (x.l2 * step * x.lr + x.xp.sqrt(x.gradient_squared_accumulator))


@register_forms(*ALL_FORMS)
class Ftrl(UpdateRule, abstract=True):
    """Follow the regularized leader."""

    slots = "accum linear"
    inputs = "grad lr l1 l2 lr_power"
    compiled_kinds = "f"
    options = "multiply_linear_by_lr: bool = false"
    signs = _FTRL_SIGNS
    signs_of_sparse = True

    @staticmethod
    def update(x: Any) -> None:
        _follow_regularized_leader(x, x.grad)


@register_forms(*ALL_FORMS)
class FtrlV2(UpdateRule, abstract=True):
    """Follow the regularized leader, with an l2 penalty on the value itself."""

    slots = "accum linear"
    inputs = "grad lr l1 l2 l2_shrinkage lr_power"
    compiled_kinds = "f"
    options = "multiply_linear_by_lr: bool = false"
    signs = _FTRL_SIGNS
    signs_of_sparse = True

    @staticmethod
    def update(x: Any) -> None:
        _follow_regularized_leader(x, x.grad + 2 * x.l2_shrinkage * x.var)


def _follow_regularized_leader(x: Any, penalized: Any) -> None:
    total = x.accum + x.grad * x.grad
    new, old = _power(x, total, -x.lr_power), _power(x, x.accum, -x.lr_power)
    if x.multiply_linear_by_lr:
        x.linear = x.linear + (penalized * x.lr - (new - old) * x.var)
        limit, scale = x.l1 * x.lr, new + 2 * x.l2 * x.lr
    else:
        x.linear = x.linear + (penalized - (new - old) / x.lr * x.var)
        limit, scale = x.l1, new / x.lr + 2 * x.l2
    value = x.xp.where(abs(x.linear) > limit, (limit * x.xp.sign(x.linear) - x.linear) / scale, 0)
    x.var, x.accum = value.astype(x.var.dtype), total


def _power(x: Any, value: Any, exponent: Any) -> Any:
    if x.xp is np:
        return np.sqrt(value) if exponent == 0.5 else value**exponent
    return x.xp.where(exponent == 0.5, x.xp.sqrt(value), value**exponent)
