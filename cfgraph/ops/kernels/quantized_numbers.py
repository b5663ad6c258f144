"""Conversion between floats and quantized integers, rounded as TensorFlow's CPU kernels round.

A range [low, high] of floats is divided evenly among the integers of a type. TensorFlow converts in
two ways that round differently: single numbers in double precision, whole tensors in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from cfgraph.ops.opdef.op import OpError

_F32: Final = np.float32
_F64: Final = np.float64
# int32 has no float32 next to its bounds: those of a conversion to float32 and back
_LEAST_CAST: Final = _F32(-(2.0**31))
_GREATEST_CAST: Final = _F32(2.0**31 - 128)


def round_away(x: Any) -> Any:
    """Round to the nearest integer; halves are rounded away from zero."""
    whole = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= 0.5, np.sign(x), x.dtype.type(0))


@dataclass(frozen=True, slots=True)
class QuantizedType:
    """The integers of a quantized type."""

    dtype: np.dtype[Any]
    least: int
    greatest: int

    @property
    def count(self) -> int:
        """The number of integers."""
        return self.greatest - self.least + 1


@lru_cache(maxsize=16)
def quantized_type(dtype: Any) -> QuantizedType:
    """The integers of a NumPy type."""
    limits = np.iinfo(dtype)
    return QuantizedType(np.dtype(dtype), int(limits.min), int(limits.max))


def wrapped_int32(x: Any) -> Any:
    """Integers modulo 2^32, as int32."""
    return np.asarray(x, np.int64).astype(np.uint32).view(np.int32)


@dataclass(frozen=True, slots=True)
class QuantizedInterval:
    """A range of floats that the integers of a type represent."""

    type: QuantizedType
    low: Any
    high: Any

    @property
    def _width(self) -> Any:
        """The width in double precision, from the first integer to the one after the last."""
        count = self.type.count
        return _F64(self.high - self.low) * (_F64(count) / (_F64(count) - 1.0))

    @property
    def float_per_level(self) -> Any:
        """The difference of the floats of two adjacent integers."""
        return (self.high - self.low) / _F32(self.type.greatest - self.type.least)

    def unclamped(self, x: Any) -> Any:
        """The int64 that represent float32 numbers, not clamped to the range of the type."""
        x = np.asarray(x, _F32)
        if self.low == self.high:
            return np.full(x.shape, self.type.least, np.int64)
        scale = _F64(self.type.count) / self._width
        steps = round_away(x * scale) - round_away(self.low * scale)
        return steps.astype(np.int64) + np.int64(self.type.least)

    def quantized(self, x: Any) -> Any:
        """The integers of the type that represent float32 numbers, computed in double precision."""
        clamped = np.clip(self.unclamped(x), self.type.least, self.type.greatest)
        return clamped.astype(self.type.dtype)

    @property
    def offset(self) -> Any:
        """The integer that represents zero, modulo 2^32 as int32."""
        return wrapped_int32(self.unclamped(0))[()]

    def floats(self, x: Any) -> Any:
        """The float32 numbers that integers represent, computed in double precision."""
        if self.low == self.high:
            return np.full(np.shape(x), self.low, _F32)
        scale = self._width / _F64(self.type.count)
        start = round_away(self.low / _F32(scale)) * _F32(scale)
        return (_F64(start) + (np.asarray(x, _F64) - self.type.least) * scale).astype(_F32)

    def tensor_floats(self, x: Any) -> Any:
        """The float32 numbers that integers represent, computed in float32."""
        scale = _F32(_F64(self.high - self.low) / (_F64(self.type.count) - 1.0))
        is_empty = self.low == self.high
        start = self.low if is_empty else round_away(self.low / scale) * scale
        return (start - _F32(self.type.least) * scale) + x.astype(_F32) * scale

    def tensor_quantized(self, x: Any) -> Any:
        """The integers of the type that represent float32 numbers, computed in float32."""
        is_empty = self.low == self.high
        width = _F64(self.high - self.low)
        scale = _F32(0.0 if is_empty else (_F64(self.type.count) - 1.0) / width)
        start = round_away(self.low * scale) - _F32(self.type.least)
        steps = round_away(x * scale) - start
        lowest = np.maximum(_F32(self.type.least), _LEAST_CAST)
        highest = np.minimum(_F32(self.type.greatest), _GREATEST_CAST)
        return np.clip(steps, lowest, highest).astype(np.int32).astype(self.type.dtype)


def interval(dtype: Any, low: Any, high: Any) -> QuantizedInterval:
    """The range of the integers of a NumPy type. Raises OpError for bounds that are no scalars."""
    bounds = [np.asarray(bound, _F32) for bound in (low, high)]
    for bound in bounds:
        if bound.ndim:
            raise OpError(f"the bounds of a range must be scalars, got shape {list(bound.shape)}")
    low, high = (bound[()] for bound in bounds)
    return QuantizedInterval(quantized_type(dtype), low, high)


def requantized(x: Any, source: QuantizedInterval, target: QuantizedInterval) -> Any:
    """Integers of one range as integers of another, computed in double precision."""
    return target.quantized(source.floats(x))


def product_interval(x: QuantizedInterval, y: QuantizedInterval) -> QuantizedInterval:
    """The range of products of integers, less their offsets."""
    result = quantized_type(np.int32)
    level = x.float_per_level * y.float_per_level
    return QuantizedInterval(result, level * _F32(result.least), level * _F32(result.greatest))
