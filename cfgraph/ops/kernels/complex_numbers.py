"""Functions of complex numbers that are NaN at infinity or at a pole, as TensorFlow's formulas are.

The C library, and so NumPy, takes limits there: 1 / inf is 0.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np


def quotient(xp: ModuleType, x: Any, y: Any) -> Any:
    """Quotient x / y; that of two single numbers is the C library's in TensorFlow, too."""
    value = x / y
    return value if value.size == 1 else _nan_where(xp, xp.isinf(y) | (y == 0), value)


def reciprocal(xp: ModuleType, x: Any) -> Any:
    """Reciprocal 1 / x; that of a single number is the C library's."""
    return xp.reciprocal(x) if x.size == 1 else _nan_where(xp, xp.isinf(x), xp.reciprocal(x))


def reciprocal_root(xp: ModuleType, x: Any) -> Any:
    """Reciprocal of the square root; 0 at infinity."""
    return xp.where(xp.isinf(x), xp.zeros((), x.dtype), xp.reciprocal(xp.sqrt(x)))


def sign(xp: ModuleType, x: Any) -> Any:
    """Quotient x / |x|; 0 at 0."""
    return _nan_where(xp, xp.isinf(x), xp.sign(x))


def log1p(xp: ModuleType, x: Any) -> Any:
    """Natural logarithm log(1 + x); infinite at the real infinity alone."""
    return _nan_where(xp, xp.isinf(x) & (x != xp.inf), xp.log1p(x))


def expm1(xp: ModuleType, x: Any) -> Any:
    """Exponential minus one."""
    value = xp.expm1(x)
    return _nan_where(xp, xp.isinf(value), value)


def logistic(xp: ModuleType, x: Any) -> Any:
    """Logistic function; 0 where the real part is minus infinity."""
    return xp.where(x.real == -xp.inf, xp.zeros((), x.dtype), xp.reciprocal(1 + xp.exp(-x)))


def power(xp: ModuleType, x: Any, y: Any) -> Any:
    """Power x^y, by the logarithm of x: NaN for 0^0."""
    return xp.exp(y * xp.log(x))


def _nan_where(xp: ModuleType, condition: Any, value: Any) -> Any:
    if xp is np and not condition.any():
        return value
    return xp.where(condition, value.dtype.type(xp.nan), value)
