"""NumPy's functions on one number of Python, for rules that are written for arrays."""

from __future__ import annotations

import math
from typing import Any

absolute, maximum, float64 = abs, max, float
ceil, floor, isfinite, isnan = math.ceil, math.floor, math.isfinite, math.isnan
sqrt, exp, log, log1p, lgamma = math.sqrt, math.exp, math.log, math.log1p, math.lgamma
sin, cos = math.sin, math.cos


def where(condition: bool, chosen: Any, otherwise: Any) -> Any:
    """One of two numbers."""
    return chosen if condition else otherwise


def clip(x: float, low: float, high: float) -> float:
    """A number limited to a range."""
    return min(max(x, low), high)
