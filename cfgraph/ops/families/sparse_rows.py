"""Reordering, filling of empty rows, and concatenation of sparse tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.limits import reserve_array
from cfgraph.ops.families import sparse
from cfgraph.ops.families.sparse import check_indices_inside
from cfgraph.ops.families.sparse_arithmetic import check_size, check_sparse
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import no_gradient
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank, static_int


class SparseReorder(Op):
    """Indices in row-major order, with their values."""

    signature = (
        "input_indices: int64, input_values: T, input_shape: int64 "
        "-> output_indices: int64, output_values: T"
    )
    compilation = CompilerSupport(traceable=False)
    gradient = staticmethod(sparse.sparse_reorder_gradient)

    @staticmethod
    def kernel(xp: ModuleType, indices: Any, values: Any, shape: Any) -> Any:
        if indices.ndim != 2 or values.ndim != 1 or shape.shape != indices.shape[1:]:
            raise OpError("Input indices must be a matrix, values and shape vectors that fit it")
        if not len(shape):
            return indices, values
        order = np.lexsort(indices.T[::-1])
        return indices[order], values[order]

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [require_rank(context.inputs[0], 2), require_rank(context.inputs[1], 1)]


class SparseFillEmptyRows(Op):
    """Sparse matrix with a default value added at column 0 of each empty row."""

    signature = (
        "indices: int64, values: T, dense_shape: int64, default_value: T -> output_indices: int64, "
        "output_values: T, empty_row_indicator: bool, reverse_index_map: int64"
    )
    compilation = CompilerSupport(traceable=False)
    gradient = staticmethod(sparse.fill_empty_rows_gradient)

    @staticmethod
    def kernel(xp: ModuleType, indices: Any, values: Any, shape: Any, default: Any) -> Any:
        if indices.ndim != 2 or values.ndim != 1 or shape.ndim != 1 or default.ndim:
            raise OpError("indices must be a matrix, values and shape vectors, default a scalar")
        if len(indices) != values.size or indices.shape[1] != shape.size or not shape.size:
            raise OpError("indices, values and dense_shape do not fit each other")
        rows, count = indices[:, 0], int(shape[0])
        check_indices_inside(indices[:, :1], [count])
        reserve_array((count, len(shape)), 8)
        empty = np.bincount(rows, minlength=count) == 0
        missing = np.zeros((int(empty.sum()), indices.shape[1]), np.int64)
        missing[:, 0] = np.flatnonzero(empty)
        order = np.argsort(np.concatenate([rows, missing[:, 0]]), kind="stable")
        back = np.empty(order.size, np.int64)
        back[order] = np.arange(order.size)
        filled = np.full(len(missing), default, values.dtype)
        return (
            np.concatenate([indices, missing])[order],
            np.concatenate([values, filled])[order],
            empty,
            back[: len(rows)],
        )

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        indices = require_rank(context.inputs[0], 2)
        value = context.value(2)
        rows = int(value[0]) if value is not None and value.ndim == 1 and value.size else None
        columns = vector_shape() if indices.dims is None else indices[1:]
        return [vector_shape() + columns, vector_shape(), vector_shape(rows), indices[:1]]


class SparseFillEmptyRowsGrad(Op):
    """Gradients of the values and the default value of SparseFillEmptyRows."""

    signature = "reverse_index_map: int64, grad_values: T -> d_values: T, d_default_value: T"
    compilation = CompilerSupport(traceable=False)
    gradient = staticmethod(sparse.fill_empty_rows_second_gradient)

    @staticmethod
    def kernel(xp: ModuleType, back: Any, grads: Any) -> Any:
        if back.ndim != 1 or grads.ndim != 1:
            raise OpError(f"Inputs must be vectors, not {list(back.shape)}, {list(grads.shape)}")
        check_indices_inside(back[:, None], [grads.size])
        added = np.ones(grads.size, bool)
        added[back] = False
        return grads[back], grads[added].sum(dtype=grads.dtype)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        require_rank(context.inputs[1], 1)
        return [require_rank(context.inputs[0], 1), SCALAR_SHAPE]


class RaggedFillEmptyRows(Op):
    """Ragged rows with a default value added to each empty one."""

    signature = (
        "value_rowids: int64, values: T, nrows: int64, default_value: T "
        "-> output_value_rowids: int64, output_values: T, empty_row_indicator: bool, "
        "reverse_index_map: int64"
    )
    compilation = CompilerSupport(traceable=False)
    gradient = staticmethod(partial(sparse.fill_empty_rows_gradient, op="RaggedFillEmptyRowsGrad"))

    @staticmethod
    def kernel(xp: ModuleType, rows: Any, values: Any, count: Any, default: Any) -> Any:
        if rows.ndim != 1 or count.ndim:
            raise OpError("value_rowids must be a vector, and nrows a scalar")
        if count < 0:
            raise OpError(f"nrows must not be negative, got {count}")
        sizes = np.reshape(count, 1)
        indices, *others = SparseFillEmptyRows.kernel(xp, rows[:, None], values, sizes, default)
        return indices[:, 0], *others

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        count = vector_shape(static_int(context, 2))
        return [vector_shape(), vector_shape(), count, require_rank(context.inputs[0], 1)]


class RaggedFillEmptyRowsGrad(SparseFillEmptyRowsGrad):
    """Gradients of the values and the default value of RaggedFillEmptyRows."""


class SparseConcat(Op):
    """Concatenation of sparse tensors along a dimension."""

    signature = (
        "indices: N*int64, values: N*T, shapes: N*int64 "
        "-> output_indices: int64, output_values: T, output_shape: int64"
    )
    attrs = "concat_dim: int, N: int >= 2"
    compilation = CompilerSupport(traceable=False)
    gradient = staticmethod(no_gradient)

    @staticmethod
    def kernel(xp: ModuleType, N: int, concat_dim: int, /, *inputs: Any) -> Any:
        indices = inputs[:N]
        values, shapes = inputs[N : 2 * N], inputs[2 * N :]
        rank = shapes[0].size
        if not -rank <= concat_dim < rank:
            raise OpError(f"Concat dimension must be in range [{-rank}, {rank}), got {concat_dim}")
        dim, start, moved = concat_dim % rank, 0, []
        result = shapes[0].ravel().tolist()
        for coordinates, contents, shape in zip(indices, values, shapes, strict=True):
            if len(coordinates) != len(contents):
                message = f"{len(contents)} values do not fit {len(coordinates)} indices"
                raise OpError(message)
            sizes = shape.ravel().tolist()
            others = sizes[:dim] + sizes[dim + 1 :]
            if len(sizes) != rank or others != result[:dim] + result[dim + 1 :]:
                raise OpError(f"Expected shapes to agree: {shapes[0].tolist()}, {shape.tolist()}")
            check_size(sizes)
            moved.append(coordinates.copy())
            moved[-1][:, dim] += start
            start += sizes[dim]
        result[dim] = start
        rows, elements = np.concatenate(moved), np.concatenate(values)
        order = np.lexsort(rows.T[::-1])
        return rows[order], elements[order], xp.array(result, np.int64)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        rank = require_rank(context.inputs[-1], 1)
        return [
            vector_shape() + rank if rank.dims is not None else UNKNOWN_SHAPE,
            vector_shape(),
            rank,
        ]


class SparseSplit(Op):
    """The parts of a sparse tensor along a dimension; the first ones may be longer by one."""

    signature = (
        "split_dim: int64, indices: int64, values: T, shape: int64 -> "
        "output_indices: num_split*int64, output_values: num_split*T, output_shape: num_split*int64"
    )
    attrs = "num_split: int >= 1"
    compilation = CompilerSupport(traceable=False)

    @staticmethod
    def kernel(
        xp: ModuleType, num_split: int, /, split_dim: Any, indices: Any, values: Any, shape: Any
    ) -> Any:
        check_sparse(indices, values, shape)
        check_size(shape)
        if split_dim.ndim:
            raise OpError(f"split_dim must be a scalar, got shape {list(split_dim.shape)}")
        axis, rank = int(split_dim), len(shape)
        if not -rank <= axis < rank:
            raise OpError(f"split_dim should be in range [{-rank}, {rank}), got {axis}")
        if num_split > shape[axis]:
            raise OpError(f"{shape[axis]} elements cannot be split into {num_split} parts")
        size, longer = divmod(int(shape[axis]), num_split)
        sizes = [size + (number < longer) for number in range(num_split)]
        starts = np.cumsum([0, *sizes])
        order = np.argsort(indices[:, axis], kind="stable")
        ends = np.searchsorted(indices[order, axis], starts)
        parts = []
        for number, size in enumerate(sizes):
            inside = np.sort(order[ends[number] : ends[number + 1]])
            offset, extent = np.zeros(rank, np.int64), shape.copy()
            offset[axis], extent[axis] = starts[number], size
            parts.append((indices[inside] - offset, values[inside], extent))
        return tuple(part for kind in zip(*parts, strict=True) for part in kind)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        rank, count = require_rank(context.inputs[3], 1), context.output_count // 3
        return [vector_shape() + rank] * count + [vector_shape()] * count + [rank] * count
