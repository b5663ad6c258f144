"""Sparse tensors in coordinate format (indices, values, dense shape), and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.limits import reserve_array
from cfgraph.ops.families.sparse_arithmetic import are_inside, flat_positions
from cfgraph.ops.kernels.array_namespace import FEW_NUMBERS, combine_at
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    conjugate,
    int32_constant,
    sum_to_shape,
)
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank


def sparse_to_dense_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradients with respect to the values and the default value of SparseToDense."""
    indices, _, values, _ = node.inputs
    gathered = g.GatherNd(dz, _index_rows(g, indices, node.inputs[1]))

    def default_gradient() -> Output:
        return g.Sub(_sum_rows(g, g.Reshape(dz, int32_constant(g, [-1]))), _sum_rows(g, gathered))

    return None, None, lambda: sum_to_shape(g, gathered, values, gathered), default_gradient


def _index_rows(g: GradientBuilder, indices: Output, shape: Output) -> Output:
    """Indices as a matrix, also if they are a vector or a scalar."""
    if g.known_shape(indices).rank == 2:
        return indices
    return g.Reshape(
        indices, g.ConcatV2(int32_constant(g, [-1]), g.shape(shape), int32_constant(g, 0))
    )


def _sum_rows(g: GradientBuilder, x: Output) -> Output:
    return g.Sum(x, int32_constant(g, [0]))


def sparse_matmul_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of a sparse matrix times a dense matrix."""
    indices, values, shape, b = node.inputs
    adjoint_a, adjoint_b = node.attr("adjoint_a"), node.attr("adjoint_b")
    swap = int32_constant(g, [1, 0])

    def values_gradient() -> Output:
        row, column = (g.Unpack(indices, num=2, axis=1).node.output(port) for port in (0, 1))
        if adjoint_a:
            row, column = column, row
        dense = g.Transpose(b, swap) if adjoint_b else conjugate(g, b)
        factors = (
            g.GatherV2(x, index, int32_constant(g, 0)) for x, index in ((dz, row), (dense, column))
        )
        products = g.Sum(g.Mul(*factors), int32_constant(g, [1]))
        return conjugate(g, products) if adjoint_a else products

    def b_gradient() -> Output:
        product = g.SparseTensorDenseMatMul(indices, values, shape, dz, adjoint_a=not adjoint_a)
        return g.ConjugateTranspose(product, swap) if adjoint_b else product

    return None, values_gradient, None, b_gradient


def sparse_add_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of the sum of a sparse and a dense tensor."""
    return None, lambda: g.GatherNd(dz, node.inputs[0]), None, dz


def sparse_reorder_gradient(
    g: GradientBuilder, node: Node, dindices: Output | None, dvalues: Output
) -> InputGradients:
    """Gradient of SparseReorder.

    Reordering 0, 1, … instead of the values yields the permutation.
    """
    indices, values, shape = node.inputs

    def values_gradient() -> Output:
        origin = g.SparseReorder(indices, _enumerate(g, values), shape).node.output(1)
        return g.GatherV2(dvalues, g.InvertPermutation(origin), int32_constant(g, 0))

    return None, values_gradient, None


def _enumerate(g: GradientBuilder, x: Output) -> Output:
    """0, 1, … up to the length of a vector."""
    known = g.known_shape(x)
    if known.is_full:
        return int32_constant(g, np.arange(*known))
    count = g.Reshape(g.shape(x), int32_constant(g, np.zeros(0)))
    return g.Range(int32_constant(g, 0), count, int32_constant(g, 1))


def fill_empty_rows_gradient(
    g: GradientBuilder, node: Node, *grads: Output | None, op: str = "SparseFillEmptyRowsGrad"
) -> InputGradients:
    """Gradient with respect to values and default value of rows that are filled."""
    dvalues = grads[1]
    if dvalues is None:
        return [None] * len(node.inputs)
    gradients = getattr(g, op)(node.output(3), dvalues).node
    return None, gradients.output(0), None, gradients.output(1)


def fill_empty_rows_second_gradient(
    g: GradientBuilder, node: Node, dd_values: Output | None, dd_default: Output | None
) -> InputGradients:
    """Gradient of SparseFillEmptyRowsGrad with respect to its upstream gradient."""
    back, dvalues = node.inputs
    base = (
        g.ZerosLike(dvalues) if dd_default is None else g.BroadcastTo(dd_default, g.shape(dvalues))
    )
    updates = g.ZerosLike(node.output(0)) if dd_values is None else dd_values
    return None, g.TensorScatterUpdate(base, g.ExpandDims(back, int32_constant(g, 1)), updates)


def check_indices_inside(indices: Any, sizes: Sequence[int], name: str = "indices") -> None:
    """Raise OpError unless all indices lie within a tensor of these sizes."""
    if not are_inside(indices, sizes):
        bad = ((indices < 0) | (indices >= np.array(sizes, np.int64))).any(-1)
        row = int(bad.argmax())
        raise OpError(
            f"{name}[{row}] = {indices[row].tolist()} is out of bounds: "
            f"need 0 <= index < {list(sizes)}"
        )


def _check_index_order(indices: Any, sizes: Sequence[int]) -> None:
    """Raise OpError unless indices are unique and in row-major order."""
    if indices.size > FEW_NUMBERS and flat_positions(indices, sizes) is not None:
        return
    for position, (row, after) in enumerate(pairwise(indices.tolist())):
        if row >= after:
            problem = "repeated" if row == after else "out of order"
            raise OpError(f"indices[{position + 1}] = {after} is {problem}")


class SparseToDense(Op):
    """Dense tensor with values at sparse indices and a default value elsewhere."""

    signature = (
        "sparse_indices: Tindices, output_shape: const Tindices, sparse_values: T, "
        "default_value: T -> dense: T"
    )
    attrs = "validate_indices: bool = true, Tindices: {int32, int64}"
    compilation = CompilerSupport(traceable=False)
    gradient = staticmethod(sparse_to_dense_gradient)

    @staticmethod
    def kernel(xp: ModuleType, validate_indices: bool, /, *inputs: Any) -> Any:
        indices, shape, values, default = inputs
        if indices.ndim > 2 or shape.ndim != 1 or values.ndim > 1 or default.ndim:
            raise OpError(
                "indices must be at most a matrix, the shape a vector, the values at most a "
                "vector and the default a scalar"
            )
        rows = indices if indices.ndim == 2 else indices.reshape(-1, 1)
        sizes = shape.tolist()
        if rows.shape[1] != len(sizes) or (values.ndim and values.size != len(rows)):
            raise OpError(
                f"indices {list(indices.shape)}, shape {list(shape.shape)} and values "
                f"{list(values.shape)} do not fit each other"
            )
        check_indices_inside(rows, sizes)
        if validate_indices:
            _check_index_order(rows, sizes)
        reserve_array(sizes, values.dtype.itemsize)
        result = np.full(sizes, default, values.dtype)
        result[tuple(rows.T)] = values
        return result

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        require_rank(context.inputs[1], 1)
        return [context.shape_value(1)]


class SparseTensorDenseMatMul(Op):
    """Product of a sparse and a dense matrix, each optionally conjugate-transposed."""

    signature = "a_indices: Tindices, a_values: T, a_shape: const int64, b: T -> product: T"
    attrs = "Tindices: {int32, int64} = int64, adjoint_a: bool = false, adjoint_b: bool = false"
    compilation = CompilerSupport(traceable=False)
    gradient = staticmethod(sparse_matmul_gradient)

    @staticmethod
    def kernel(xp: ModuleType, adjoint_a: bool, adjoint_b: bool, /, *inputs: Any) -> Any:
        indices, values, shape, b = inputs
        if b.ndim != 2 or shape.shape != (2,) or values.ndim != 1:
            raise OpError(
                "Tensor 'b' must be a matrix, 'a_shape' have 2 elements, values 1 dimension"
            )
        if indices.shape != (values.size, 2):
            raise OpError(f"a_indices must have the shape [{values.size}, 2]")
        sizes = shape.tolist()
        check_indices_inside(indices, sizes, "a_indices")
        row, column = indices.T
        if adjoint_a:
            row, column, sizes, values = column, row, sizes[::-1], values.conj()
        dense = b.conj().T if adjoint_b else b
        if sizes[1] != dense.shape[0]:
            raise OpError(
                "Cannot multiply A and B because inner dimension does not match: "
                f"{sizes[1]} vs. {dense.shape[0]}"
            )
        reserve_array((int(sizes[0]), dense.shape[1]), values.dtype.itemsize)
        result = np.zeros((sizes[0], dense.shape[1]), values.dtype)
        combine_at(np.add, result, row, values[:, None] * dense[column])
        return result

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        b = require_rank(context.inputs[3], 2)
        a = context.shape_value(2).merge(Shape((None, None)))
        rows = None if a.dims is None else a.dims[1 if context.attr("adjoint_a") else 0]
        columns = None if b.dims is None else b.dims[0 if context.attr("adjoint_b") else 1]
        return [Shape((rows, columns))]


def _sparse_reshape(indices: Any, shape: Any, new_shape: Any) -> Any:
    if indices.ndim != 2 or shape.ndim != 1 or new_shape.ndim != 1:
        raise OpError("Input indices should be a matrix, input shape and new shape vectors")
    source, target = shape.tolist(), new_shape.tolist()
    if indices.shape[1] != len(source):
        raise OpError(f"Input tensor rank must match input shape length, {list(indices.shape)}")
    if target.count(-1) > 1 or any(size < -1 for size in target):
        message = f"the new shape {target} may contain only one negative size, which must be -1"
        raise OpError(message)
    total, known = math.prod(source), math.prod(size for size in target if size != -1)
    if -1 in target:
        if known <= 0 or total % known:
            message = f"Input to reshape is a SparseTensor with {total} dense values, but {target}"
            raise OpError(message)
        target = [total // known if size == -1 else size for size in target]
    elif total != known:
        raise OpError(
            f"Input to reshape is a tensor with {total} dense values, but {target} has {known}"
        )
    sizes = np.array(target, np.int64)
    if not len(indices):
        return np.zeros((0, len(target)), np.int64), sizes
    if 0 in target:
        raise OpError(f"a tensor of shape {target} has no elements, but {len(indices)} indices")
    # indices beyond the shape are carried over as numbers
    rest, result = indices @ _strides(source), np.empty((len(indices), len(target)), np.int64)
    for column, stride in enumerate(_strides(target)):
        inner = np.fmod(rest, stride)  # of the sign of the dividend
        result[:, column] = (rest - inner) // stride
        rest = inner
    return result, sizes


def _strides(sizes: Sequence[int]) -> Any:
    """The number of elements between two neighbors of each dimension."""
    return np.array([math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))], np.int64)


class SparseReshape(Op):
    """Indices and dense shape of the same elements after a reshape."""

    signature = (
        "input_indices: host int64, input_shape: host int64, new_shape: host int64 "
        "-> output_indices: int64, output_shape: int64"
    )
    compilation = CompilerSupport(traceable=False)
    function = staticmethod(_sparse_reshape)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        rows = require_rank(context.inputs[0], 2)[:1]
        rank = require_rank(context.inputs[2], 1)
        require_rank(context.inputs[1], 1)
        return [rows + rank, rank]


class SparseTensorDenseAdd(Op):
    """Sum of a sparse and a dense tensor, as a dense tensor."""

    signature = "a_indices: Tindices, a_values: T, a_shape: Tindices, b: T -> output: T"
    attrs = (
        "T: {float32, float64, int32, uint8, int16, int8, complex64, int64, qint8, quint8, "
        "qint32, bfloat16, qint16, quint16, uint16, complex128, float16, uint32, uint64}, "
        "Tindices: {int32, int64}"
    )
    compilation = CompilerSupport(traceable=False)
    gradient = staticmethod(sparse_add_gradient)

    @staticmethod
    def kernel(xp: ModuleType, indices: Any, values: Any, shape: Any, b: Any) -> Any:
        if tuple(shape.tolist()) != b.shape:
            raise OpError(f"Dimensions do not match: {shape.tolist()} vs. {list(b.shape)}")
        if indices.shape != (values.size, b.ndim):
            raise OpError(f"Input a_indices must have the shape [{values.size}, {b.ndim}]")
        check_indices_inside(indices, b.shape, "a_indices")
        result = b.copy()
        np.add.at(result, tuple(indices.T), values)
        return result

    shape = staticmethod(lambda context: [context.inputs[3]])
