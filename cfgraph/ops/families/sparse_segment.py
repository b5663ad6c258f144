"""Segment reductions of rows selected by index, with their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape, vector_shape
from cfgraph.ops.families.segment import REAL, check_sorted_ids, combine_segments
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    dimension_size,
)
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import (
    InferenceContext,
    require_rank,
    require_rank_at_least,
    static_int,
)

_FLOAT = "{bfloat16, float16, float32, float64}"
_INDEX = "Tidx: {int32, int64} = int32"
_SEGMENT = "Tsegmentids: {int32, int64} = int32"
_COUNT = "Tnumsegments: {int32, int64} = int32"
_SPARSE = "sparse_gradient: bool = false"


class SparseSegmentOp(Op, abstract=True):
    """Sum by segment of the rows that `indices` selects, divided by count ** `weight`."""

    signature = "data: T, indices: Tidx, segment_ids: Tsegmentids -> output: T"
    attrs = f"T: {_FLOAT}, {_INDEX}, {_SEGMENT}, {_SPARSE}"
    # exponent of the row count in the divisor: 0 sum, 1 mean, 0.5 square root
    weight: ClassVar[float] = 0
    compilation = CompilerSupport(traceable=False)

    @classmethod
    def kernel(cls, xp: ModuleType, data: Any, indices: Any, ids: Any, count: Any = None) -> Any:
        if data.ndim < 1:
            raise OpError("Shape must be at least rank 1")
        _check_indices_and_ids(indices, ids)
        if indices.size and not (indices.min() >= 0 and indices.max() < data.shape[0]):
            raise OpError(f"indices {indices.tolist()} are out of range [0, {data.shape[0]})")
        check_sorted_ids(ids)
        least = int(ids[-1]) + 1 if ids.size else 0
        size = least if count is None else int(count)
        if size < least:
            raise OpError(f"segment ids must be < num_segments {size}, got {ids[-1]}")
        accumulated = _sum_type(data.dtype)
        total = combine_segments(
            xp, np.add, 0, data[indices].astype(accumulated, copy=False), ids, size
        )
        if cls.weight:
            total = total / _segment_divisor(ids, size, cls.weight, total)
        return total.astype(data.dtype, copy=False)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data = require_rank_at_least(context.inputs[0], 1)
        require_rank(context.inputs[1], 1).merge(context.inputs[2])
        if len(context.inputs) > 3:
            return [vector_shape(static_int(context, 3)) + data[1:]]
        return [vector_shape() + data[1:]]

    # scatters the rows of segments back to their sources
    adjoint: ClassVar[str]

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        data, indices, ids = node.inputs[:3]
        dx = getattr(g, cls.adjoint)(dz, indices, ids, dimension_size(g, data, 0))
        return [dx, *[None] * (len(node.inputs) - 1)]


def _check_indices_and_ids(indices: Any, ids: Any) -> None:
    if indices.ndim != 1 or ids.ndim != 1 or indices.size != ids.size:
        raise OpError(
            "segment_ids and indices should be vectors of the same size, not of the shapes "
            f"{list(ids.shape)} and {list(indices.shape)}"
        )


def _sum_type(dtype: Any) -> Any:
    """The dtype of the accumulation."""
    return dtype if dtype.itemsize > 2 or dtype.kind in "iu" else np.dtype(np.float32)


def _segment_divisor(ids: Any, size: int, weight: float, rows: Any) -> Any:
    counts = np.maximum(np.bincount(ids, minlength=size), 1)
    scale = counts.astype(rows.dtype) if weight == 1 else np.sqrt(counts.astype(rows.dtype))
    return scale.reshape((-1,) + (1,) * (rows.ndim - 1))


class SparseSegmentSum(SparseSegmentOp):
    """Sum of the selected rows of each segment."""

    attrs = f"T: {REAL}, {_INDEX}, {_SEGMENT}, {_SPARSE}"
    adjoint = "SparseSegmentSumGrad"


class SparseSegmentMean(SparseSegmentOp):
    """Mean of the selected rows of each segment."""

    adjoint = "SparseSegmentMeanGrad"
    weight = 1


class SparseSegmentSqrtN(SparseSegmentOp):
    """Sum of the selected rows of each segment, divided by the square root of their number."""

    adjoint = "SparseSegmentSqrtNGrad"
    weight = 0.5


_WITH_NUM_SEGMENTS = (
    "data: T, indices: Tidx, segment_ids: Tsegmentids, num_segments: const Tnumsegments "
    "-> output: T"
)


class SparseSegmentSumWithNumSegments(SparseSegmentSum):
    """SparseSegmentSum with an explicit number of segments."""

    signature = _WITH_NUM_SEGMENTS
    attrs = f"T: {REAL}, {_INDEX}, {_COUNT}, {_SEGMENT}, {_SPARSE}"


class SparseSegmentMeanWithNumSegments(SparseSegmentMean):
    """SparseSegmentMean with an explicit number of segments."""

    signature = _WITH_NUM_SEGMENTS
    attrs = f"T: {_FLOAT}, {_INDEX}, {_COUNT}, {_SEGMENT}, {_SPARSE}"


class SparseSegmentSqrtNWithNumSegments(SparseSegmentSqrtN):
    """SparseSegmentSqrtN with an explicit number of segments."""

    signature = _WITH_NUM_SEGMENTS
    attrs = f"T: {_FLOAT}, {_INDEX}, {_COUNT}, {_SEGMENT}, {_SPARSE}"


class SparseSegmentGradOp(Op, abstract=True):
    """Gradient: each segment's row, scaled as in the forward op, added to its source rows."""

    signature = (
        "grad: T, indices: Tidx, segment_ids: Tsegmentids, output_dim0: const int32 -> output: T"
    )
    attrs = f"T: {_FLOAT}, {_INDEX}, {_SEGMENT}"
    weight: ClassVar[float] = 0
    compilation = CompilerSupport(traceable=False)

    @classmethod
    def kernel(cls, xp: ModuleType, grad: Any, indices: Any, ids: Any, rows: Any) -> Any:
        _check_indices_and_ids(indices, ids)
        size, segments = int(rows), grad.shape[0]
        if ids.size and not (ids.min() >= 0 and ids.max() < segments):
            raise OpError(f"Segment ids {ids.tolist()} are out of range [0, {segments})")
        if indices.size and not (indices.min() >= 0 and indices.max() < size):
            raise OpError(f"Indices {indices.tolist()} are out of range [0, {size})")
        scaled = grad.astype(_sum_type(grad.dtype), copy=False)
        if cls.weight:
            scaled = scaled / _segment_divisor(ids, segments, cls.weight, scaled)
        if len(cls.parsed().outputs) == 1:
            return combine_segments(xp, np.add, 0, scaled[ids], indices, size).astype(grad.dtype)
        selected, positions = np.unique(indices, return_inverse=True)
        total = combine_segments(xp, np.add, 0, scaled[ids], positions, selected.size)
        return total.astype(grad.dtype), selected

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        grad = require_rank_at_least(context.inputs[0], 1)
        require_rank(context.inputs[1], 1).merge(context.inputs[2])
        size = static_int(context, 3)
        if context.output_count == 2:
            return [vector_shape() + grad[1:], vector_shape()]
        return [vector_shape(size) + grad[1:]]

    # the forward op, which is the gradient of this op
    adjoint: ClassVar[str]

    @classmethod
    def gradient(
        cls, g: GradientBuilder, node: Node, dz: Output, *_: Output | None
    ) -> InputGradients:
        grad, indices, ids, rows = node.inputs
        if len(cls.parsed().outputs) == 2:
            dz = g.UnsortedSegmentSum(dz, node.output(1), rows)
        return (
            getattr(g, cls.adjoint)(dz, indices, ids, dimension_size(g, grad, 0)),
            None,
            None,
            None,
        )


_GRAD_V2 = (
    "grad: T, indices: Tidx, segment_ids: Tsegmentids, dense_output_dim0: const int32 "
    "-> output: T, sorted_unique_indices: Tidx"
)


class SparseSegmentSumGrad(SparseSegmentGradOp):
    """Gradient of SparseSegmentSum."""

    adjoint = "SparseSegmentSumWithNumSegments"


class SparseSegmentMeanGrad(SparseSegmentGradOp):
    """Gradient of SparseSegmentMean."""

    adjoint = "SparseSegmentMeanWithNumSegments"
    weight = 1


class SparseSegmentSqrtNGrad(SparseSegmentGradOp):
    """Gradient of SparseSegmentSqrtN."""

    adjoint = "SparseSegmentSqrtNWithNumSegments"
    weight = 0.5


class SparseSegmentSumGradV2(SparseSegmentGradOp):
    """Gradient of SparseSegmentSum as rows of the distinct indices, and those indices."""

    signature = _GRAD_V2
    adjoint = "SparseSegmentSumWithNumSegments"


class SparseSegmentMeanGradV2(SparseSegmentGradOp):
    """Gradient of SparseSegmentMean as rows of the distinct indices, and those indices."""

    signature = _GRAD_V2
    adjoint = "SparseSegmentMeanWithNumSegments"
    weight = 1


class SparseSegmentSqrtNGradV2(SparseSegmentGradOp):
    """Gradient of SparseSegmentSqrtN as rows of the distinct indices, and those indices."""

    signature = _GRAD_V2
    adjoint = "SparseSegmentSqrtNWithNumSegments"
    weight = 0.5
