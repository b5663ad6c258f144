"""Tensors and variants as elements of lists, arrays, and optionals: zeros, sums, stacking."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.shapes import Shape
from cfgraph.limits import reserve_array
from cfgraph.ops.opdef.op import OpError


def zeros_like_value(value: Any) -> Any:
    """Zeros like a value: an array, a variant, or an array of variants."""
    if hasattr(value, "zeros_like"):
        return value.zeros_like()
    return map_objects(_zero_item, value) if value.dtype == object else np.zeros_like(value)


def zeros_like_element(value: Any) -> Any:
    """Zeros like an element of a list. Raises OpError for strings."""
    if isinstance(value, np.ndarray) and any(isinstance(v, bytes) for v in value.flat[:1]):
        raise OpError("Trying to compute zeros_like for unsupported dtype string")
    return zeros_like_value(value)


def _zero_item(item: Any) -> Any:
    return b"" if isinstance(item, bytes) else zeros_like_value(item)


def add_values(a: Any, b: Any) -> Any:
    """The sum of two values: arrays, variants, or arrays of variants."""
    if isinstance(a, np.ndarray) and a.dtype == object and not a.ndim:
        a = a[()]
    if isinstance(a, bytes):
        raise OpError("cannot add strings")
    if hasattr(a, "add"):
        return a.add(b)
    if a.shape != b.shape:
        raise OpError(f"Cannot add tensors of shapes {Shape(a.shape)} and {Shape(b.shape)}")
    return a + b if a.dtype != object else map_objects(add_values, a, b)


def map_objects(function: Any, *arrays: Any) -> Any:
    """Apply a function to each item of object arrays."""
    result = np.empty(arrays[0].shape, object)
    for index in np.ndindex(result.shape):
        result[index] = function(*(array[index] for array in arrays))
    return result


class EmptyVariant:
    """A variant without a value; it can only be forwarded."""

    __slots__ = ()
    shape = ()
    ndim = 0

    def zeros_like(self) -> Any:
        """Raise OpError, since an empty variant has no value."""
        raise OpError("an empty variant has no zeros")

    def add(self, other: Any) -> Any:
        """Raise OpError, since an empty variant has no value."""
        raise OpError("an empty variant has no sum")

    def __repr__(self) -> str:
        return "<empty variant>"


EMPTY_VARIANT: Final = EmptyVariant()


def zeros_of_dtype(xp: ModuleType, dtype: DType, shape: Sequence[int]) -> Any:
    """Zeros, empty strings, or empty variants. Raises OpError for resources."""
    if not dtype.is_object:
        reserve_array(map(int, shape), dtype.numpy.itemsize)
    if dtype.kind == "string":
        return np.full(shape, b"", object)
    if dtype.kind == "variant":
        return np.full(shape, EMPTY_VARIANT, object) if len(shape) else EMPTY_VARIANT
    if dtype.is_object:
        raise OpError(f"type {dtype} has no zero")
    return xp.zeros(shape, dtype.numpy)


def stack_values(xp: ModuleType, dtype: DType, values: Sequence[Any], shape: Sequence[int]) -> Any:
    """Stack values of equal shape along a new first axis."""
    if dtype.is_object:
        result = np.empty((len(values), *shape), object)
        for index, value in enumerate(values):
            result[index] = value if not shape and dtype.kind != "string" else value[()]
        return result
    if not values:
        return xp.zeros((0, *shape), dtype.numpy)
    if not shape and isinstance(values[0], np.generic):
        return np.array(values, dtype.numpy)
    if xp is not np:
        return xp.stack(values)
    stacked = np.empty((len(values), *shape), dtype.numpy)
    for index, value in enumerate(values):
        stacked[index] = value
    return stacked


def unstack_value(value: Any) -> list[Any]:
    """The slices of a tensor along its first axis."""
    if value.dtype != object or value.ndim > 1:
        return list(value)
    return [object_item(item) for item in value]


def object_item(item: Any) -> Any:
    """One item of an object array as a value: strings as arrays, variants bare."""
    return np.array(item, object) if isinstance(item, bytes) else item


def unwrap_scalar_object(value: Any) -> Any:
    """A variant or resource of rank 0 as its object; any other value unchanged."""
    if isinstance(value, np.ndarray) and not value.ndim and value.dtype == object:
        item: Any = value[()]
        return value if isinstance(item, bytes) else item
    return value
