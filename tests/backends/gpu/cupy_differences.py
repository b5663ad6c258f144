"""Known differences between the results of CuPy and NumPy, reproduced on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import ml_dtypes
import numpy as np

BFLOAT16: Final = np.dtype(ml_dtypes.bfloat16)
# functions that fill an array with one value, by a kernel or by clearing memory
FILL: Final = {"full", "full_like", "array", "asarray"}


def filling(value: Any) -> Any:
    """A host value that fills an array; memory is cleared for 0, and so for -0.0."""
    scalar = isinstance(value, np.generic | float) or (
        isinstance(value, np.ndarray) and not value.ndim
    )
    if not scalar or isinstance(value, np.bool_ | np.complexfloating) or value != 0:
        return value
    return abs(value)


def converted(array: Any, dtype: np.dtype[Any]) -> Any:
    """Numbers as another dtype; floats out of range become its limits, NaN becomes 0."""
    if array.dtype.kind != "f" or dtype.kind not in "iu":
        return array.astype(dtype)
    ends = np.iinfo(dtype)
    with np.errstate(all="ignore"):
        inside = (array > float(ends.min) - 1) & (array < float(ends.max) + 1)
        made = np.where(inside, array, 0).astype(dtype)
    made = np.where(array >= float(ends.max) + 1, dtype.type(ends.max), made)
    return np.where(array <= float(ends.min), dtype.type(ends.min), made)


def _mod(x: Any, y: Any, **options: Any) -> Any:
    made = np.mod(x, y, **options)
    if made.dtype.kind != "f":
        return made
    with np.errstate(all="ignore"):
        return (x - np.floor(x / np.asarray(y)) * y).astype(made.dtype)


def _fmod(x: Any, y: Any, **options: Any) -> Any:
    made = np.fmod(x, y, **options)
    if made.dtype.kind == "f":
        return made
    with np.errstate(all="ignore"):
        wide = np.fmod(np.asarray(x, float), np.asarray(y, float))
        return np.where(np.asarray(y) == 0, 0, wide).astype(made.dtype)


def _widening(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function without a bfloat16 loop, which runs its float32 loop and returns float32."""

    def call(*args: Any, **options: Any) -> Any:
        wide = (
            item.astype(np.float32) if getattr(item, "dtype", None) == BFLOAT16 else item
            for item in args
        )
        return function(*wide, **options)

    return call


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "mod": _mod,
    "remainder": _mod,
    "fmod": _fmod,
    "where": _widening(np.where),
    "clip": _widening(np.clip),
}
