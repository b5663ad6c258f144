"""Reductions of rows by sorted segment number, and gradients of all reductions by segment."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape, vector_shape
from cfgraph.limits import reserve_array
from cfgraph.ops.kernels.array_namespace import accumulated_at, combine_at
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    conjugate,
    int32_constant,
    row_shape,
)
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import (
    InferenceContext,
    require_rank,
    require_rank_at_least,
    static_int,
)


class SegmentOp(Op, abstract=True):
    """Reduction of the rows that share a segment number to one row."""

    sums: ClassVar[str]  # op with the same additional inputs that sums by segment
    drops: ClassVar[bool] = False  # rows with negative segment numbers are ignored


def segment_sum_gradient(
    cls: type[SegmentOp], g: GradientBuilder, node: Node, dz: Output
) -> InputGradients:
    """Gradient of a segment sum: each row receives the gradient of its segment."""
    return [_rows_of_segments(cls, g, node, dz), *[None] * (len(node.inputs) - 1)]


def segment_mean_gradient(
    cls: type[SegmentOp], g: GradientBuilder, node: Node, dz: Output
) -> InputGradients:
    """Gradient of a segment mean: the segment's gradient divided by its row count."""
    ids = node.inputs[1]
    counts = g.Cast(g.Maximum(g.SegmentSum(g.OnesLike(ids), ids), 1), DstT=dz.dtype)
    return segment_sum_gradient(cls, g, node, g.RealDiv(dz, _column_like(g, counts, dz)))


def segment_extreme_gradient(
    cls: type[SegmentOp], g: GradientBuilder, node: Node, dz: Output
) -> InputGradients:
    """Gradient of a segment extreme, divided equally among the tied elements of each segment."""
    x = node.inputs[0]
    chosen = g.Cast(g.Equal(x, _rows_of_segments(cls, g, node, node.output())), DstT=x.dtype)
    # an empty segment has a count of 0
    share = g.RealDiv(dz, g.Maximum(getattr(g, cls.sums)(chosen, *node.inputs[1:]), 1))
    return [g.Mul(_rows_of_segments(cls, g, node, share), chosen), *[None] * (len(node.inputs) - 1)]


def segment_product_gradient(
    cls: type[SegmentOp], g: GradientBuilder, node: Node, dz: Output
) -> InputGradients:
    """Gradient of a segment product: the product of the segment's remaining elements.

    An element equal to 0 receives the product of the nonzero elements; a segment with two or more
    zeros has gradient 0.
    """
    x = node.inputs[0]
    assert x.dtype is not None
    is_zero = g.Equal(x, 0)
    zeros = getattr(g, cls.sums)(g.Cast(is_zero, DstT=dtypes.int32), *node.inputs[1:])
    factor = g.SelectV2(is_zero, g.const(1, x.dtype), x)
    others = g.SelectV2(
        is_zero,
        _rows_of_segments(cls, g, node, getattr(g, cls.name)(factor, *node.inputs[1:])),
        g.RealDiv(_rows_of_segments(cls, g, node, node.output()), factor),
    )
    dz = g.SelectV2(g.Greater(zeros, 1), g.const(0, x.dtype), dz)
    return [
        g.Mul(_rows_of_segments(cls, g, node, dz), conjugate(g, others)),
        *[None] * (len(node.inputs) - 1),
    ]


def _rows_of_segments(cls: type[SegmentOp], g: GradientBuilder, node: Node, y: Output) -> Output:
    """The row of `y` for each element's segment, zero for dropped rows."""
    ids = node.inputs[1]
    known = g.known_value(ids)
    if not cls.drops or (known is not None and (known >= 0).all()):
        return g.GatherV2(y, ids, int32_constant(g, 0))
    # row 0 of `padded` stands for all negative segment numbers
    assert y.dtype is not None
    dims = row_shape(g, y)
    known = g.known_value(dims)
    sizes = (
        g.ConcatV2(int32_constant(g, [1]), dims, int32_constant(g, 0))
        if known is None
        else int32_constant(g, [1, *known])
    )
    padded = g.ConcatV2(g.Fill(sizes, g.const(0, y.dtype)), y, int32_constant(g, 0))
    return g.GatherV2(padded, g.AddV2(g.Maximum(ids, -1), 1), int32_constant(g, 0))


def _column_like(g: GradientBuilder, x: Output, y: Output) -> Output:
    """Reshape the vector `x` for broadcasting against the rows of `y`."""
    shape, rank = g.known_shape(x), g.known_shape(y).rank
    if rank == 1:
        return x
    if rank is None:
        bounds = (int32_constant(g, [value]) for value in (1, 0, 1))
        ones = g.OnesLike(g.StridedSlice(g.shape(y), *bounds, end_mask=1))
    elif shape.is_full:
        return g.Reshape(x, int32_constant(g, [*shape, *[1] * (rank - 1)]))
    else:
        ones = int32_constant(g, [1] * (rank - 1))
    return g.Reshape(x, g.ConcatV2(g.shape(x), ones, int32_constant(g, 0)))


REAL = (
    "{float32, float64, int32, uint8, int16, int8, int64, bfloat16, uint16, float16, uint32, "
    "uint64}"
)
NUMERIC = (
    "{float32, float64, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
    "bfloat16, qint16, quint16, uint16, complex128, float16, uint32, uint64}"
)
# attribute names of the ufuncs for `accumulated_at`
SEGMENT_ATTRS: Final = {
    np.add: "add",
    np.multiply: "multiply",
    np.minimum: "min",
    np.maximum: "max",
}
IDS = "Tindices: {int32, int64}"
COUNT = "Tnumsegments: {int32, int64} = int32"


def combine_segments(
    xp: ModuleType, ufunc: Any, start: Any, rows: Any, ids: Any, count: int
) -> Any:
    """Reduce rows by segment number into `count` rows that start from `start`, in order.

    Comparisons with NaN are false, so the later row wins.
    """
    reserve_array((int(count), *rows.shape[1:]), rows.dtype.itemsize)
    shape = count, *rows.shape[1:]
    if type(rows) is np.ndarray:
        result: Any = np.full(shape, start, rows.dtype)
    else:
        result = np.full_like(rows, start, shape=shape)
    if not isinstance(result, np.ndarray):
        return accumulated_at(xp, result, ids, rows, SEGMENT_ATTRS[ufunc])
    wins = {np.maximum: np.greater, np.minimum: np.less}.get(ufunc)
    if wins is None or rows.dtype.kind in "iu" or not np.isnan(rows).any():
        combine_at(ufunc, result, ids, rows)
        return result
    for number, row in zip(ids.tolist(), rows, strict=True):
        result[number] = np.where(wins(result[number], row), result[number], row)
    return result


def extreme_finite(dtype: Any, *, largest: bool) -> Any:
    """The largest or smallest finite number of a dtype."""
    info: Any
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
    elif dtype.isbuiltin == 1:
        info = np.finfo(dtype)
    else:
        import ml_dtypes

        limits: Any = ml_dtypes.finfo
        info = limits(dtype)
    return dtype.type(info.max if largest else info.min)


class SortedSegment(SegmentOp, abstract=True):
    """Reduction by sorted segment numbers; segments without rows have a default value."""

    ufunc: ClassVar[Any]
    missing: ClassVar[int] = 0
    sums = "SegmentSum"
    compilation = CompilerSupport(traceable=False)

    @classmethod
    def reduced(cls, xp: ModuleType, rows: Any, ids: Any, count: int) -> Any:
        """The reduced segments; overridden where one ufunc is not sufficient."""
        return combine_segments(xp, cls.ufunc, cls.missing, rows, ids, count)

    @classmethod
    def kernel(cls, xp: ModuleType, data: Any, ids: Any, count: Any = None) -> Any:
        if data.ndim < 1:
            raise OpError("data must be at least rank 1")
        if ids.ndim != 1:
            raise OpError("segment_ids should be a vector.")
        if ids.size != data.shape[0]:
            raise OpError(
                "segment_ids should be the same size as dimension 0 of input, "
                f"{ids.size} vs. {data.shape[0]}"
            )
        check_sorted_ids(ids)
        size = (int(ids[-1]) + 1 if ids.size else 0) if count is None else int(count)
        if ids.size and ids[-1] >= size:
            raise OpError(f"segment ids must be less than num_segments {size}, got {ids[-1]}")
        return cls.reduced(xp, data, ids, size)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data = require_rank_at_least(context.inputs[0], 1)
        ids = require_rank(context.inputs[1], 1)
        data[:1].merge(ids)
        value = context.value(1)
        if len(context.inputs) > 2:
            size = static_int(context, 2)
        elif value is None or value.ndim != 1:
            size = None
        else:
            size = int(value[-1]) + 1 if value.size else 0
        return [vector_shape(None if size is None or size < 0 else size) + data[1:]]


def check_sorted_ids(ids: Any) -> None:
    """Raise OpError unless segment numbers are sorted and nonnegative."""
    if not ids.size:
        return
    if ids[0] < 0:
        raise OpError("segment ids must be >= 0")
    if (ids[1:] < ids[:-1]).any():
        raise OpError("segment ids are not increasing")


class SegmentSum(SortedSegment):
    """Sum of the rows of each segment."""

    signature = "data: T, segment_ids: Tindices -> output: T"
    attrs = f"T: {NUMERIC}, {IDS}"
    ufunc = np.add
    gradient = classmethod(segment_sum_gradient)


class SegmentProd(SortedSegment):
    """Product of the rows of each segment; 1 for an empty segment."""

    signature = "data: T, segment_ids: Tindices -> output: T"
    attrs = f"T: {NUMERIC}, {IDS}"
    ufunc = np.multiply
    missing = 1
    gradient = classmethod(segment_product_gradient)


class SegmentMean(SortedSegment):
    """Mean of the rows of each segment; 0 for an empty segment."""

    signature = "data: T, segment_ids: Tindices -> output: T"
    attrs = f"T: {NUMERIC}, {IDS}"

    @classmethod
    def reduced(cls, xp: ModuleType, rows: Any, ids: Any, count: int) -> Any:
        total = combine_segments(xp, np.add, 0, rows, ids, count)
        counts = np.maximum(np.bincount(ids, minlength=count), 1).astype(rows.dtype)
        counts = counts.reshape((-1,) + (1,) * (rows.ndim - 1))
        if rows.dtype.kind not in "iu":
            return total / counts
        # integer division truncates toward zero, as in C
        quotient = np.abs(total) // counts
        return np.where(total < 0, -quotient, quotient).astype(rows.dtype)

    gradient = classmethod(segment_mean_gradient)


class SegmentExtreme(SortedSegment, abstract=True):
    """Extreme of the rows of each segment; 0 for an empty segment."""

    signature = "data: T, segment_ids: Tindices -> output: T"
    attrs = f"T: {REAL}, {IDS}"
    largest: ClassVar[bool]

    @classmethod
    def reduced(cls, xp: ModuleType, rows: Any, ids: Any, count: int) -> Any:
        start = extreme_finite(rows.dtype, largest=cls.largest)
        result = combine_segments(xp, cls.ufunc, start, rows, ids, count)
        result[np.bincount(ids, minlength=count) == 0] = 0
        return result

    gradient = classmethod(segment_extreme_gradient)


class SegmentMax(SegmentExtreme):
    """Maximum of the rows of each segment; 0 for an empty segment."""

    ufunc = np.maximum
    largest = False


class SegmentMin(SegmentExtreme):
    """Minimum of the rows of each segment; 0 for an empty segment."""

    ufunc = np.minimum
    largest = True


class SegmentSumV2(SegmentSum):
    """SegmentSum with an explicit number of segments."""

    signature = "data: T, segment_ids: Tindices, num_segments: Tnumsegments -> output: T"
    attrs = f"T: {NUMERIC}, {IDS}, {COUNT}"
    sums = "SegmentSumV2"


class SegmentProdV2(SegmentProd):
    """SegmentProd with an explicit number of segments."""

    signature = "data: T, segment_ids: Tindices, num_segments: Tnumsegments -> output: T"
    attrs = f"T: {NUMERIC}, {IDS}, {COUNT}"
    sums = "SegmentSumV2"


class SegmentMaxV2(SegmentMax):
    """SegmentMax with an explicit number of segments."""

    signature = "data: T, segment_ids: Tindices, num_segments: Tnumsegments -> output: T"
    attrs = f"T: {REAL}, {IDS}, {COUNT}"
    sums = "SegmentSumV2"


class SegmentMinV2(SegmentMin):
    """SegmentMin with an explicit number of segments."""

    signature = "data: T, segment_ids: Tindices, num_segments: Tnumsegments -> output: T"
    attrs = f"T: {REAL}, {IDS}, {COUNT}"
    sums = "SegmentSumV2"
