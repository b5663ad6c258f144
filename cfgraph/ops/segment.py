"""Rows combined by sorted segment numbers."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape, vector_shape
from cfgraph.ops import segment_gradients
from cfgraph.ops.dims import static_int, want_rank, want_rank_at_least
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, OpError
from cfgraph.ops.segment_gradients import BySegment
from cfgraph.ops.writes import accumulated

REAL = (
    "{float32, float64, int32, uint8, int16, int8, int64, bfloat16, uint16, float16, uint32, "
    "uint64}"
)
NUMERIC = (
    "{float32, float64, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, "
    "bfloat16, qint16, quint16, uint16, complex128, float16, uint32, uint64}"
)
# what `accumulated` calls the ufuncs
HOW: Final = {np.add: "add", np.multiply: "multiply", np.minimum: "min", np.maximum: "max"}
IDS = "Tindices: {int32, int64}"
COUNT = "Tnumsegments: {int32, int64} = int32"


def combined(xp: ModuleType, ufunc: Any, start: Any, rows: Any, ids: Any, count: int) -> Any:
    """`count` segments, each `start` combined with the rows of its number, in order.

    Compared with NaN the later row stays, whichever of the two it is.
    """
    result: Any = np.full_like(rows, start, shape=(count, *rows.shape[1:]))
    if not isinstance(result, np.ndarray):
        return accumulated(xp, result, ids, rows, HOW[ufunc])
    wins = {np.maximum: np.greater, np.minimum: np.less}.get(ufunc)
    if wins is None or rows.dtype.kind in "iu" or not np.isnan(rows).any():
        ufunc.at(result, ids, rows)
        return result
    for number, row in zip(ids.tolist(), rows, strict=True):
        result[number] = np.where(wins(result[number], row), result[number], row)
    return result


def extreme(dtype: Any, *, largest: bool) -> Any:
    """The largest or smallest finite number of a type."""
    if dtype.kind in "iu":
        info: Any = np.iinfo(dtype)
    else:
        import ml_dtypes

        finfo: Any = ml_dtypes.finfo
        info = finfo(dtype)
    return dtype.type(info.max if largest else info.min)


class Segment(BySegment, abstract=True):
    """Rows of equal, sorted segment numbers become one; a number that is missing has a default."""

    ufunc: ClassVar[Any]
    missing: ClassVar[int] = 0
    sums = "SegmentSum"
    traceable = False

    @classmethod
    def reduced(cls, xp: ModuleType, rows: Any, ids: Any, count: int) -> Any:
        """The segments; overridden where a ufunc does not say it."""
        return combined(xp, cls.ufunc, cls.missing, rows, ids, count)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        def segment(data: Any, ids: Any, count: Any = None) -> Any:
            if data.ndim < 1:
                message = "data must be at least rank 1"
                raise OpError(message)
            if ids.ndim != 1:
                message = "segment_ids should be a vector."
                raise OpError(message)
            if ids.size != data.shape[0]:
                message = (
                    "segment_ids should be the same size as dimension 0 of input, "
                    f"{ids.size} vs. {data.shape[0]}"
                )
                raise OpError(message)
            check_sorted(ids)
            size = (int(ids[-1]) + 1 if ids.size else 0) if count is None else int(count)
            if ids.size and ids[-1] >= size:
                message = f"segment ids must be less than num_segments {size}, got {ids[-1]}"
                raise OpError(message)
            return cls.reduced(xp, data, ids, size)

        return segment

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data = want_rank_at_least(context.inputs[0], 1)
        ids = want_rank(context.inputs[1], 1)
        data[:1].merge(ids)
        value = context.value(1)
        if len(context.inputs) > 2:
            size = static_int(context, 2)
        elif value is None or value.ndim != 1:
            size = None
        else:
            size = int(value[-1]) + 1 if value.size else 0
        return [vector_shape(None if size is None or size < 0 else size) + data[1:]]


def check_sorted(ids: Any) -> None:
    """Raise OpError unless segment numbers are sorted and not negative."""
    if not ids.size:
        return
    if ids[0] < 0:
        message = "segment ids must be >= 0"
        raise OpError(message)
    if (ids[1:] < ids[:-1]).any():
        message = "segment ids are not increasing"
        raise OpError(message)


class SegmentSum(Segment):
    """The sum of the rows of each segment."""

    signature = "data: T, segment_ids: Tindices -> output: T"
    attrs = f"T: {NUMERIC}, {IDS}"
    ufunc = np.add

    gradient = classmethod(segment_gradients.of_sum)


class SegmentProd(Segment):
    """The product of the rows of each segment; 1 where there is none."""

    signature = "data: T, segment_ids: Tindices -> output: T"
    attrs = f"T: {NUMERIC}, {IDS}"
    ufunc = np.multiply
    missing = 1

    gradient = classmethod(segment_gradients.of_prod)


class SegmentMean(Segment):
    """The mean of the rows of each segment; 0 where there is none."""

    signature = "data: T, segment_ids: Tindices -> output: T"
    attrs = f"T: {NUMERIC}, {IDS}"

    @classmethod
    def reduced(cls, xp: ModuleType, rows: Any, ids: Any, count: int) -> Any:
        total = combined(xp, np.add, 0, rows, ids, count)
        many = np.maximum(np.bincount(ids, minlength=count), 1).astype(rows.dtype)
        many = many.reshape((-1,) + (1,) * (rows.ndim - 1))
        if rows.dtype.kind not in "iu":
            return total / many
        # integers are divided towards zero
        quotient = np.abs(total) // many
        return np.where(total < 0, -quotient, quotient).astype(rows.dtype)

    gradient = classmethod(segment_gradients.of_mean)


class Extremes(Segment, abstract=True):
    """Segments whose rows are compared; 0 where there is none."""

    largest: ClassVar[bool]

    @classmethod
    def reduced(cls, xp: ModuleType, rows: Any, ids: Any, count: int) -> Any:
        start = extreme(rows.dtype, largest=cls.largest)
        result = combined(xp, cls.ufunc, start, rows, ids, count)
        result[np.bincount(ids, minlength=count) == 0] = 0
        return result

    gradient = classmethod(segment_gradients.of_extreme)


class SegmentMax(Extremes):
    """The maximum of the rows of each segment."""

    signature = "data: T, segment_ids: Tindices -> output: T"
    attrs = f"T: {REAL}, {IDS}"
    ufunc = np.maximum
    largest = False


class SegmentMin(Extremes):
    """The minimum of the rows of each segment."""

    signature = "data: T, segment_ids: Tindices -> output: T"
    attrs = f"T: {REAL}, {IDS}"
    ufunc = np.minimum
    largest = True


class SegmentSumV2(SegmentSum):
    """SegmentSum with the number of segments given."""

    signature = "data: T, segment_ids: Tindices, num_segments: Tnumsegments -> output: T"
    attrs = f"T: {NUMERIC}, {IDS}, {COUNT}"
    sums = "SegmentSumV2"


class SegmentProdV2(SegmentProd):
    """SegmentProd with the number of segments given."""

    signature = "data: T, segment_ids: Tindices, num_segments: Tnumsegments -> output: T"
    attrs = f"T: {NUMERIC}, {IDS}, {COUNT}"
    sums = "SegmentSumV2"


class SegmentMaxV2(SegmentMax):
    """SegmentMax with the number of segments given."""

    signature = "data: T, segment_ids: Tindices, num_segments: Tnumsegments -> output: T"
    attrs = f"T: {REAL}, {IDS}, {COUNT}"
    sums = "SegmentSumV2"


class SegmentMinV2(SegmentMin):
    """SegmentMin with the number of segments given."""

    signature = "data: T, segment_ids: Tindices, num_segments: Tnumsegments -> output: T"
    attrs = f"T: {REAL}, {IDS}, {COUNT}"
    sums = "SegmentSumV2"
