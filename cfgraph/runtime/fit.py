"""Fit arrays to the type and the shape of a tensor, without losing what they say."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cfgraph.errors import UsageError
from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType
from cfgraph.ir.shapes import Shape


def fit(array: Any, dtype: DType) -> Any:
    """An array as one of type `dtype`: rounding to fewer digits is all that may happen to it.

    Raises UsageError where a value would overflow, lose its fraction or change its meaning.
    """
    have, want = array.dtype, dtype.numpy
    if dtype.is_object or have.kind in "SUO":
        return _fit_strings(array, dtype)
    if have == want:
        return array
    if have.kind == "V" and have.names is None and have.itemsize == want.itemsize:
        return array.view(want)  # how .npy files hold bfloat16 and float8
    source = _kind(have)
    if source == dtype.kind == "bool":
        return array.astype(want)
    if source not in _SOURCES.get(dtype.kind, ()):
        raise UsageError(f"the value has type {have.name}, {dtype} is wanted", code="CFG034")
    if dtype.is_integer:
        return _fit_integers(array, dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        fitted = array.astype(want)
    lost = np.isfinite(array) & ~np.isfinite(fitted)
    if lost.any():
        value = array[lost].flat[0]
        raise UsageError(f"{value} is beyond the range of {dtype}", code="CFG034")
    if (np.isinf(array) & ~np.isinf(fitted)).any():
        raise UsageError(f"{dtype} has no infinity", code="CFG034")
    return fitted


_SOURCES: Final = {
    "int": ("int", "float"),
    "uint": ("int", "float"),
    "float": ("int", "float"),
    "complex": ("int", "float", "complex"),
}


def _kind(dtype: Any) -> str:
    try:
        kind = DType.from_numpy(dtype).kind
    except TypeError:
        return "none"
    return "int" if kind == "uint" else kind


def _fit_integers(array: Any, dtype: DType) -> Any:
    if _kind(array.dtype) == "float":
        array = array.astype(np.float64)
        if (bad := ~(array == np.trunc(array)) | np.isinf(array)).any():
            raise UsageError(f"{array[bad].flat[0]} is no {dtype}", code="CFG034")
    if array.size:
        low, high = limits(dtype)
        for value in (int(array.min()), int(array.max())):
            if not low <= value <= high:
                raise out_of_range(value, dtype)
    return array.astype(dtype.numpy)


def _fit_strings(array: Any, dtype: DType) -> Any:
    if dtype is not dtypes.string:
        raise UsageError(f"{_told(array)}, {dtype} is wanted", code="CFG034")
    if array.dtype.kind not in "SUO":
        message = f"the value has type {array.dtype.name}, {dtype} is wanted"
        raise UsageError(message, code="CFG034")
    made = np.empty(array.shape, object)
    items = (item.encode() if isinstance(item, str) else bytes(item) for item in array.flat)
    made.reshape(-1)[:] = list(items)
    return made


def _told(array: Any) -> str:
    """What there is instead of numbers."""
    items = array.flat if array.dtype.kind == "O" else ()
    strange = next((item for item in items if not isinstance(item, str | bytes)), "")
    if strange is None:
        return "the value is None" if array.ndim == 0 else "the value has None in it"
    return "the value has strings" if strange == "" else f"the value is a {type(strange).__name__}"


def check_shape(shape: tuple[int, ...], wanted: Shape) -> None:
    """Raise UsageError, naming the dimension, where a value does not have the wanted shape."""
    if wanted.accepts(shape):
        return
    assert wanted.dims is not None
    both = f"(expected {wanted}, got {Shape(shape)})"
    if len(shape) != len(wanted.dims):
        message = f"the rank is {len(shape)}, expected {len(wanted.dims)} {both}"
        raise UsageError(message, code="CFG035")
    place = next(
        place
        for place, (have, want) in enumerate(zip(shape, wanted.dims, strict=True))
        if want not in (None, have)
    )
    message = f"dimension {place} is {shape[place]}, expected {wanted.dims[place]} {both}"
    raise UsageError(message, code="CFG035")


def limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    if dtype.numpy.kind in "iu":
        info = np.iinfo(dtype.numpy)
        return int(info.min), int(info.max)
    bits = int("".join(filter(str.isdigit, dtype.name)))  # int4 and the like, from ml_dtypes
    return (0, 2**bits - 1) if dtype.kind == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def out_of_range(value: int, dtype: DType) -> UsageError:
    """The error of an integer that its type cannot hold."""
    low, high = limits(dtype)
    return UsageError(f"{value} is out of range for {dtype} ({low} to {high})", code="CFG034")
