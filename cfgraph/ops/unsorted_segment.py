"""Slices combined by segment numbers in any order."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.ops import segment_gradients
from cfgraph.ops.dims import static_int
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, OpError
from cfgraph.ops.segment import COUNT, HOW, IDS, NUMERIC, REAL, combined, extreme
from cfgraph.ops.segment_gradients import BySegment
from cfgraph.ops.writes import accumulated


class UnsortedSegment(BySegment, abstract=True):
    """Slices of equal segment numbers become one; those of negative numbers are dropped."""

    ufunc: ClassVar[Any]
    sums = "UnsortedSegmentSum"
    drops = True
    host_inputs = (2,)
    constant_inputs = (2,)

    @classmethod
    def start(cls, dtype: Any) -> Any:
        """What a segment without slices is."""
        return dtype.type(0)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        start, ufunc = cls.start(node.attr("T").numpy), cls.ufunc

        def unsorted_segment(data: Any, ids: Any, num_segments: Any) -> Any:
            count = int(num_segments)
            if count < 0:
                message = "Input num_segments == " + str(count) + " must not be negative."
                raise OpError(message)
            if data.shape[: ids.ndim] != ids.shape:
                message = (
                    f"data.shape = {list(data.shape)} does not start with segment_ids.shape = "
                    f"{list(ids.shape)}"
                )
                raise OpError(message)
            rows, flat = data.reshape((ids.size, *data.shape[ids.ndim :])), ids.reshape(-1)
            if xp is not np:
                return unchecked(xp, HOW[ufunc], start, rows, flat, count)
            if flat.size and flat.max() >= count:
                place = int((flat >= count).argmax())
                message = f"segment_ids[{place}] = {flat[place]} is out of range [0, {count})"
                raise OpError(message)
            if flat.size and flat.min() < 0:
                rows, flat = rows[flat >= 0], flat[flat >= 0]
            return combined(xp, ufunc, start, rows, flat, count)

        return unsorted_segment

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data, ids = context.inputs[:2]
        count = static_int(context, 2)
        if count is not None and count < 0:
            message = f"num_segments must not be negative, got {count}"
            raise ValueError(message)
        if data.dims is None or ids.rank is None:
            return [UNKNOWN_SHAPE]
        data[: ids.rank].merge(ids)
        return [vector_shape(count) + data[ids.rank :]]


def unchecked(xp: ModuleType, how: str, start: Any, rows: Any, ids: Any, count: int) -> Any:
    """The segments without a look at the numbers: those outside go to a segment that is dropped."""
    segments = xp.full((count + 1, *rows.shape[1:]), start, rows.dtype)
    inside = xp.where((ids < 0) | (ids >= count), count, ids)
    return accumulated(xp, segments, inside, rows, how)[:count]


class UnsortedSegmentSum(UnsortedSegment):
    """The sum of the slices of each segment."""

    signature = "data: T, segment_ids: Tindices, num_segments: Tnumsegments -> output: T"
    attrs = f"T: {NUMERIC}, Tindices: {{int16, int32, int64}}, {COUNT}"
    ufunc = np.add

    gradient = classmethod(segment_gradients.of_sum)


class UnsortedSegmentProd(UnsortedSegment):
    """The product of the slices of each segment."""

    signature = "data: T, segment_ids: Tindices, num_segments: Tnumsegments -> output: T"
    attrs = f"T: {NUMERIC}, {IDS}, {COUNT}"
    ufunc = np.multiply

    @classmethod
    def start(cls, dtype: Any) -> Any:
        return dtype.type(1)

    gradient = classmethod(segment_gradients.of_prod)


class UnsortedSegmentMax(UnsortedSegment):
    """The maximum of the slices of each segment; the lowest number where there is none."""

    signature = "data: T, segment_ids: Tindices, num_segments: Tnumsegments -> output: T"
    attrs = f"T: {REAL}, {IDS}, {COUNT}"
    ufunc = np.maximum
    traceable = False  # what becomes of NaN depends on the order

    @classmethod
    def start(cls, dtype: Any) -> Any:
        return extreme(dtype, largest=False)

    gradient = classmethod(segment_gradients.of_extreme)


class UnsortedSegmentMin(UnsortedSegment):
    """The minimum of the slices of each segment; the largest number where there is none."""

    signature = "data: T, segment_ids: Tindices, num_segments: Tnumsegments -> output: T"
    attrs = f"T: {REAL}, {IDS}, {COUNT}"
    ufunc = np.minimum
    traceable = False

    @classmethod
    def start(cls, dtype: Any) -> Any:
        return extreme(dtype, largest=True)

    gradient = classmethod(segment_gradients.of_extreme)
