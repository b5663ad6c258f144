"""Rows picked by indices and combined by sorted segments, and the gradients of that."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape, vector_shape
from cfgraph.ops.adjoint import Adjoint, Partials, index
from cfgraph.ops.dims import static_int, want_rank, want_rank_at_least
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError
from cfgraph.ops.segment import REAL, check_sorted, combined

_FLOAT = "{bfloat16, float16, float32, float64}"
_INDEX = "Tidx: {int32, int64} = int32"
_SEGMENT = "Tsegmentids: {int32, int64} = int32"
_COUNT = "Tnumsegments: {int32, int64} = int32"
_SPARSE = "sparse_gradient: bool = false"


class SparseSegment(Op, abstract=True):
    """The rows of `data` that `indices` picks, summed by segment and divided by `weight`."""

    # the power of the number of rows that a sum is divided by
    weight: ClassVar[float] = 0
    traceable = False

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        weight = cls.weight

        def sparse_segment(data: Any, indices: Any, ids: Any, count: Any = None) -> Any:
            if data.ndim < 1:
                message = "Shape must be at least rank 1"
                raise OpError(message)
            _check_pair(indices, ids)
            if indices.size and not (indices.min() >= 0 and indices.max() < data.shape[0]):
                message = f"indices {indices.tolist()} are out of range [0, {data.shape[0]})"
                raise OpError(message)
            check_sorted(ids)
            least = int(ids[-1]) + 1 if ids.size else 0
            size = least if count is None else int(count)
            if size < least:
                message = f"segment ids must be < num_segments {size}, got {ids[-1]}"
                raise OpError(message)
            wide = _wide(data.dtype)
            total = combined(xp, np.add, 0, data[indices].astype(wide, copy=False), ids, size)
            if weight:
                total = total / _divisor(ids, size, weight, total)
            return total.astype(data.dtype, copy=False)

        return sparse_segment

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data = want_rank_at_least(context.inputs[0], 1)
        want_rank(context.inputs[1], 1).merge(context.inputs[2])
        if len(context.inputs) > 3:
            return [vector_shape(static_int(context, 3)) + data[1:]]
        return [vector_shape() + data[1:]]

    # what adds the rows of segments to those that they came from
    adjoint: ClassVar[str]

    @classmethod
    def gradient(cls, g: Adjoint, node: Node, dz: Output) -> Partials:
        data, indices, ids = node.inputs[:3]
        dx = getattr(g, cls.adjoint)(dz, indices, ids, _row_count(g, data))
        return [dx, *[None] * (len(node.inputs) - 1)]


def _row_count(g: Adjoint, x: Output) -> Output:
    (size,) = g.known_shape(x)[:1].dims or (None,)
    if size is not None:
        return index(g, size)
    first = (index(g, [item]) for item in (0, 1, 1))
    return g.StridedSlice(g.shape(x), *first, shrink_axis_mask=1)


def _check_pair(indices: Any, ids: Any) -> None:
    if indices.ndim != 1 or ids.ndim != 1 or indices.size != ids.size:
        message = (
            "segment_ids and indices should be vectors of the same size, not of the shapes "
            f"{list(ids.shape)} and {list(indices.shape)}"
        )
        raise OpError(message)


def _wide(dtype: Any) -> Any:
    """The type that is summed in."""
    return dtype if dtype.itemsize > 2 or dtype.kind in "iu" else np.dtype(np.float32)


def _divisor(ids: Any, size: int, weight: float, like: Any) -> Any:
    many = np.maximum(np.bincount(ids, minlength=size), 1)
    scale = many.astype(like.dtype) if weight == 1 else np.sqrt(many.astype(like.dtype))
    return scale.reshape((-1,) + (1,) * (like.ndim - 1))


class SparseSegmentSum(SparseSegment):
    """The sum of the picked rows of each segment."""

    signature = "data: T, indices: Tidx, segment_ids: Tsegmentids -> output: T"
    attrs = f"T: {REAL}, {_INDEX}, {_SEGMENT}, {_SPARSE}"
    adjoint = "SparseSegmentSumGrad"


class SparseSegmentMean(SparseSegment):
    """The mean of the picked rows of each segment."""

    signature = "data: T, indices: Tidx, segment_ids: Tsegmentids -> output: T"
    attrs = f"T: {_FLOAT}, {_INDEX}, {_SEGMENT}, {_SPARSE}"
    adjoint = "SparseSegmentMeanGrad"
    weight = 1


class SparseSegmentSqrtN(SparseSegment):
    """The sum of the picked rows of each segment, divided by the root of their number."""

    signature = "data: T, indices: Tidx, segment_ids: Tsegmentids -> output: T"
    attrs = f"T: {_FLOAT}, {_INDEX}, {_SEGMENT}, {_SPARSE}"
    adjoint = "SparseSegmentSqrtNGrad"
    weight = 0.5


class SparseSegmentSumWithNumSegments(SparseSegmentSum):
    """SparseSegmentSum with the number of segments given."""

    signature = (
        "data: T, indices: Tidx, segment_ids: Tsegmentids, num_segments: Tnumsegments -> output: T"
    )
    attrs = f"T: {REAL}, {_INDEX}, {_COUNT}, {_SEGMENT}, {_SPARSE}"
    host_inputs = (3,)
    constant_inputs = (3,)


class SparseSegmentMeanWithNumSegments(SparseSegmentMean):
    """SparseSegmentMean with the number of segments given."""

    signature = (
        "data: T, indices: Tidx, segment_ids: Tsegmentids, num_segments: Tnumsegments -> output: T"
    )
    attrs = f"T: {_FLOAT}, {_INDEX}, {_COUNT}, {_SEGMENT}, {_SPARSE}"
    host_inputs = (3,)
    constant_inputs = (3,)


class SparseSegmentSqrtNWithNumSegments(SparseSegmentSqrtN):
    """SparseSegmentSqrtN with the number of segments given."""

    signature = (
        "data: T, indices: Tidx, segment_ids: Tsegmentids, num_segments: Tnumsegments -> output: T"
    )
    attrs = f"T: {_FLOAT}, {_INDEX}, {_COUNT}, {_SEGMENT}, {_SPARSE}"
    host_inputs = (3,)
    constant_inputs = (3,)


class SparseSegmentGrad(Op, abstract=True):
    """The gradient: each segment's row, divided as the sum was, added to the rows it came from."""

    weight: ClassVar[float] = 0
    host_inputs = (3,)
    constant_inputs = (3,)
    traceable = False

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        weight, compact = cls.weight, len(cls.parsed().outputs) == 2

        def sparse_segment_grad(grad: Any, indices: Any, ids: Any, rows: Any) -> Any:
            _check_pair(indices, ids)
            size, segments = int(rows), grad.shape[0]
            if ids.size and not (ids.min() >= 0 and ids.max() < segments):
                message = f"Segment ids {ids.tolist()} are out of range [0, {segments})"
                raise OpError(message)
            if indices.size and not (indices.min() >= 0 and indices.max() < size):
                message = f"Indices {indices.tolist()} are out of range [0, {size})"
                raise OpError(message)
            wide = grad.astype(_wide(grad.dtype), copy=False)
            if weight:
                wide = wide / _divisor(ids, segments, weight, wide)
            if not compact:
                return combined(xp, np.add, 0, wide[ids], indices, size).astype(grad.dtype)
            named, place = np.unique(indices, return_inverse=True)
            total = combined(xp, np.add, 0, wide[ids], place, named.size)
            return total.astype(grad.dtype), named

        return sparse_segment_grad

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        grad = want_rank_at_least(context.inputs[0], 1)
        want_rank(context.inputs[1], 1).merge(context.inputs[2])
        size = static_int(context, 3)
        if context.output_count == 2:
            return [vector_shape() + grad[1:], vector_shape()]
        return [vector_shape(size) + grad[1:]]

    # what combines the rows again
    adjoint: ClassVar[str]

    @classmethod
    def gradient(cls, g: Adjoint, node: Node, dz: Output, *_: Output | None) -> Partials:
        grad, indices, ids, rows = node.inputs
        if len(cls.parsed().outputs) == 2:
            dz = g.UnsortedSegmentSum(dz, node.output(1), rows)
        return getattr(g, cls.adjoint)(dz, indices, ids, _row_count(g, grad)), None, None, None


_GRAD = "grad: T, indices: Tidx, segment_ids: Tsegmentids, output_dim0: int32 -> output: T"
_GRAD_V2 = (
    "grad: T, indices: Tidx, segment_ids: Tsegmentids, dense_output_dim0: int32 "
    "-> output: T, sorted_unique_indices: Tidx"
)
_GRAD_ATTRS = f"T: {_FLOAT}, {_INDEX}, {_SEGMENT}"


class SparseSegmentSumGrad(SparseSegmentGrad):
    """The gradient of SparseSegmentSum."""

    signature = _GRAD
    attrs = _GRAD_ATTRS
    adjoint = "SparseSegmentSumWithNumSegments"


class SparseSegmentMeanGrad(SparseSegmentGrad):
    """The gradient of SparseSegmentMean."""

    signature = _GRAD
    attrs = _GRAD_ATTRS
    adjoint = "SparseSegmentMeanWithNumSegments"
    weight = 1


class SparseSegmentSqrtNGrad(SparseSegmentGrad):
    """The gradient of SparseSegmentSqrtN."""

    signature = _GRAD
    attrs = _GRAD_ATTRS
    adjoint = "SparseSegmentSqrtNWithNumSegments"
    weight = 0.5


class SparseSegmentSumGradV2(SparseSegmentGrad):
    """The gradient of SparseSegmentSum, of those rows only that were picked."""

    signature = _GRAD_V2
    attrs = _GRAD_ATTRS
    adjoint = "SparseSegmentSumWithNumSegments"


class SparseSegmentMeanGradV2(SparseSegmentGrad):
    """The gradient of SparseSegmentMean, of those rows only that were picked."""

    signature = _GRAD_V2
    attrs = _GRAD_ATTRS
    adjoint = "SparseSegmentMeanWithNumSegments"
    weight = 1


class SparseSegmentSqrtNGradV2(SparseSegmentGrad):
    """The gradient of SparseSegmentSqrtN, of those rows only that were picked."""

    signature = _GRAD_V2
    attrs = _GRAD_ATTRS
    adjoint = "SparseSegmentSqrtNWithNumSegments"
    weight = 0.5
