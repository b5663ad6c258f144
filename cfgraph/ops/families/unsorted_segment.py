"""Reductions of slices by segment number, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, ShapeError, vector_shape
from cfgraph.limits import reserve_array
from cfgraph.ops.families.segment import (
    COUNT,
    IDS,
    NUMERIC,
    REAL,
    SEGMENT_ATTRS,
    SegmentOp,
    combine_segments,
    extreme_finite,
    segment_extreme_gradient,
    segment_product_gradient,
    segment_sum_gradient,
)
from cfgraph.ops.kernels.array_namespace import FEW_NUMBERS, accumulated_at, defer_check
from cfgraph.ops.opdef.batching import BatchBuilder
from cfgraph.ops.opdef.op import OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, static_int


class UnsortedSegmentOp(SegmentOp, abstract=True):
    """Reduction of slices by unsorted segment number; negative numbers are dropped."""

    signature = "data: T, segment_ids: Tindices, num_segments: const Tnumsegments -> output: T"
    attrs = f"T: {REAL}, {IDS}, {COUNT}"
    ufunc: ClassVar[Any]
    sums = "UnsortedSegmentSum"
    drops = True
    # value of a segment without slices
    start = staticmethod(lambda node: node.attr("T").numpy.type(0))

    @staticmethod
    def batching(g: BatchBuilder, node: Node) -> Output:
        rank, depth = map(g.rank, node.inputs[:2])
        order = [*range(1, depth + 1), 0, *range(depth + 1, rank + 1)]
        moved = g.Transpose(g.value(0), g.const(order))
        combined = g.copy(node, moved, g.shared(1), g.shared(2))
        order = [1, 0, *range(2, rank - depth + 2)]
        result: Output = g.Transpose(combined, g.const(order))
        return result

    @classmethod
    def kernel(cls, xp: ModuleType, start: Any, /, data: Any, ids: Any, num_segments: Any) -> Any:
        count, ufunc = int(num_segments), cls.ufunc
        if count < 0:
            raise OpError("Input num_segments == " + str(count) + " must not be negative.")
        if data.shape[: ids.ndim] != ids.shape:
            raise OpError(
                f"data.shape = {list(data.shape)} does not start with segment_ids.shape = "
                f"{list(ids.shape)}"
            )
        rows, flat = data.reshape((ids.size, *data.shape[ids.ndim :])), ids.reshape(-1)
        if xp is not np:
            defer_check(lambda: flat < count)
            return combine_unsorted_segments(xp, SEGMENT_ATTRS[ufunc], start, rows, flat, count)
        if flat.size <= FEW_NUMBERS:
            numbers = flat.tolist()
            least, most = min(numbers, default=0), max(numbers, default=-1)
        else:
            least, most = flat.min(), flat.max()
        if most >= count:
            position = int((flat >= count).argmax())
            message = f"segment_ids[{position}] = {flat[position]} is out of range [0, {count})"
            raise OpError(message)
        if least < 0:
            rows, flat = rows[flat >= 0], flat[flat >= 0]
        return combine_segments(xp, ufunc, start, rows, flat, count)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data, ids = context.inputs[:2]
        count = static_int(context, 2)
        if count is not None and count < 0:
            raise ShapeError(f"num_segments must not be negative, got {count}")
        if data.dims is None or ids.rank is None:
            return [UNKNOWN_SHAPE]
        data[: ids.rank].merge(ids)
        return [vector_shape(count) + data[ids.rank :]]


def combine_unsorted_segments(
    xp: ModuleType, reduction: str, start: Any, rows: Any, ids: Any, count: int
) -> Any:
    """Reduce slices without checking segment numbers: slices out of range are dropped."""
    reserve_array((int(count) + 1, *rows.shape[1:]), rows.dtype.itemsize)
    segments = xp.full((count + 1, *rows.shape[1:]), start, rows.dtype)
    inside = xp.where((ids < 0) | (ids >= count), count, ids)
    return accumulated_at(xp, segments, inside, rows, reduction)[:count]


class UnsortedSegmentSum(UnsortedSegmentOp):
    """Sum of the slices of each segment."""

    attrs = f"T: {NUMERIC}, Tindices: {{int16, int32, int64}}, {COUNT}"
    ufunc = np.add
    gradient = classmethod(segment_sum_gradient)


class UnsortedSegmentProd(UnsortedSegmentOp):
    """Product of the slices of each segment; 1 for an empty segment."""

    attrs = f"T: {NUMERIC}, {IDS}, {COUNT}"
    ufunc = np.multiply
    start = staticmethod(lambda node: node.attr("T").numpy.type(1))
    gradient = classmethod(segment_product_gradient)


class UnsortedSegmentMax(UnsortedSegmentOp):
    """Maximum of the slices of each segment; the lowest finite number for an empty segment."""

    ufunc = np.maximum
    # the propagation of NaN depends on the order of the slices
    compilation = replace(UnsortedSegmentOp.compilation, traceable=False)
    start = staticmethod(lambda node: extreme_finite(node.attr("T").numpy, largest=False))
    gradient = classmethod(segment_extreme_gradient)


class UnsortedSegmentMin(UnsortedSegmentOp):
    """Minimum of the slices of each segment; the highest finite number for an empty segment."""

    ufunc = np.minimum
    compilation = replace(UnsortedSegmentOp.compilation, traceable=False)
    start = staticmethod(lambda node: extreme_finite(node.attr("T").numpy, largest=True))
    gradient = classmethod(segment_extreme_gradient)
