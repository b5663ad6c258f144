"""Error functions, with their own kernels in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import pi, sqrt
from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.families.special import SpecialFunction
from cfgraph.ops.opdef.array_namespace import computed_in_float32
from cfgraph.ops.opdef.gradient_api import GradientBuilder, gradient_from_input
from cfgraph.ops.opdef.op import Kernel


def _gaussian(g: GradientBuilder, x: Output) -> Output:
    return g.Exp(g.Neg(g.Square(x)))


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """The value of a polynomial in float32, whose highest coefficient comes first."""
    result = x * np.float32(coefficients[0])
    result += np.float32(coefficients[1])
    for coefficient in coefficients[2:]:
        result *= x
        result += np.float32(coefficient)
    return result


# beyond it, erf is 1 in float32
_ERF_BOUND: Final = np.float32(3.7439211627767994)
_ERF_OVER: Final = (
    *(0.00022905065861350646, 0.0034082910107109506, 0.050955695062380861),
    *(0.18520832239976145, 1.128379143519084),
)
_ERF_UNDER: Final = (
    *(-1.1791602954361697e-7, 0.000023547966471313185, 0.0010179625278914885),
    *(0.014070470171167667, 0.11098505178285362, 0.49746925110067538, 1.0),
)
# Press et al. 1992, Numerical Recipes, section 6.2
_ERFC: Final = (
    *(0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807),
    *(-0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223),
)
# beyond it, erfc is 0 in float32
_ERFC_BOUND: Final = np.float32(11)


def _erf_float32(x: Any) -> Any:
    """erf as a quotient of polynomials, as XLA computes it; SciPy takes four times as long."""
    inner = np.clip(x, -_ERF_BOUND, _ERF_BOUND)
    square = inner * inner
    result = _polynomial(square, _ERF_OVER)
    result *= inner
    result /= _polynomial(square, _ERF_UNDER)
    return np.where(np.abs(x) >= _ERF_BOUND, np.sign(x), result)[()]


def _erfc_float32(x: Any) -> Any:
    """erfc with a relative error of 1e-6; the exponent is split, since its square is not exact."""
    size = np.minimum(np.abs(x), _ERFC_BOUND)
    scale = 1 / (1 + np.float32(0.5) * size)
    rounded = np.rint(size * np.float32(16)) / np.float32(16)
    exponent = _polynomial(scale, _ERFC)
    exponent -= (size - rounded) * (size + rounded)
    result = np.exp(exponent) * np.exp(-rounded * rounded) * scale
    # 2 - erfc(-x) for negative x
    return np.copysign(result, x) + np.float32(2) * np.signbit(x)


class ErrorFunction(SpecialFunction, abstract=True):
    """Error function that NumPy computes in float32 for dtypes of at most 32 bits."""

    function_float32: ClassVar[Callable[..., Any]]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if xp is np and node.attr("T").numpy.itemsize <= np.dtype(np.float32).itemsize:
            return computed_in_float32(cls.function_float32, node.attr("T"))
        return super().bind(node, xp)


class Erf(ErrorFunction):
    """Error function."""

    function = "erf"
    function_float32 = staticmethod(_erf_float32)
    gradient = gradient_from_input(lambda g, dy, x: g.Mul(_gaussian(g, x), g.Mul(dy, 2 / sqrt(pi))))


class Erfc(ErrorFunction):
    """Complementary error function: 1 - erf(x)."""

    function = "erfc"
    function_float32 = staticmethod(_erfc_float32)
    gradient = gradient_from_input(
        lambda g, dy, x: g.Mul(_gaussian(g, x), g.Mul(dy, -2 / sqrt(pi)))
    )
