"""Distinct elements and slices, and the difference of two lists."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.ops.kernels.array_namespace import checked_axis
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank, static_axis, with_dim

# up to this many elements, a dictionary numbers them faster than sorting
_FEW: Final = 64
# a number that no half-precision type has
_NO_HALF: Final = np.float32(1 + 2**-20)
# integers of a range at most this many times their number are numbered by tables
_SPARSEST: Final = 4


def first_positions(x: Any) -> tuple[Any, Any]:
    """Index of the first occurrence of each distinct element of a vector, and inverse indices.

    Distinct elements are numbered in order of first occurrence; NaN differs from itself.
    """
    x = _hashed(x)
    if x.dtype == object or len(x) <= _FEW:
        return _number_elements(x.tolist())
    if x.dtype.kind in "iu":
        low = x.min()
        extent = int(x.max()) - int(low)
        if extent < _SPARSEST * len(x):
            # differences are right also where large uint64 numbers wrap
            return _number_integers(x.astype(np.int64) - low.astype(np.int64), extent + 1)
    _, first, inverse = np.unique(x, return_index=True, return_inverse=True, equal_nan=False)
    order = np.argsort(first)
    numbers = np.empty_like(order)
    numbers[order] = np.arange(order.size)
    return first[order], numbers[inverse]


def _hashed(x: Any) -> Any:
    """Numbers that are equal where TensorFlow finds those of `x` equal.

    It hashes half-precision floats by their bits, so that -0 differs from 0.
    """
    if x.dtype.kind in "fV" and x.dtype.itemsize == 2:
        x = x.astype(np.float32)
        x[(x == 0) & np.signbit(x)] = _NO_HALF
    return x


def _number_integers(x: Any, bound: int) -> tuple[Any, Any]:
    """`first_positions` of integers from 0 to `bound` - 1, by tables of that length."""
    positions = np.full(bound, len(x))
    # the last assignment to an element of the table remains: the first occurrence
    positions[x[::-1]] = np.arange(len(x) - 1, -1, -1)
    present = np.flatnonzero(positions < len(x))
    order = present[np.argsort(positions[present])]
    numbers = np.empty_like(positions)
    numbers[order] = np.arange(len(order))
    return positions[order], numbers[x]


def _number_elements(elements: list[Any]) -> tuple[Any, Any]:
    seen: dict[Any, int] = {}
    first: list[int] = []
    inverse = np.empty(len(elements), np.int64)
    for position, element in enumerate(elements):
        number = seen.setdefault(element, len(seen))
        if number == len(first):
            first.append(position)
        inverse[position] = number
    return np.array(first, np.int64), inverse


class Unique(Op):
    """Distinct elements in order of first occurrence, and the index of each element among them."""

    signature = "x: T -> y: T, idx: out_idx"
    attrs = "out_idx: {int32, int64} = int32"
    compilation = CompilerSupport(traceable=False)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if xp is not np:
            raise NotImplementedError("a hash table on the host numbers distinct elements")
        dtype, counted = node.attr("out_idx").numpy, len(cls.parsed().outputs) == 3

        def unique(x: Any, axis: Any = None) -> Any:
            rows, along = x, 0
            if axis is not None and axis.size:
                if axis.ndim != 1 or axis.size != 1:
                    raise OpError("axis must be empty or a vector with one element")
                along = checked_axis(axis[0], x.ndim)
                rows = np.moveaxis(x, along, 0)
            elif x.ndim != 1:
                raise OpError("unique expects a 1D vector.")
            first, numbers = _distinct_rows(rows)
            distinct = np.moveaxis(rows[first], 0, along), numbers.astype(dtype)
            if not counted:
                return distinct
            return *distinct, np.bincount(numbers, minlength=first.size).astype(dtype)

        return unique

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data = context.inputs[0]
        if len(context.inputs) == 1:
            idx = require_rank(data, 1)
            return [vector_shape(), idx, vector_shape()][: context.output_count]
        axis = context.value(1)
        if data.dims is None or axis is None or axis.ndim != 1:
            return [UNKNOWN_SHAPE, vector_shape(), vector_shape()][: context.output_count]
        if not axis.size:
            idx = require_rank(data, 1)
            return [vector_shape(), idx, vector_shape()][: context.output_count]
        dim = static_axis(int(axis[0]), len(data.dims))
        distinct = with_dim(data, dim, None)
        return [distinct, vector_shape(data.dims[dim]), vector_shape()][: context.output_count]


def _distinct_rows(rows: Any) -> tuple[Any, Any]:
    if rows.size == len(rows):
        return first_positions(rows.reshape(-1))
    return _number_elements([tuple(row.reshape(-1).tolist()) for row in rows])


class UniqueV2(Unique):
    """Distinct slices along an axis, and the index of each slice among them."""

    signature = "x: T, axis: Taxis -> y: T, idx: out_idx"
    attrs = "Taxis: {int32, int64} = int64, out_idx: {int32, int64} = int32"


class UniqueWithCounts(Unique):
    """Unique, and the number of occurrences of each distinct element."""

    signature = "x: T -> y: T, idx: out_idx, count: out_idx"


class UniqueWithCountsV2(Unique):
    """UniqueV2, and the number of occurrences of each distinct slice."""

    signature = "x: T, axis: Taxis -> y: T, idx: out_idx, count: out_idx"
    attrs = "Taxis: {int32, int64} = int64, out_idx: {int32, int64} = int32"


class ListDiff(Op):
    """Elements of x that are not in y, and their positions in x."""

    signature = "x: T, y: T -> out: T, idx: out_idx"
    attrs = "out_idx: {int32, int64} = int32"
    compilation = CompilerSupport(traceable=False)

    @staticmethod
    def kernel(xp: ModuleType, out_idx: DType, /, x: Any, y: Any) -> Any:
        if x.ndim != 1 or y.ndim != 1:
            raise OpError("x and y should be 1D vectors.")
        if x.dtype.kind in "iu" and len(x) > _FEW:
            idx = np.flatnonzero(~np.isin(x, y)).astype(out_idx.numpy)
            return x[idx], idx
        known = set(_hashed(y).tolist())
        positions = [
            position for position, element in enumerate(_hashed(x).tolist()) if element not in known
        ]
        idx = np.array(positions, out_idx.numpy)
        return x[idx], idx

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        require_rank(context.inputs[0], 1)
        require_rank(context.inputs[1], 1)
        return [vector_shape(), vector_shape()]
