"""Sums and products of half-precision floats, in the order and rounding of TensorFlow on a CPU.

Each operation rounds. Eigen (`TensorReduction.h`) reduces a row in packets of 8 values, four at a
time, and divides a long row that it adds into halves; the 8 results are combined in float32.
Columns are reduced in order, those of whole packets four rows at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import groupby, pairwise
from typing import Any, Final

import numpy as np

_PACKET: Final = 8
_UNROLLED: Final = 4
# longer rows are divided; bfloat16 is the other type
_LONGEST_LEAF: Final = {np.dtype(np.float16): 200 * _PACKET}
_LONGEST_OTHER_LEAF: Final = 128 * _PACKET
# columns are reduced four rows at a time from this length on
_SHORTEST_UNROLLED: Final = 16


def reduced_half(ufunc: np.ufunc, value: Any, axes: Iterable[int]) -> Any:
    """Return `ufunc.reduce` of a float16 or bfloat16 array over axes, which the result lacks.

    `ufunc` is `np.add` or `np.multiply`. Axes at both ends are reduced from first to last, with the
    first one innermost. Axes between others move to the end.
    """
    reduced = set(axes)
    kept = [axis for axis in range(value.ndim) if axis not in reduced]
    shape = tuple(value.shape[axis] for axis in kept)
    if not value.size or not reduced:
        return ufunc.reduce(value, tuple(reduced), value.dtype)
    runs = [
        [is_reduced, int(np.prod([value.shape[axis] for axis in run]))]
        for is_reduced, run in groupby(range(value.ndim), key=lambda axis: axis in reduced)
    ]
    sizes = [size for _, size in runs]
    if len(runs) == 3 and runs[0][0]:
        last_first = np.transpose(value.reshape(sizes), (1, 2, 0)).reshape(sizes[1], -1)
        return _reduce_sequentially(ufunc, last_first).reshape(shape)
    if len(runs) > 3:
        rows = np.moveaxis(value, kept, range(len(kept)))
        return _rows(ufunc, rows.reshape(int(np.prod(shape)), -1)).reshape(shape)
    if runs[-1][0]:
        return _rows(ufunc, value.reshape(*([1] * (len(sizes) < 2)), *sizes)).reshape(shape)
    return _columns(ufunc, value.reshape(*([1] * (len(sizes) < 3)), *sizes)).reshape(shape)


def _rows(ufunc: np.ufunc, value: Any) -> Any:
    """Reduce the second of two dimensions."""
    count, length = value.shape
    if length <= _longest_leaf(ufunc, value):
        return _leaf(ufunc, value)
    # where a long row is divided depends on the alignment of its start
    result = np.empty(count, value.dtype)
    for start in range(min(count, _PACKET)):
        rows = slice(start, None, _PACKET)
        result[rows] = _halves(ufunc, value[rows], start * length % _PACKET)
    return result


def _longest_leaf(ufunc: np.ufunc, value: Any) -> float:
    longest = _LONGEST_LEAF.get(value.dtype, _LONGEST_OTHER_LEAF)
    return longest if ufunc is np.add else math.inf


def _halves(ufunc: np.ufunc, value: Any, first: int) -> Any:
    length = value.shape[1]
    if length <= _longest_leaf(ufunc, value):
        return _leaf(ufunc, value)
    middle = -(-(first - (-length // 2)) // _PACKET) * _PACKET
    left, right = value[:, : middle - first], value[:, middle - first :]
    return ufunc(_halves(ufunc, left, first), _halves(ufunc, right, middle))


def _leaf(ufunc: np.ufunc, value: Any) -> Any:
    count, length = value.shape
    block = _PACKET * _UNROLLED
    ends = [0, length // block * block, length // _PACKET * _PACKET, length]
    blocks, packets, rest = (value[:, start:stop] for start, stop in pairwise(ends))
    packed = np.full((count, _PACKET), ufunc.identity, value.dtype)
    if blocks.size:
        packed = _unrolled(ufunc, blocks.reshape(count, -1, _UNROLLED, _PACKET))
    for start in range(0, packets.shape[1], _PACKET):
        packed = ufunc(packed, packets[:, start : start + _PACKET])
    wide = packed.astype(np.float32)
    for size in (4, 2, 1):
        wide = ufunc(wide[:, :size], wide[:, size:])
    result = np.full(count, ufunc.identity, value.dtype)
    for column in rest.T:
        result = ufunc(result, column)
    return ufunc(result, wide[:, 0].astype(value.dtype))


def _unrolled(ufunc: np.ufunc, blocks: Any) -> Any:
    """Reduce the second and third dimension; the third has four accumulators."""
    first, *others = np.moveaxis(_reduce_sequentially(ufunc, blocks), 1, 0)
    for other in others:
        first = ufunc(first, other)
    return first


def _reduce_sequentially(ufunc: np.ufunc, value: Any) -> Any:
    """Reduce the second dimension from first to last."""
    value = np.ascontiguousarray(value)
    if value.ndim == 2 or value[0, 0].size == 1:
        return ufunc.accumulate(value, 1)[:, -1]
    # NumPy adds pairwise, in float32, only along the innermost dimension
    return ufunc.reduce(value, 1, value.dtype)


def _columns(ufunc: np.ufunc, value: Any) -> Any:
    """Reduce the middle of three dimensions."""
    outer, length, inner = value.shape
    if length < _SHORTEST_UNROLLED:
        return _reduce_sequentially(ufunc, value)
    end = length // _UNROLLED * _UNROLLED
    result = _unrolled(ufunc, value[:, :end].reshape(outer, -1, _UNROLLED, inner))
    for index in range(end, length):
        result = ufunc(result, value[:, index])
    # packets of the result do not cross the end of a row
    starts = np.arange(0, outer * inner // _PACKET * _PACKET, _PACKET)
    packed = np.zeros(outer * inner, np.bool_)
    packed[: len(starts) * _PACKET] = np.repeat(starts % inner + _PACKET <= inner, _PACKET)
    if packed.all():
        return result
    return np.where(packed.reshape(outer, inner), result, _reduce_sequentially(ufunc, value))
