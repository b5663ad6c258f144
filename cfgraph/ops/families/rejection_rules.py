"""Candidates of rejection samplers, and the conditions to accept them.

The numbers are arrays, which may be traced, or numbers of Python with `float_namespace`.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.ops.families import float_namespace

# Philox samples that each output may use
RESERVED: Final = 256
RESERVED_BY_INVERSION: Final = 42
_TAIL_NUMBERS = [
    math.lgamma(k + 2) - (k + 1.5) * math.log(k + 1) + k + 1 - 0.5 * math.log(2 * math.pi)
    for k in range(10)
]
_TAIL = np.array(_TAIL_NUMBERS)


def gamma_parameters(xp: ModuleType, alpha: Any) -> tuple[Any, Any]:
    """The numbers d and c of Marsaglia and Tsang 2000; for alpha + 1 if alpha is below 1."""
    d = alpha + xp.where(alpha < 1, 2.0 / 3, -1.0 / 3)
    return d, 1.0 / 3 / xp.sqrt(d)


def accepts_gamma(xp: ModuleType, x: Any, v: Any, u: Any, d: Any) -> Any:
    """True for an accepted candidate `d * v` of a normal number x and a uniform one u."""
    squeezed = u < 1 - 0.0331 * (x * x) * (x * x)
    return squeezed | (xp.log(u) < 0.5 * x * x + d * (1 - v + xp.log(v)))


def poisson_candidates(xp: ModuleType, u: Any, v: Any, mean: Any) -> tuple[Any, Any]:
    """Candidates of two uniform numbers, and which are accepted (Hörmann 1993)."""
    u = u - 0.5
    shifted = 0.5 - xp.absolute(u)
    b = 0.931 + 2.53 * xp.sqrt(mean)
    a = -0.059 + 0.02483 * b
    k = xp.floor((2 * a / shifted + b) * u + mean + 0.43)
    inside = (shifted >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
    possible = (k >= 0) & ((shifted >= 0.013) | (v <= shifted))
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    s = xp.log(v * inverse / (a / (shifted * shifted) + b))
    t = -mean + k * xp.log(mean) - _log_gamma(xp, k + 1)
    return k, inside | (possible & (s <= t))


def _log_gamma(xp: ModuleType, x: Any) -> Any:
    if xp is float_namespace:
        return float_namespace.lgamma(x)
    if xp is np:
        from scipy.special import gammaln
    else:
        from jax.scipy.special import gammaln

    return gammaln(xp.maximum(x, 1e-300))


class BinomialConstants(NamedTuple):
    """Numbers of a binomial distribution that all its candidates use."""

    count: Any
    mean: Any
    mode: Any
    ratio: Any
    a: Any
    b: Any
    alpha: Any

    @classmethod
    def from_parameters(cls, xp: ModuleType, count: Any, prob: Any) -> BinomialConstants:
        """The constants of a number of trials and the probability of success."""
        deviation = xp.sqrt(count * prob * (1 - prob))
        b = 1.15 + 2.53 * deviation
        a = -0.0873 + 0.0248 * b + 0.01 * prob
        alpha = (2.83 + 5.1 / b) * deviation
        mode = xp.floor((count + 1) * prob)
        return cls(count, count * prob, mode, prob / (1 - prob), a, b, alpha)


def binomial_candidates(
    xp: ModuleType, u: Any, v: Any, constants: BinomialConstants
) -> tuple[Any, Any]:
    """Candidates of two uniform numbers, and which are accepted (Hörmann 1993)."""
    n, mean, m, r, a, b, alpha = constants
    u = u - 0.5
    us = 0.5 - xp.absolute(u)
    k = xp.floor((2 * a / us + b) * u + mean + 0.5)
    inside = (us >= 0.07) & (v <= 0.92 - 4.2 / b)
    possible = (k >= 0) & (k <= n)
    k_ = xp.clip(k, 0, n)
    bound = (m + 0.5) * xp.log((m + 1) / (r * (n - m + 1)))
    # not in place: several candidates per row have one dimension more
    bound = bound + (n + 1) * xp.log((n - m + 1) / (n - k_ + 1))
    bound += (k_ + 0.5) * xp.log(r * (n - k_ + 1) / (k_ + 1))
    bound += _stirling_tail(xp, m) + _stirling_tail(xp, n - m)
    bound -= _stirling_tail(xp, k_) + _stirling_tail(xp, n - k_)
    return k, inside | (possible & (xp.log(v * alpha / (a / (us * us) + b)) <= bound))


def _stirling_tail(xp: ModuleType, k: Any) -> Any:
    """Remainder of Stirling's approximation of the logarithm of a factorial."""
    if xp is float_namespace and k <= 9:
        return _TAIL_NUMBERS[int(k)]
    square = (k + 1) * (k + 1)
    series = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)
    if xp is float_namespace:
        return series
    return xp.where(k <= 9, xp.asarray(_TAIL)[xp.clip(k, 0, 9).astype(np.int64)], series)
