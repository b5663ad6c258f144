"""A copy of an array with some places changed, in any array namespace."""

from __future__ import annotations

from typing import Any

import numpy as np

# what NumPy's ufuncs and the `.at` of traced arrays call the same change
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
    if not isinstance(result, np.ndarray):
        _accumulate_on_device(result, index, value, how)
    else:
        _UFUNCS[how].at(result, index, value)
    return result


def _accumulate_on_device(result: Any, index: Any, value: Any, how: str) -> None:
    import cupy

    ufuncs = {
        "add": cupy.add,
        "subtract": cupy.subtract,
        "min": cupy.minimum,
        "max": cupy.maximum,
    }
    ufuncs[how].at(result, index, value)
