"""Sparse tensors, each three dense ones: coordinates, values and the shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape
from cfgraph.ops import sparse_gradients
from cfgraph.ops.dims import want_rank
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError


def check_inside(indices: Any, sizes: Sequence[int], what: str = "indices") -> None:
    """Raise OpError unless all coordinates are inside of a tensor of these sizes."""
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
    gradient = staticmethod(sparse_gradients.of_dense)

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
            check_inside(rows, sizes)
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
    gradient = staticmethod(sparse_gradients.of_product)

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
            check_inside(indices, sizes, "a_indices")
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


class SparseTensorDenseAdd(Op):
    """A dense tensor with the values of a sparse one added."""

    signature = "a_indices: Tindices, a_values: T, a_shape: Tindices, b: T -> output: T"
    attrs = (
        "T: {float32, float64, int32, uint8, int16, int8, complex64, int64, qint8, quint8, "
        "qint32, bfloat16, qint16, quint16, uint16, complex128, float16, uint32, uint64}, "
        "Tindices: {int32, int64}"
    )
    traceable = False
    gradient = staticmethod(sparse_gradients.of_sum)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        def add(indices: Any, values: Any, shape: Any, b: Any) -> Any:
            if tuple(shape.tolist()) != b.shape:
                message = f"Dimensions do not match: {shape.tolist()} vs. {list(b.shape)}"
                raise OpError(message)
            if indices.shape != (values.size, b.ndim):
                message = f"Input a_indices must have the shape [{values.size}, {b.ndim}]"
                raise OpError(message)
            check_inside(indices, b.shape, "a_indices")
            result = b.copy()
            np.add.at(result, tuple(indices.T), values)
            return result

        return add

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.inputs[3]]
