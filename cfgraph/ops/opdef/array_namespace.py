"""Kernels across NumPy, CuPy, and jax: host fallback, and functional array updates."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ops.opdef.op import Kernel


def is_gpu_namespace(xp: ModuleType) -> bool:
    """True for the array library of a GPU, whose arrays must be copied to the host explicitly."""
    return hasattr(xp, "asnumpy")


def run_on_host(xp: ModuleType, function: Kernel) -> Kernel:
    """Adapt a function of NumPy arrays to arrays of a namespace."""
    if xp is np:
        return function
    fetch = getattr(xp, "asnumpy", np.asarray)

    def call(*inputs: Any) -> Any:
        result = function(*map(fetch, inputs))
        return tuple(map(xp.asarray, result)) if isinstance(result, tuple) else xp.asarray(result)

    return call


# the ufunc of each operation of jax's `.at`
_UFUNC_NAMES = {"add": "add", "subtract": "subtract", "min": "minimum", "max": "maximum"}


def updated_at(array: Any, index: Any, value: Any) -> Any:
    """A copy of `array` with `value` at `index`."""
    if hasattr(array, "at"):
        return array.at[index].set(value)
    result = array.copy()
    result[index] = value
    return result


def accumulated_at(xp: ModuleType, array: Any, index: Any, value: Any, how: str) -> Any:
    """A copy of `array` with `value` combined (`how`) at `index`, once per occurrence."""
    if hasattr(array, "at"):
        if how == "subtract":
            return array.at[index].add(-value)
        either = how == "add" and array.dtype == bool
        return getattr(array.at[index], "max" if either else how)(value)
    result = array.copy()
    if how == "subtract" and not isinstance(result, np.ndarray):
        how, value = "add", -value  # CuPy has no atomic subtraction
    getattr(xp, _UFUNC_NAMES.get(how, how)).at(result, index, value)
    return result
