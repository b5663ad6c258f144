"""Counts of the values in rows of sparse and ragged tensors, dense or as sparse tensors."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, ShapeError
from cfgraph.ops.families.histogram import bin_counter, check_bin_count
from cfgraph.ops.families.sparse_arithmetic import check_sparse
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.op import INDEX, Op, OpError, one_of
from cfgraph.ops.opdef.shape_functions import InferenceContext, static_int

_NUMBERS = one_of("int32", "int64", "float32", "float64")


class SparseCounter(Op, abstract=True):
    """Counts or sums of weights per row and value, as a sparse tensor."""

    attrs = (
        f"T: {INDEX}, minlength: int >= -1 = -1, maxlength: int >= -1 = -1, binary_output: bool, "
        f"{one_of('int32', 'int64', 'float32', 'float64', attr='output_type')}"
    )
    compilation = CompilerSupport(traceable=False)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [Shape((None, None)), Shape((None,)), Shape((None,))]


class DenseCountSparseOutput(SparseCounter):
    """Counts of the values of a vector, or of each row of a matrix."""

    signature = (
        "values: T, weights: output_type -> output_indices: int64, output_values: output_type, "
        "output_dense_shape: int64"
    )

    @staticmethod
    def kernel(
        xp: ModuleType,
        minlength: int,
        maxlength: int,
        binary_output: bool,
        output_type: DType,
        /,
        values: Any,
        weights: Any,
    ) -> Any:
        if values.ndim not in (1, 2):
            raise OpError(f"Input must be a 1 or 2-dimensional tensor. Got: {values.ndim}")
        _require_same_shape(weights, values)
        rows = np.repeat(np.arange(len(values)), values.shape[1]) if values.ndim == 2 else None
        count = len(values) if values.ndim == 2 else None
        limits = minlength, maxlength
        return _counted(rows, count, values.ravel(), weights, limits, binary_output, output_type)


class RaggedCountSparseOutput(SparseCounter):
    """Counts of the values of each row of a ragged tensor."""

    signature = (
        "splits: int64, values: T, weights: output_type -> output_indices: int64, "
        "output_values: output_type, output_dense_shape: int64"
    )

    @staticmethod
    def kernel(
        xp: ModuleType,
        minlength: int,
        maxlength: int,
        binary_output: bool,
        output_type: DType,
        /,
        splits: Any,
        values: Any,
        weights: Any,
    ) -> Any:
        _require_same_shape(weights, values)
        rows, limits = _rows_of_splits(splits, values), (minlength, maxlength)
        count = len(splits) - 1
        return _counted(rows, count, values, weights, limits, binary_output, output_type)


class SparseCountSparseOutput(SparseCounter):
    """Counts of the values of a sparse vector, or of each row of a sparse tensor."""

    signature = (
        "indices: int64, values: T, dense_shape: int64, weights: output_type "
        "-> output_indices: int64, output_values: output_type, output_dense_shape: int64"
    )

    @staticmethod
    def kernel(
        xp: ModuleType,
        minlength: int,
        maxlength: int,
        binary_output: bool,
        output_type: DType,
        /,
        *inputs: Any,
    ) -> Any:
        indices, values, shape, weights = inputs
        sizes = check_sparse(indices, values, shape)
        _require_same_shape(weights, values)
        rows, count = (indices[:, 0], sizes[0]) if len(sizes) > 1 else (None, None)
        if count == 0:
            raise OpError("dense_shape must have at least one row")
        limits = minlength, maxlength
        return _counted(rows, count, values, weights, limits, binary_output, output_type)


def _require_same_shape(weights: Any, values: Any) -> None:
    """Raise OpError for weights, unless empty, of another shape than the values."""
    if weights.size and weights.shape != values.shape:
        raise OpError("Weights and values must have the same shape")


def _rows_of_splits(splits: Any, values: Any) -> Any:
    """The row of each value of a ragged tensor."""
    if splits.ndim != 1 or len(splits) < 2 or splits[0] != 0 or splits[-1] != values.size:
        raise OpError("Splits must start with 0 and end with the number of values")
    if (np.diff(splits) < 0).any():
        raise OpError("Splits must not decrease")
    return np.repeat(np.arange(len(splits) - 1), np.diff(splits))


def _counted(
    rows: Any,
    count: int | None,
    values: Any,
    weights: Any,
    limits: tuple[int, int],
    binary: bool,
    dtype: DType,
) -> tuple[Any, Any, Any]:
    """Indices, values, and shape of the counts; `rows` is None for those of a vector."""
    minlength, maxlength = limits
    if values.size and values.min() < 0:
        raise OpError("Input values must all be non-negative")
    ones = np.ones(values.size, dtype.numpy)
    sums = weights.ravel() if weights.size and not binary else ones
    is_counted = values < maxlength if maxlength >= 0 else np.ones(values.size, bool)
    places = np.stack((np.zeros_like(values) if rows is None else rows, values), -1)[is_counted]
    kept, number = np.unique(places.astype(np.int64), axis=0, return_inverse=True)
    totals = np.zeros(len(kept), dtype.numpy)
    np.add.at(totals, number.reshape(-1), sums[is_counted])
    totals = np.ones_like(totals) if binary else totals
    largest = int(kept[:, 1].max(initial=-1)) + 1
    size = maxlength if maxlength >= 0 else max(largest, minlength)
    if rows is None:
        return kept[:, 1:], totals, np.array([size], np.int64)
    return kept, totals, np.array([count, size], np.int64)


def _row_bins(rows: Any, values: Any, weights: Any, shape: tuple[int, int], binary: bool) -> Any:
    """Bin counts of values in these rows, as a matrix; values beyond the bins are not counted."""
    _require_same_shape(weights, values)
    count, bins = shape
    inside = (values >= 0) & (values < bins)
    places = (rows * bins + values)[inside]
    if weights.size:
        weights = weights[inside] if places.size else weights[:0]
    counts = bin_counter(np, binary=binary)(places, np.int64(count * bins), weights)
    return counts.reshape(shape)


class RaggedBincount(Op):
    """Bin counts of each row of a ragged tensor; presence only if `binary_output`."""

    signature = "splits: int64, values: Tidx, size: Tidx, weights: T -> output: T"
    attrs = f"Tidx: {INDEX}, {_NUMBERS}, binary_output: bool = false"
    compilation = CompilerSupport(traceable=False)

    @staticmethod
    def kernel(
        xp: ModuleType, binary_output: bool, /, splits: Any, values: Any, size: Any, weights: Any
    ) -> Any:
        rows, bins = _rows_of_splits(splits, values), int(check_bin_count(size))
        if values.size and values.min() < 0:
            raise OpError("Input values must be non-negative")
        return _row_bins(rows, values, weights, (len(splits) - 1, bins), binary_output)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        size, splits = static_int(context, 2), context.inputs[0]
        if size is not None and size < 0:
            raise ShapeError(f"size ({size}) must be non-negative")
        rows = splits.dims[0] if splits.rank == 1 and splits.dims else None
        return [Shape((None if rows is None else rows - 1, size))]


class SparseBincount(Op):
    """Bin counts of a sparse vector, or of each row of a sparse matrix."""

    signature = (
        "indices: int64, values: Tidx, dense_shape: int64, size: Tidx, weights: T -> output: T"
    )
    attrs = f"Tidx: {INDEX}, {_NUMBERS}, binary_output: bool = false"
    compilation = CompilerSupport(traceable=False)

    @staticmethod
    def kernel(xp: ModuleType, binary_output: bool, /, *inputs: Any) -> Any:
        indices, values, shape, size, weights = inputs
        sizes = check_sparse(indices, values, shape)
        if size.ndim:
            raise OpError(f"size must be a scalar, got shape {list(size.shape)}")
        bins = int(check_bin_count(size))
        if len(sizes) == 1:
            return bin_counter(np, binary=binary_output)(values, size, weights)
        # as in TensorFlow, negative values are errors in a vector, and not counted in a matrix
        return _row_bins(indices[:, 0], values, weights, (sizes[0], bins), binary_output)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        size, sizes = static_int(context, 3), context.shape_value(2)
        if size is not None and size < 0:
            raise ShapeError(f"size ({size}) must be non-negative")
        if sizes.rank is None:
            return [UNKNOWN_SHAPE]
        return [(Shape() if sizes.rank == 1 else sizes[:1]) + Shape((size,))]
