"""NumPy's functions on one number of Python, for rules that are written for arrays."""

from __future__ import annotations

from math import floor, isfinite, lgamma, log, sqrt
from typing import Any

__all__ = ["absolute", "clip", "floor", "isfinite", "lgamma", "log", "sqrt", "where"]

absolute = abs


def where(condition: bool, chosen: Any, otherwise: Any) -> Any:
    """One of two numbers."""
    return chosen if condition else otherwise


def clip(x: float, low: float, high: float) -> float:
    """A number limited to a range."""
    return min(max(x, low), high)
