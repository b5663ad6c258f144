"""Sparse tensors, each three dense ones: coordinates, values and the shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import UNKNOWN, Shape, vector
from cfgraph.ops.dims import want_rank
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError


def _check_inside(indices: Any, sizes: Sequence[int], what: str = "indices") -> None:
    bad = ((indices < 0) | (indices >= np.array(sizes, np.int64))).any(-1)
    if bad.any():
        place = int(bad.argmax())
        message = (
            f"{what}[{place}] = {indices[place].tolist()} is out of bounds: "
            f"need 0 <= index < {list(sizes)}"
        )
        raise OpError(message)


def _check_order(indices: Any) -> None:
    """Coordinates are in row-major order, and none is there twice."""
    rows = [tuple(row) for row in indices.tolist()]
    for place, (row, after) in enumerate(pairwise(rows)):
        if row >= after:
            fault = "repeated" if row == after else "out of order"
            message = f"indices[{place + 1}] = {list(after)} is {fault}"
            raise OpError(message)


class SparseToDense(Op):
    """A tensor of a shape with values at coordinates and a default elsewhere."""

    signature = (
        "sparse_indices: Tindices, output_shape: Tindices, sparse_values: T, default_value: T "
        "-> dense: T"
    )
    attrs = "validate_indices: bool = true, Tindices: {int32, int64}"
    host_inputs = (1,)
    constant_inputs = (1,)
    traceable = False

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        validate = node.attr("validate_indices")

        def sparse_to_dense(indices: Any, shape: Any, values: Any, default: Any) -> Any:
            if indices.ndim > 2 or shape.ndim != 1 or values.ndim > 1 or default.ndim:
                message = (
                    "indices must be at most a matrix, the shape a vector, the values at most a "
                    "vector and the default a scalar"
                )
                raise OpError(message)
            rows = indices if indices.ndim == 2 else indices.reshape(-1, 1)
            sizes = shape.tolist()
            if rows.shape[1] != len(sizes) or (values.ndim and values.size != len(rows)):
                message = (
                    f"indices {list(indices.shape)}, shape {list(shape.shape)} and values "
                    f"{list(values.shape)} do not fit each other"
                )
                raise OpError(message)
            _check_inside(rows, sizes)
            if validate:
                _check_order(rows)
            result = np.full(sizes, default, values.dtype)
            result[tuple(rows.T)] = values
            return result

        return sparse_to_dense

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        want_rank(context.inputs[1], 1)
        return [context.shape_value(1)]


class SparseTensorDenseMatMul(Op):
    """The product of a sparse matrix and a dense one, either of them as its adjoint."""

    signature = "a_indices: Tindices, a_values: T, a_shape: int64, b: T -> product: T"
    attrs = "Tindices: {int32, int64} = int64, adjoint_a: bool = false, adjoint_b: bool = false"
    host_inputs = (2,)
    constant_inputs = (2,)
    traceable = False

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        adjoint_a, adjoint_b = node.attr("adjoint_a"), node.attr("adjoint_b")

        def matmul(indices: Any, values: Any, shape: Any, b: Any) -> Any:
            if b.ndim != 2 or shape.shape != (2,) or values.ndim != 1:
                message = (
                    "Tensor 'b' must be a matrix, 'a_shape' have 2 elements, values 1 dimension"
                )
                raise OpError(message)
            if indices.shape != (values.size, 2):
                message = f"a_indices must have the shape [{values.size}, 2]"
                raise OpError(message)
            sizes = shape.tolist()
            _check_inside(indices, sizes, "a_indices")
            row, column = indices.T
            if adjoint_a:
                row, column, sizes, values = column, row, sizes[::-1], values.conj()
            other = b.conj().T if adjoint_b else b
            if sizes[1] != other.shape[0]:
                message = (
                    "Cannot multiply A and B because inner dimension does not match: "
                    f"{sizes[1]} vs. {other.shape[0]}"
                )
                raise OpError(message)
            result = np.zeros((sizes[0], other.shape[1]), values.dtype)
            np.add.at(result, row, values[:, None] * other[column])
            return result

        return matmul

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        b = want_rank(context.inputs[3], 2)
        a = context.shape_value(2).merge(Shape((None, None)))
        rows = None if a.dims is None else a.dims[1 if context.attr("adjoint_a") else 0]
        columns = None if b.dims is None else b.dims[0 if context.attr("adjoint_b") else 1]
        return [Shape((rows, columns))]


class SparseReshape(Op):
    """The coordinates and the shape of the same elements in another shape."""

    signature = (
        "input_indices: int64, input_shape: int64, new_shape: int64 "
        "-> output_indices: int64, output_shape: int64"
    )
    host_inputs = (0, 1, 2)
    traceable = False

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return _sparse_reshape

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        rows = want_rank(context.inputs[0], 2)[:1]
        rank = want_rank(context.inputs[2], 1)
        want_rank(context.inputs[1], 1)
        return [rows + rank, rank]


def _sparse_reshape(indices: Any, shape: Any, new_shape: Any) -> Any:
    if indices.ndim != 2 or shape.ndim != 1 or new_shape.ndim != 1:
        message = "Input indices should be a matrix, input shape and new shape vectors"
        raise OpError(message)
    old, new = shape.tolist(), new_shape.tolist()
    if indices.shape[1] != len(old):
        message = f"Input tensor rank must match input shape length, {list(indices.shape)}"
        raise OpError(message)
    if new.count(-1) > 1 or any(size < -1 for size in new):
        message = f"the new shape {new} may have one size of -1 and no other negative one"
        raise OpError(message)
    total, rest = math.prod(old), math.prod(size for size in new if size != -1)
    if -1 in new:
        if rest <= 0 or total % rest:
            message = f"Input to reshape is a SparseTensor with {total} dense values, but {new}"
            raise OpError(message)
        new = [total // rest if size == -1 else size for size in new]
    elif total != rest:
        message = f"Input to reshape is a tensor with {total} dense values, but {new} has {rest}"
        raise OpError(message)
    sizes = np.array(new, np.int64)
    if not len(indices):
        return np.zeros((0, len(new)), np.int64), sizes
    flat = np.ravel_multi_index(tuple(indices.T), old) if old else np.zeros(len(indices), np.int64)
    found = np.unravel_index(flat, new) if new else ()
    return np.array(found, np.int64).reshape(len(new), len(indices)).T, sizes


class SparseReorder(Op):
    """The coordinates in row-major order, and their values."""

    signature = (
        "input_indices: int64, input_values: T, input_shape: int64 "
        "-> output_indices: int64, output_values: T"
    )
    traceable = False

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        def reorder(indices: Any, values: Any, shape: Any) -> Any:
            if indices.ndim != 2 or values.ndim != 1 or shape.shape != indices.shape[1:]:
                message = "Input indices must be a matrix, values and shape vectors that fit it"
                raise OpError(message)
            order = np.lexsort(indices.T[::-1])
            return indices[order], values[order]

        return reorder

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [want_rank(context.inputs[0], 2), want_rank(context.inputs[1], 1)]


class SparseTensorDenseAdd(Op):
    """A dense tensor with the values of a sparse one added."""

    signature = "a_indices: Tindices, a_values: T, a_shape: Tindices, b: T -> output: T"
    attrs = (
        "T: {float32, float64, int32, uint8, int16, int8, complex64, int64, qint8, quint8, "
        "qint32, bfloat16, qint16, quint16, uint16, complex128, float16, uint32, uint64}, "
        "Tindices: {int32, int64}"
    )
    traceable = False

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        def add(indices: Any, values: Any, shape: Any, b: Any) -> Any:
            if tuple(shape.tolist()) != b.shape:
                message = f"Dimensions do not match: {shape.tolist()} vs. {list(b.shape)}"
                raise OpError(message)
            if indices.shape != (values.size, b.ndim):
                message = f"Input a_indices must have the shape [{values.size}, {b.ndim}]"
                raise OpError(message)
            _check_inside(indices, b.shape, "a_indices")
            result = b.copy()
            np.add.at(result, tuple(indices.T), values)
            return result

        return add

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.inputs[3]]


class SparseFillEmptyRows(Op):
    """A sparse matrix with a default value in each row that had none."""

    signature = (
        "indices: int64, values: T, dense_shape: int64, default_value: T -> output_indices: int64, "
        "output_values: T, empty_row_indicator: bool, reverse_index_map: int64"
    )
    traceable = False

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        def fill(indices: Any, values: Any, shape: Any, default: Any) -> Any:
            if indices.ndim != 2 or values.ndim != 1 or shape.ndim != 1 or default.ndim:
                message = "indices must be a matrix, values and shape vectors, the default a scalar"
                raise OpError(message)
            if len(indices) != values.size or indices.shape[1] != shape.size or not shape.size:
                message = "indices, values and dense_shape do not fit each other"
                raise OpError(message)
            rows, count = indices[:, 0], int(shape[0])
            _check_inside(indices[:, :1], [count])
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

        return fill

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        indices = want_rank(context.inputs[0], 2)
        value = context.value(2)
        rows = int(value[0]) if value is not None and value.ndim == 1 and value.size else None
        columns = vector() if indices.dims is None else indices[1:]
        return [vector() + columns, vector(), vector(rows), indices[:1]]


class SparseConcat(Op):
    """Sparse tensors one after the other along a dimension."""

    signature = (
        "indices: N*int64, values: N*T, shapes: N*int64 "
        "-> output_indices: int64, output_values: T, output_shape: int64"
    )
    attrs = "concat_dim: int, N: int >= 2"
    traceable = False

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        count, axis = node.attr("N"), node.attr("concat_dim")

        def concat(*inputs: Any) -> Any:
            indices = inputs[:count]
            values, shapes = inputs[count : 2 * count], inputs[2 * count :]
            rank = shapes[0].size
            if not -rank <= axis < rank:
                message = f"Concat dimension must be in range [{-rank}, {rank}), got {axis}"
                raise OpError(message)
            place, start, moved = axis % rank, 0, []
            result = shapes[0].copy()
            for item, shape in zip(indices, shapes, strict=True):
                other = (
                    np.where(np.arange(rank) == place, shape, result)
                    if (shape.size == rank)
                    else None
                )
                if other is None or not np.array_equal(other, shape):
                    message = f"Expected shapes to agree: {shapes[0].tolist()}, {shape.tolist()}"
                    raise OpError(message)
                step = np.zeros(rank, np.int64)
                step[place] = start
                moved.append(item + step)
                start += int(shape[place])
            result[place] = start
            rows, found = np.concatenate(moved), np.concatenate(values)
            order = np.lexsort(rows.T[::-1])
            return rows[order], found[order], result

        return concat

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        rank = want_rank(context.inputs[-1], 1)
        return [vector() + rank if rank.dims is not None else UNKNOWN, vector(), rank]
