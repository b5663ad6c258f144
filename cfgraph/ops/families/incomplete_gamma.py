"""Incomplete gamma functions and their derivatives with respect to the parameter a."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.kernels.array_namespace import computed_in_float32, scipy_special
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, binary_gradients
from cfgraph.ops.opdef.op import FLOATS, Elementwise, Kernel, one_of

_TERMS: Final = 2000
# terms of the continued fraction between two checks, and the relative change that ends it
_TERMS_PER_CHECK: Final = 8
_PRECISION: Final = 1e-14
# the terms of larger numbers overflow between two checks
_HUGE: Final = 1e30


class IncompleteGamma(Elementwise, abstract=True):
    """A regularized incomplete gamma function; NaN for negative x or non-positive a."""

    signature = "a: T, x: T -> z: T"
    attrs = one_of(FLOATS)
    function: ClassVar[str]
    at_zero: ClassVar[float]
    at_infinity: ClassVar[float]
    is_decreasing: ClassVar[bool] = False

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        function, at_zero = getattr(scipy_special(xp), cls.function), cls.at_zero
        at_infinity = cls.at_infinity

        def incomplete(a: Any, x: Any) -> Any:
            nan = x.dtype.type(xp.nan)
            value = xp.where((x < 0) | (a <= 0), nan, function(a, x))
            infinite = (a == xp.inf) & (x >= 0) & (x < xp.inf)
            value = xp.where(infinite, x.dtype.type(at_infinity), value)
            return xp.where((x == 0) & (xp.isnan(a) | (a <= 0)), x.dtype.type(at_zero), value)

        return computed_in_float32(incomplete, node.attr("T"))

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        a, x = node.inputs
        along = g.Neg(dz) if cls.is_decreasing else dz

        def density() -> Output:
            power = g.Sub(g.Mul(g.Sub(a, 1), g.Log(x)), x)
            return g.Exp(g.Sub(power, g.Lgamma(a)))

        return binary_gradients(
            g, node, lambda: g.Mul(along, g.IgammaGradA(a, x)), lambda: g.Mul(along, density())
        )


class Igamma(IncompleteGamma):
    """Lower regularized incomplete gamma function P(a, x)."""

    function = "gammainc"
    at_zero = 0.0
    at_infinity = 0.0


class Igammac(IncompleteGamma):
    """Upper regularized incomplete gamma function Q(a, x) = 1 - P(a, x)."""

    function = "gammaincc"
    at_zero = float("nan")
    at_infinity = 1.0
    is_decreasing = True


class GammaParameterDerivative(Elementwise, abstract=True):
    """A derivative with respect to the gamma distribution's parameter a, in float64."""

    signature = "a: T, x: T -> z: T"
    attrs = one_of("float32", "float64")
    compilation = CompilerSupport(traceable=False)
    formula: ClassVar[Callable[..., Any]]

    @classmethod
    def kernel(cls, xp: ModuleType, T: DType, /, a: Any, x: Any) -> Any:
        return cls.formula(np.float64(a), np.float64(x)).astype(T.numpy)


def _igamma_derivative(a: Any, x: Any) -> Any:
    functions = scipy_special(np)
    valid = (a > 0) & (x > 0)
    safe_a, safe_x = np.where(valid, a, 1.0), np.where(valid, x, 1.0)
    scale = np.exp(safe_a * np.log(safe_x) - safe_x - functions.gammaln(safe_a))
    result = np.where(np.isinf(x) | np.isinf(a), 0.0, scale * _relative_derivative(a, x))
    return np.where(valid, result, np.where(x == 0, 0.0, np.nan))


def _sample_derivative(a: Any, x: Any) -> Any:
    moved = np.where((a > 0) & (x > 0), -x * _relative_derivative(a, x), np.nan)
    return np.where((x == 0) | (a == np.inf), 0.0, moved)


class IgammaGradA(GammaParameterDerivative):
    """Derivative of P(a, x) (Igamma) with respect to a."""

    formula = staticmethod(_igamma_derivative)


class RandomGammaGrad(GammaParameterDerivative):
    """Derivative of a gamma-distributed sample with respect to its parameter.

    Figurnov et al. 2018, Implicit Reparameterization Gradients: -(∂P/∂a) / (∂P/∂x).
    """

    signature = "alpha: T, sample: T -> output: T"
    formula = staticmethod(_sample_derivative)


def _relative_derivative(a: Any, x: Any) -> Any:
    """Quotient (∂P/∂a) / (x ∂P/∂x) for positive a and x."""
    a, x = np.broadcast_arrays(a, x)
    valid = (a > 0) & (x > 0)
    safe_a, safe_x = np.where(valid, a, 1.0), np.where(valid, x, 1.0)
    far = (safe_x > 4) & (safe_x > safe_a)
    near = _derivative_by_series(safe_a, np.where(far, 0.5, safe_x))
    beyond = _derivative_by_continued_fraction(
        np.where(far, safe_a, 0.5), np.where(far, safe_x, 2.0)
    )
    return np.where(far, beyond.reshape(near.shape), near)


def _derivative_by_series(a: Any, x: Any) -> Any:
    """Series P = x^a exp(-x) / Γ(a+1) Σ c_n, c_n = c_(n-1) x / (a+n), differentiated by term."""
    functions = scipy_special(np)
    shape, a, x = x.shape, a.reshape(-1), x.reshape(-1)
    term, total = np.ones_like(x), np.ones_like(x)
    slope, slopes = np.zeros_like(x), np.zeros_like(x)
    for n in range(1, _TERMS):
        divisor = a + n
        factor = x / divisor
        np.divide(term, divisor, out=divisor)
        slope -= divisor
        slope *= factor
        term *= factor
        total += term
        slopes += slope
        if (np.abs(slope) <= 1e-17 * np.abs(slopes)).all():
            break
    result = ((np.log(x) - functions.digamma(a + 1)) * total + slopes) / a
    return result.reshape(shape)


def _derivative_by_continued_fraction(a: Any, x: Any) -> Any:
    """Continued fraction of Q(a, x), evaluated together with its derivative."""
    weight = np.log(x) - scipy_special(np).digamma(a)
    result, pending = np.empty(x.size), np.arange(x.size)
    a, x, weight = a.reshape(-1), x.reshape(-1), weight.reshape(-1)
    y, z = 1 - a, x + 2 - a
    ones, zeros = np.ones_like(x), np.zeros_like(x)
    # p and q of the last two terms, and their derivatives
    older, newer = np.stack([ones, x]), np.stack([x + 1, z * x])
    older_slopes, newer_slopes = np.stack([zeros, zeros]), np.stack([zeros, -x])
    every = _TERMS_PER_CHECK if x.max(initial=0) < _HUGE else 1
    for n in range(1, _TERMS):
        y += 1
        z += 2
        following, scratch = newer * z, older * y
        scratch *= n
        following -= scratch
        following_slopes = newer_slopes * z
        following_slopes -= newer
        np.multiply(older_slopes, y, out=scratch)
        scratch *= n
        following_slopes -= scratch
        np.multiply(older, n, out=scratch)
        following_slopes += scratch
        if n % every == 0 or n == _TERMS - 1:
            before = _quotient_slope(newer, newer_slopes)[1]
        older, newer = newer, following
        older_slopes, newer_slopes = newer_slopes, following_slopes
        if n % every and n < _TERMS - 1:
            continue
        value, slope = _quotient_slope(newer, newer_slopes)
        exact = np.abs(slope) + np.abs(value * weight)
        done = ~(np.abs(slope - before) > _PRECISION * exact) | (n == _TERMS - 1)
        result[pending[done]] = -(slope + value * weight)[done]
        if done.all():
            break
        # a power of 2, so that scaling is exact
        scale = np.ldexp(1.0, -np.frexp(newer[0, ~done])[1])
        pending, y, z, weight = (array[~done] for array in (pending, y, z, weight))
        older, newer, older_slopes, newer_slopes = (
            array[:, ~done] * scale for array in (older, newer, older_slopes, newer_slopes)
        )
    return result


def _quotient_slope(terms: Any, slopes: Any) -> tuple[Any, Any]:
    """The quotient of the numbers p and q, and its derivative."""
    value = terms[0] / terms[1]
    return value, (slopes[0] - value * slopes[1]) / terms[1]
