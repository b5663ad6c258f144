"""Reductions and softmax of sparse tensors in coordinate format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.limits import reserve_array
from cfgraph.ops.families.sparse_arithmetic import check_size, check_sparse
from cfgraph.ops.opdef.facts import HostPlacement
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, int32_constant
from cfgraph.ops.opdef.op import ALL_NUMBERS, REAL, Op, OpError, one_of
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank

_HOST: Final = HostPlacement(host_only=True)


class SparseSoftmax(Op):
    """Softmax over the present elements of each last dimension."""

    signature = "sp_indices: int64, sp_values: T, sp_shape: int64 -> output: T"
    attrs = "T: {float16, float32, float64}"
    placement = _HOST

    @staticmethod
    def kernel(xp: ModuleType, indices: Any, values: Any, shape: Any) -> Any:
        check_size(shape)
        if len(check_sparse(indices, values, shape)) < 2:
            raise OpError(f"Input should have rank >= 2, got {shape.size}")
        if not len(values):
            return values
        order, starts = _grouped(indices[:, :-1])
        groups = np.zeros(len(order), np.intp)
        groups[starts[1:]] = 1
        groups = groups.cumsum()
        wide = values[order].astype(np.promote_types(values.dtype, np.float32))
        exponents = np.exp(wide - np.maximum.reduceat(wide, starts)[groups])
        shares = exponents / np.add.reduceat(exponents, starts)[groups]
        result = np.empty_like(values)
        result[order] = shares
        return result

    shape = staticmethod(lambda context: [require_rank(context.inputs[1], 1)])

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        indices, _, shape = node.inputs
        y = node.output()
        product = g.Mul(y, dy)
        axis = int32_constant(g, [-1])
        sums = g.SparseReduceSum(indices, product, shape, axis, keep_dims=True)
        return None, g.Mul(y, g.SparseDenseCwiseAdd(indices, dy, shape, g.Neg(sums))), None


_REDUCTION: Final = (
    "input_indices: int64, input_values: T, input_shape: int64, reduction_axes: int32"
)


class SparseReduction(Op, abstract=True):
    """Reduction of a sparse tensor over axes to a dense one."""

    signature = f"{_REDUCTION} -> output: T"
    placement = _HOST
    combine: ClassVar[Callable[..., Any]]

    @classmethod
    def kernel(
        cls, xp: ModuleType, keep_dims: bool, /, indices: Any, values: Any, shape: Any, axes: Any
    ) -> Any:
        sizes = check_sparse(indices, values, shape)
        kept = kept_axes(len(sizes), axes)
        rows, sums = _reduced(indices[:, kept], values, cls.combine)
        result_sizes = [sizes[axis] for axis in kept]
        reserve_array(result_sizes, values.dtype.itemsize)
        result = np.zeros(result_sizes, values.dtype)
        result[tuple(rows.T) or ...] = sums if kept else sums.sum(dtype=values.dtype)
        whole = [size if axis in kept else 1 for axis, size in enumerate(sizes)]
        return result.reshape(whole) if keep_dims else result

    shape = staticmethod(lambda context: [_reduced_shape(context)])


def kept_axes(rank: int, axes: Any) -> list[int]:
    """The axes that remain. Raises OpError for an axis out of range."""
    if axes.ndim > 1:
        raise OpError(f"reduction_axes must be a scalar or a vector, got {list(axes.shape)}")
    reduced = set()
    for axis in axes.reshape(-1).tolist():
        if not -rank <= axis < rank:
            raise OpError(f"Invalid reduction dimension {axis}, for input with {rank} dimensions.")
        reduced.add(axis % rank)
    return [axis for axis in range(rank) if axis not in reduced]


def _reduced(rows: Any, values: Any, combine: Any) -> tuple[Any, Any]:
    """Rows without repetition, and the values combined per row."""
    if not len(values):
        return rows, values
    order, starts = _grouped(rows)
    return rows[order[starts]], combine.reduceat(values[order], starts, dtype=values.dtype)


def _grouped(rows: Any) -> tuple[Any, Any]:
    """The order that sorts rows, stable, and the start of each group of equal ones in it."""
    if not rows.shape[1]:
        return np.arange(len(rows)), np.zeros(1, np.int64)
    order = np.lexsort(rows.T[::-1])
    ordered = rows[order]
    differs = np.ones(len(rows), bool)
    differs[1:] = (ordered[1:] != ordered[:-1]).any(1)
    return order, np.flatnonzero(differs)


def _reduced_shape(context: InferenceContext) -> Shape:
    shape, axes = context.shape_value(2), context.value(3)
    if axes is None or shape.dims is None:
        return UNKNOWN_SHAPE
    kept = kept_axes(len(shape.dims), axes)
    dims = [
        size if axis in kept else 1
        for axis, size in enumerate(shape.dims)
        if axis in kept or context.attr("keep_dims")
    ]
    return Shape(dims)


_SPARSE_OUTPUT: Final = "output_indices: int64, output_values: T, output_shape: int64"


class SparseReduceSum(SparseReduction):
    """Sum over axes, dense."""

    attrs = f"keep_dims: bool = false, {one_of(ALL_NUMBERS)}"
    combine = np.add

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        indices, _, shape, axes = node.inputs
        # each kept axis keeps its size, each reduced one has size 1
        rank = g.Size(shape)
        zero, one = int32_constant(g, 0), int32_constant(g, 1)
        every = g.Range(zero, rank, one)
        chosen = g.FloorMod(g.Reshape(g.Add(axes, rank), int32_constant(g, [-1])), rank)
        hits = g.Any(
            g.Equal(g.ExpandDims(every, one), g.ExpandDims(chosen, zero)), int32_constant(g, [1])
        )
        kept = g.SelectV2(hits, g.OnesLike(shape), shape)
        places = g.Mul(indices, g.Cast(g.NotEqual(kept, g.OnesLike(kept)), DstT=dtypes.int64))
        return None, lambda: g.GatherNd(g.Reshape(dy, kept), places), None, None


class SparseReduceMax(SparseReduction):
    """Maximum over axes, dense."""

    attrs = f"keep_dims: bool = false, {one_of(REAL)}"
    combine = np.maximum


class SparseOutputReduction(Op, abstract=True):
    """Reduction of a sparse tensor over axes to a sparse one."""

    signature = f"{_REDUCTION} -> {_SPARSE_OUTPUT}"
    placement = _HOST
    combine: ClassVar[Callable[..., Any]]

    @classmethod
    def kernel(
        cls, xp: ModuleType, keep_dims: bool, /, indices: Any, values: Any, shape: Any, axes: Any
    ) -> Any:
        sizes = check_sparse(indices, values, shape)
        check_size(sizes)
        kept = kept_axes(len(sizes), axes)
        rows, sums = _reduced(indices[:, kept], values, cls.combine)
        if not keep_dims:
            return rows, sums, shape[kept]
        wide = np.zeros((len(rows), len(sizes)), np.int64)
        wide[:, kept] = rows
        return wide, sums, np.where(np.isin(np.arange(len(sizes)), kept), shape, 1)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [Shape((None, None)), vector_shape(None), vector_shape(None)]


class SparseReduceSumSparse(SparseOutputReduction):
    """Sum over axes, sparse."""

    attrs = f"keep_dims: bool = false, {one_of(ALL_NUMBERS)}"
    combine = np.add


class SparseReduceMaxSparse(SparseOutputReduction):
    """Maximum over axes, sparse."""

    attrs = f"keep_dims: bool = false, {one_of(REAL)}"
    combine = np.maximum
