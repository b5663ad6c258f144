"""Kernels across NumPy, CuPy, and jax: host fallback, functional updates, half precision."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.dtypes import DType, bfloat16, float16
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


def computed_in_float32(kernel: Kernel, dtype: DType) -> Kernel:
    """Make a kernel compute half-precision floats in float32 and round its results once."""
    if dtype not in (bfloat16, float16):
        return kernel
    narrow = dtype.numpy

    def wide(*inputs: Any) -> Any:
        result = kernel(*(_cast(x, narrow, np.float32) for x in inputs))
        if isinstance(result, tuple):
            return tuple(_cast(x, np.float32, narrow) for x in result)
        return _cast(result, np.float32, narrow)

    return wide


def _cast(value: Any, have: Any, want: Any) -> Any:
    return value.astype(want) if getattr(value, "dtype", None) == have else value
