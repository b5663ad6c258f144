"""Update rules with per-element rates (Adagrad, Adadelta) or shrinkage (proximal, FTRL)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from cfgraph.ops.families.optimizer_rule import ALL_FORMS, UpdateRule, register_forms

Options = Mapping[str, Any]
_SHRINK_SIGNS: Final = {"lr": "positive", "l1": "non-negative", "l2": "non-negative"}
_FTRL_SIGNS: Final = _SHRINK_SIGNS | {"l2_shrinkage": "non-negative", "lr_power": "non-positive"}


@register_forms(*ALL_FORMS)
class Adagrad(UpdateRule, abstract=True):
    """Steps by the gradient over the root of the sum of its squares."""

    slots = "accum"
    inputs = "lr grad"
    options = "update_slots: bool = true"

    @staticmethod
    def update(options: Options, var: Any, accum: Any, lr: Any, grad: Any) -> Sequence[Any]:
        if options["update_slots"]:
            accum = accum + grad * grad
        return var - grad * lr / np.sqrt(accum), accum


@register_forms(*ALL_FORMS)
class AdagradV2(UpdateRule, abstract=True):
    """Adagrad with an epsilon beside the root."""

    slots = "accum"
    inputs = "lr epsilon grad"
    options = "update_slots: bool = true"

    @staticmethod
    def update(
        options: Options, var: Any, accum: Any, lr: Any, epsilon: Any, grad: Any
    ) -> Sequence[Any]:
        if options["update_slots"]:
            accum = accum + grad * grad
        return var - grad * lr / (np.sqrt(accum) + epsilon), accum


@register_forms(*ALL_FORMS)
class Adadelta(UpdateRule, abstract=True):
    """Steps scaled by the mean square of former steps over that of the gradients."""

    slots = "accum accum_update"
    inputs = "lr rho epsilon grad"

    @staticmethod
    def update(
        options: Options,
        var: Any,
        accum: Any,
        accum_update: Any,
        lr: Any,
        rho: Any,
        epsilon: Any,
        grad: Any,
    ) -> Sequence[Any]:
        accum = accum * rho + grad * grad * (1 - rho)
        change = np.sqrt(accum_update + epsilon) / np.sqrt(accum + epsilon) * grad
        accum_update = accum_update * rho + change * change * (1 - rho)
        return var - change * lr, accum, accum_update


@register_forms(*ALL_FORMS)
class ProximalGradientDescent(UpdateRule, abstract=True):
    """Gradient descent, then a step of l1 and l2 shrinkage."""

    inputs = "alpha l1 l2 delta"

    @staticmethod
    def update(
        options: Options, var: Any, alpha: Any, l1: Any, l2: Any, delta: Any
    ) -> Sequence[Any]:
        return (_shrink(var - delta * alpha, alpha, l1, l2),)


@register_forms(*ALL_FORMS)
class ProximalAdagrad(UpdateRule, abstract=True):
    """Adagrad, then a step of l1 and l2 shrinkage."""

    slots = "accum"
    inputs = "lr l1 l2 grad"
    signs = _SHRINK_SIGNS

    @staticmethod
    def update(
        options: Options, var: Any, accum: Any, lr: Any, l1: Any, l2: Any, grad: Any
    ) -> Sequence[Any]:
        accum = accum + grad * grad
        rate = lr / np.sqrt(accum)
        return _shrink(var - grad * rate, rate, l1, l2), accum


def _shrink(value: Any, rate: Any, l1: Any, l2: Any) -> Any:
    if l1 > 0:
        value = np.sign(value) * np.maximum(abs(value) - rate * l1, 0)
    return value / (1 + l2 * rate)


@register_forms(*ALL_FORMS)
class AdagradDA(UpdateRule, abstract=True):
    """Adagrad by dual averaging: from the sums of the gradients, not from the last value."""

    slots = "gradient_accumulator gradient_squared_accumulator"
    inputs = "grad lr l1 l2 global_step:int64"

    @staticmethod
    def update(
        options: Options,
        var: Any,
        total: Any,
        squares: Any,
        grad: Any,
        lr: Any,
        l1: Any,
        l2: Any,
        global_step: Any,
    ) -> Sequence[Any]:
        step = lr.dtype.type(global_step)
        total = total + grad
        squares = squares + grad * grad
        kept = np.sign(total) * np.maximum(abs(total) - l1 * step, 0) if l1 > 0 else total
        return -(kept * lr) / (l2 * step * lr + np.sqrt(squares)), total, squares


@register_forms(*ALL_FORMS)
class Ftrl(UpdateRule, abstract=True):
    """Follow the regularized leader."""

    slots = "accum linear"
    inputs = "grad lr l1 l2 lr_power"
    options = "multiply_linear_by_lr: bool = false"
    signs = _FTRL_SIGNS
    signs_of_sparse = True

    @staticmethod
    def update(
        options: Options,
        var: Any,
        accum: Any,
        linear: Any,
        grad: Any,
        lr: Any,
        l1: Any,
        l2: Any,
        lr_power: Any,
    ) -> Sequence[Any]:
        return _follow_regularized_leader(
            options, var, accum, linear, grad, grad, lr, l1, l2, lr_power
        )


@register_forms(*ALL_FORMS)
class FtrlV2(UpdateRule, abstract=True):
    """Follow the regularized leader, with an l2 penalty on the value itself."""

    slots = "accum linear"
    inputs = "grad lr l1 l2 l2_shrinkage lr_power"
    options = "multiply_linear_by_lr: bool = false"
    signs = _FTRL_SIGNS
    signs_of_sparse = True

    @staticmethod
    def update(
        options: Options,
        var: Any,
        accum: Any,
        linear: Any,
        grad: Any,
        lr: Any,
        l1: Any,
        l2: Any,
        l2_shrinkage: Any,
        lr_power: Any,
    ) -> Sequence[Any]:
        penalized = grad + 2 * l2_shrinkage * var
        return _follow_regularized_leader(
            options, var, accum, linear, grad, penalized, lr, l1, l2, lr_power
        )


def _follow_regularized_leader(
    options: Options,
    var: Any,
    accum: Any,
    linear: Any,
    grad: Any,
    penalized: Any,
    lr: Any,
    l1: Any,
    l2: Any,
    lr_power: Any,
) -> Sequence[Any]:
    total = accum + grad * grad
    new, old = _power(total, -lr_power), _power(accum, -lr_power)
    if options["multiply_linear_by_lr"]:
        linear = linear + (penalized * lr - (new - old) * var)
        limit, scale = l1 * lr, new + 2 * l2 * lr
    else:
        linear = linear + (penalized - (new - old) / lr * var)
        limit, scale = l1, new / lr + 2 * l2
    value = np.where(abs(linear) > limit, (limit * np.sign(linear) - linear) / scale, 0)
    return value.astype(var.dtype), total, linear


def _power(value: Any, exponent: Any) -> Any:
    return np.sqrt(value) if exponent == 0.5 else value**exponent
