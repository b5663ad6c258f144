"""A copy of an array with some places changed, in any array namespace."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

# what the ufuncs are called whose `.at` makes a change
_UFUNCS = {"add": "add", "subtract": "subtract", "min": "minimum", "max": "maximum"}


def written(array: Any, index: Any, value: Any) -> Any:
    """A copy of `array` with `value` at `index`."""
    if hasattr(array, "at"):
        return array.at[index].set(value)
    result = array.copy()
    result[index] = value
    return result


def accumulated(xp: ModuleType, array: Any, index: Any, value: Any, how: str) -> Any:
    """A copy of `array` with `value` added (`how`) at `index`, once for each time it is named."""
    if hasattr(array, "at"):
        if how == "subtract":
            return array.at[index].add(-value)
        either = how == "add" and array.dtype == bool
        return getattr(array.at[index], "max" if either else how)(value)
    result = array.copy()
    if how == "subtract" and not isinstance(result, np.ndarray):
        how, value = "add", -value  # a card has no atomic difference
    getattr(xp, _UFUNCS.get(how, how)).at(result, index, value)
    return result
