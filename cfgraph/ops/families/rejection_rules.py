"""Distributions that are sampled by rejection: gamma, Poisson, and binomial.

The rules hold for arrays, which may be traced, and for numbers of Python with `float_namespace`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.ops.families import float_namespace

State = tuple[Any, ...]
# the lanes that have a sample, their samples, the Philox samples used, and the state of the others
Turn = tuple[Any, Any, Any, State]

# Philox samples that each output may use
_RESERVED: Final = 256
_RESERVED_BY_INVERSION: Final = 42
_TAIL_NUMBERS = [
    math.lgamma(k + 2) - (k + 1.5) * math.log(k + 1) + k + 1 - 0.5 * math.log(2 * math.pi)
    for k in range(10)
]
_TAIL = np.array(_TAIL_NUMBERS)


class Rejection(NamedTuple):
    """A way to sample a distribution turn by turn.

    `start(xp, *parameters)` returns the state of a lane, and `turn(xp, numbers, *state)` makes a
    turn with the numbers in [0, 1) of some Philox samples, those of each sample last to first. A
    lane probably uses `expected` samples, and at most those that are reserved.
    """

    start: Callable[..., State]
    turn: Callable[..., Turn]
    samples: int = 1
    expected: int = 2
    reserved: int = _RESERVED


class Distribution(NamedTuple):
    """Ways to sample the lanes of each of some masks, and the values of all other lanes."""

    ways: tuple[tuple[Any, Rejection], ...]
    parameters: tuple[Any, ...]
    otherwise: Any


def gamma(xp: ModuleType, alpha: Any) -> Distribution:
    """The gamma distribution (Marsaglia and Tsang 2000); exponential for alpha 1."""
    alpha = xp.float64(alpha)
    is_one = alpha == 1
    return Distribution(
        ((is_one, _EXPONENTIAL), ((alpha != 1) & (alpha > -2 / 3), _GAMMA)), (alpha,), math.nan
    )


def _exponential_turn(xp: ModuleType, numbers: Any, alpha: Any) -> Turn:
    return alpha == 1, -xp.log1p(-numbers[0]), 1, (alpha,)


def _gamma_start(xp: ModuleType, alpha: Any) -> State:
    """Start with no normal and no uniform number left, for alpha + 1 if alpha is below 1."""
    d = alpha + xp.where(alpha < 1, 2.0 / 3, -1.0 / 3)
    return alpha, d, 1.0 / 3 / xp.sqrt(d), alpha * math.nan, alpha * math.nan


def _gamma_turn(
    xp: ModuleType, numbers: Any, alpha: Any, d: Any, c: Any, normal: Any, uniform: Any
) -> Turn:
    """Test a candidate; two numbers of a sample are used in turn, normal and uniform ones apart."""
    first, last, first_of_next, last_of_next = numbers
    draws_normal, draws_uniform = xp.isnan(normal), xp.isnan(uniform)
    length, angle = xp.sqrt(-2.0 * xp.log(xp.maximum(last, 1.0e-7))), 2.0 * math.pi * first
    x = xp.where(draws_normal, xp.cos(angle) * length, normal)
    first, last = (
        xp.where(draws_normal, first_of_next, first),
        xp.where(draws_normal, last_of_next, last),
    )
    u = xp.where(draws_uniform, first, uniform)
    v = 1 + c * x
    is_positive = v > 0
    v = xp.where(is_positive, v**3, 1.0)
    power = xp.where(draws_uniform, last, first)
    sample = d * v * xp.where(alpha < 1, power ** (1 / alpha), 1.0)
    normal = xp.where(draws_normal, xp.sin(angle) * length, math.nan)
    uniform = xp.where(is_positive, xp.where(draws_uniform, last, math.nan), uniform)
    used = draws_normal * 1 + (is_positive & draws_uniform)
    is_accepted = is_positive & _accepts_gamma(xp, x, v, u, d)
    return is_accepted, sample, used, (alpha, d, c, normal, uniform)


def _accepts_gamma(xp: ModuleType, x: Any, v: Any, u: Any, d: Any) -> Any:
    """True for an accepted candidate `d * v` of a normal number x and a uniform one u."""
    squeezed = u < 1 - 0.0331 * (x * x) * (x * x)
    return squeezed | (xp.log(u) < 0.5 * x * x + d * (1 - v + xp.log(v)))


def poisson(xp: ModuleType, rate: Any) -> Distribution:
    """The Poisson distribution: products of uniform numbers (Knuth) below 10, else ratios."""
    rate = xp.float64(rate)
    few, many = (rate >= 0) & (rate < 10), (rate >= 10) & xp.isfinite(rate)
    return Distribution(((few, _PRODUCTS), (many, _RATIOS)), (rate,), math.nan)


def _products_start(xp: ModuleType, rate: Any) -> State:
    return xp.exp(-rate), rate * 0 + 1, rate * 0


def _products_turn(xp: ModuleType, numbers: Any, limit: Any, product: Any, count: Any) -> Turn:
    for u in numbers:
        product = product * u
        count = count + (product > limit)
    return product <= limit, count, len(numbers) // 2, (limit, product, count)


def _ratios_turn(xp: ModuleType, numbers: Any, mean: Any) -> Turn:
    """Test a candidate of two uniform numbers (Hörmann 1993)."""
    u, v = numbers[0] - 0.5, numbers[1]
    shifted = 0.5 - xp.absolute(u)
    b = 0.931 + 2.53 * xp.sqrt(mean)
    a = -0.059 + 0.02483 * b
    k = xp.floor((2 * a / shifted + b) * u + mean + 0.43)
    inside = (shifted >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
    possible = (k >= 0) & ((shifted >= 0.013) | (v <= shifted))
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    s = xp.log(v * inverse / (a / (shifted * shifted) + b))
    t = -mean + k * xp.log(mean) - _log_gamma(xp, k + 1)
    return inside | (possible & (s <= t)), k, 1, (mean,)


def _log_gamma(xp: ModuleType, x: Any) -> Any:
    if xp is float_namespace:
        return float_namespace.lgamma(x)
    if xp is np:
        from scipy.special import gammaln
    else:
        from jax.scipy.special import gammaln

    return gammaln(xp.maximum(x, 1e-300))


def binomial(xp: ModuleType, count: Any, prob: Any) -> Distribution:
    """The binomial distribution: sums of geometric samples for small means, else Hörmann 1993."""
    flipped = prob > 0.5
    likely = xp.where(flipped, 1 - prob, prob)
    many = count * likely >= 10  # in the precision of the parameters
    few = count * likely < 10
    count, likely = xp.float64(count), xp.float64(likely)
    varied = (count > 0) & xp.isfinite(count) & (prob > 0) & (prob < 1)
    constant = xp.where(xp.isfinite(count) & (prob <= math.inf), 0.0, math.nan)
    constant = xp.where((prob >= 1) & (count > 0), count, constant)
    ways = ((varied & few, _INVERSION), (varied & many, _TRANSFORMED))
    return Distribution(ways, (count, likely, flipped), constant)


def _inversion_start(xp: ModuleType, count: Any, prob: Any, flipped: Any) -> State:
    return count, flipped, xp.log1p(-prob), count * 0, count * 0


def _inversion_turn(
    xp: ModuleType, numbers: Any, count: Any, flipped: Any, scale: Any, total: Any, drawn: Any
) -> Turn:
    for u in numbers:
        total = total + xp.ceil(xp.log(u) / scale)
        drawn = drawn + (total <= count)
    sample = xp.where(flipped, count - drawn, drawn)
    return total > count, sample, len(numbers) // 2, (count, flipped, scale, total, drawn)


def _transformed_start(xp: ModuleType, count: Any, prob: Any, flipped: Any) -> State:
    deviation = xp.sqrt(count * prob * (1 - prob))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * prob
    alpha = (2.83 + 5.1 / b) * deviation
    mode = xp.floor((count + 1) * prob)
    return flipped, count, count * prob, mode, prob / (1 - prob), a, b, alpha


def _transformed_turn(xp: ModuleType, numbers: Any, flipped: Any, *constants: Any) -> Turn:
    """Test a candidate of two uniform numbers by transformed rejection (Hörmann 1993)."""
    n, mean, m, r, a, b, alpha = constants
    u, v = numbers[0] - 0.5, numbers[1]
    us = 0.5 - xp.absolute(u)
    k = xp.floor((2 * a / us + b) * u + mean + 0.5)
    inside = (us >= 0.07) & (v <= 0.92 - 4.2 / b)
    possible = (k >= 0) & (k <= n)
    k_ = xp.clip(k, 0, n)
    bound = (m + 0.5) * xp.log((m + 1) / (r * (n - m + 1)))
    bound = bound + (n + 1) * xp.log((n - m + 1) / (n - k_ + 1))
    bound += (k_ + 0.5) * xp.log(r * (n - k_ + 1) / (k_ + 1))
    bound += _stirling_tail(xp, m) + _stirling_tail(xp, n - m)
    bound -= _stirling_tail(xp, k_) + _stirling_tail(xp, n - k_)
    accepted = inside | (possible & (xp.log(v * alpha / (a / (us * us) + b)) <= bound))
    return accepted, xp.where(flipped, n - k, k), 1, (flipped, *constants)


def _stirling_tail(xp: ModuleType, k: Any) -> Any:
    """Remainder of Stirling's approximation of the logarithm of a factorial."""
    if xp is float_namespace and k <= 9:
        return _TAIL_NUMBERS[int(k)]
    square = (k + 1) * (k + 1)
    series = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)
    if xp is float_namespace:
        return series
    return xp.where(k <= 9, xp.asarray(_TAIL)[xp.clip(k, 0, 9).astype(np.int64)], series)


def _parameters(xp: ModuleType, *parameters: Any) -> State:
    return parameters


def _constant_turn(xp: ModuleType, numbers: Any, value: Any) -> Turn:
    return True, value, 0, (value,)


CONSTANT = Rejection(_parameters, _constant_turn, samples=0, expected=1)
_EXPONENTIAL = Rejection(_parameters, _exponential_turn, expected=1)
_GAMMA = Rejection(_gamma_start, _gamma_turn, samples=2)
_PRODUCTS = Rejection(_products_start, _products_turn, samples=2, expected=4)
_RATIOS = Rejection(_parameters, _ratios_turn)
_INVERSION = Rejection(_inversion_start, _inversion_turn, 2, 4, _RESERVED_BY_INVERSION)
_TRANSFORMED = Rejection(_transformed_start, _transformed_turn)
