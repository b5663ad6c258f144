"""A copy of an array with some places changed, in any array namespace."""

from __future__ import annotations

from typing import Any

import numpy as np

# what NumPy's ufuncs, the `.at` of traced arrays and the arrays of a card call the same change
_UFUNCS = {"add": np.add, "subtract": np.subtract, "min": np.minimum, "max": np.maximum}


def written(array: Any, index: Any, value: Any) -> Any:
    """A copy of `array` with `value` at `index`."""
    if hasattr(array, "at"):
        return array.at[index].set(value)
    result = array.copy()
    result[index] = value
    return result


def accumulated(array: Any, index: Any, value: Any, how: str) -> Any:
    """A copy of `array` with `value` added (`how`) at `index`, once for each time it is named."""
    if hasattr(array, "at"):
        if how == "subtract":
            return array.at[index].add(-value)
        either = how == "add" and array.dtype == bool
        return getattr(array.at[index], "max" if either else how)(value)
    result = array.copy()
    if isinstance(result, np.ndarray):
        _UFUNCS[how].at(result, index, value)
    elif how == "subtract":
        result.scatter_add(index, -value)
    else:
        getattr(result, f"scatter_{how}")(index, value)
    return result
