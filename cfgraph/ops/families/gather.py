"""Slices selected by indices (Gather, GatherV2, GatherNd) and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.errors import Unsupported
from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, ShapeError
from cfgraph.ops.kernels.array_namespace import checked_axis, defer_check, is_in_range
from cfgraph.ops.kernels.variant_math import object_item
from cfgraph.ops.opdef.batching import BatchBuilder, NotBatchable
from cfgraph.ops.opdef.facts import Aliasing
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, int32_constant
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import (
    InferenceContext,
    require_rank_at_least,
    shape_of_rank,
    static_axis,
    static_int,
)

SizeLike = int | Output


def gather_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of Gather, GatherV2, and ResourceGather."""
    params, indices = node.inputs[:2]
    batch = _batch_dims(g, node)
    axis = node.inputs[2] if len(node.inputs) > 2 else int32_constant(g, batch)
    position = g.known_value(axis)
    rank = g.known_shape(params).rank
    if position is not None and (position == 0 or (rank is not None and int(position) % rank == 0)):
        dx = g.UnsortedSegmentSum(dz, indices, _size_tensor(g, _dims_product(g, params, 0, 1)))
    else:
        count = _dims_product(g, indices, batch, None)
        dx = _scatter_sum(g, params, indices, dz, [*_sizes_by_axis(g, params, axis, batch), count])
    return [dx, *[None] * (len(node.inputs) - 1)]


def row_gather_gradient(g: GradientBuilder, x: Output, indices: Output, dz: Output) -> Output:
    """Gradient of x for an op that selects elements of each row."""
    if g.known_shape(x).rank == 1:
        return g.UnsortedSegmentSum(dz, indices, _size_tensor(g, _dims_product(g, x, 0, 1)))
    outer, size, count = (
        _dims_product(g, x, 0, -1),
        _dims_product(g, x, -1, None),
        _dims_product(g, dz, -1, None),
    )
    return _scatter_sum(g, x, indices, dz, [outer, 1, size, 1, count])


def matrix_row_gather_gradient(
    g: GradientBuilder, x: Output, indices: Output, dz: Output
) -> Output:
    """Gradient with respect to `x` of an op that selects rows of each matrix in `x`."""
    batch, rows = _dims_product(g, x, 0, -2), _dims_product(g, x, -2, -1)
    columns, count = _dims_product(g, x, -1, None), _dims_product(g, dz, -2, -1)
    return _scatter_sum(g, x, indices, dz, [batch, 1, rows, columns, count])


def gather_nd_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of GatherNd and ResourceGatherNd."""
    params, indices = node.inputs[0], widen_indices(g, node.inputs[1])
    shape = g.known_shape(indices)
    if shape.rank and shape[-1:].elements == 0:
        # an empty index vector selects the entire tensor
        return g.Sum(dz, int32_constant(g, range(shape.rank - 1))), None
    if shape.rank == 1:
        indices, dz = (g.ExpandDims(tensor, int32_constant(g, 0)) for tensor in (indices, dz))
    policy = {key: value for key, value in node.attrs.items() if key == "bad_indices_policy"}
    return g.ScatterNd(indices, dz, g.shape(params, indices.dtype or dtypes.int32), **policy), None


def widen_indices(g: GradientBuilder, indices: Output) -> Output:
    """Cast indices to int32 unless their dtype is accepted by every op."""
    enough = indices.dtype in (dtypes.int32, dtypes.int64)
    return indices if enough else g.Cast(indices, DstT=dtypes.int32)


def _batch_dims(g: GradientBuilder, node: Node) -> int:
    """Number of batch dimensions, as a non-negative number."""
    batch: int = node.attrs.get("batch_dims", 0)
    rank = g.known_shape(node.inputs[1]).rank
    if batch < 0 and rank is None:
        message = f"batch_dims {batch} counts from the end of indices of unknown rank"
        hint = "use a non-negative batch_dims"
        raise Unsupported(message, node=node, hint=hint, code="CFG502")
    return batch + (rank or 0) if batch < 0 else batch


def _sizes_by_axis(g: GradientBuilder, params: Output, axis: Output, batch: int) -> list[SizeLike]:
    """Element counts of the batch, the dimensions before the axis, the axis, and the rest."""
    known, rank = g.known_value(axis), g.known_shape(params).rank
    if known is not None and (rank is not None or known >= 0):
        position = int(known) if rank is None else int(known) % rank
        spans = ((0, batch), (batch, position), (position, position + 1), (position + 1, None))
        return [_dims_product(g, params, *span) for span in spans]
    sizes = g.shape(params)
    if axis.dtype != dtypes.int32:
        axis = g.Cast(axis, DstT=dtypes.int32)
    at = g.Reshape(g.FloorMod(axis, g.Size(sizes)), int32_constant(g, [1]))
    first, single, remaining = (int32_constant(g, [number]) for number in (batch, 1, -1))
    parts = (
        (int32_constant(g, [0]), first),
        (first, g.Sub(at, first)),
        (at, single),
        (g.AddV2(at, single), remaining),
    )
    return [_sizes_product(g, g.Slice(sizes, start, length)) for start, length in parts]


def _scatter_sum(
    g: GradientBuilder, params: Output, indices: Output, dz: Output, sizes: list[SizeLike]
) -> Output:
    """Gradient of a gather along one axis, as one segment sum over flattened positions.

    `sizes` are the element counts of the batch, the dimensions before the axis, the axis, and the
    rest, and the number of indices per batch.
    """
    batch, between, size, after, count = sizes
    rows = g.Reshape(dz, _size_vector(g, batch, between, count, after))
    groups = _size_tensor(g, _multiply_sizes(g, batch, between))
    starts = g.Mul(
        g.Range(int32_constant(g, 0), groups, int32_constant(g, 1)), _size_tensor(g, size)
    )
    if starts.dtype != indices.dtype:
        starts = g.Cast(starts, DstT=indices.dtype)
    column = g.Reshape(starts, _size_vector(g, batch, between, 1))
    positions = g.AddV2(column, g.Reshape(indices, _size_vector(g, batch, 1, count)))
    total = _size_tensor(g, _multiply_sizes(g, _multiply_sizes(g, batch, between), size))
    return g.Reshape(g.UnsortedSegmentSum(rows, positions, total), g.shape(params))


def _dims_product(g: GradientBuilder, x: Output, start: int, end: int | None) -> SizeLike:
    """Product of a range of dimensions."""
    known = g.known_shape(x)[start:end]
    if known.elements is not None:
        return known.elements
    bounds = (int32_constant(g, [bound]) for bound in (start, end or 0, 1))
    return _sizes_product(g, g.StridedSlice(g.shape(x), *bounds, end_mask=int(end is None)))


def _sizes_product(g: GradientBuilder, sizes: Output) -> Output:
    return g.Prod(sizes, int32_constant(g, 0))


def _multiply_sizes(g: GradientBuilder, x: SizeLike, y: SizeLike) -> SizeLike:
    if isinstance(x, int) and isinstance(y, int):
        return x * y
    if 1 in (x, y):
        return y if x == 1 else x
    return g.Mul(_size_tensor(g, x), _size_tensor(g, y))


def _size_tensor(g: GradientBuilder, size: SizeLike) -> Output:
    return int32_constant(g, size) if isinstance(size, int) else size


def _size_vector(g: GradientBuilder, *sizes: SizeLike) -> Output:
    known: list[Any] = [size for size in sizes if isinstance(size, int)]
    return (
        int32_constant(g, known)
        if len(known) == len(sizes)
        else g.Pack([_size_tensor(g, s) for s in sizes])
    )


class GatherV2(Op):
    """Slices of `params` along an axis, selected by `indices`, optionally with batch dimensions."""

    signature = "params: Tparams, indices: Tindices, axis: const Taxis -> output: Tparams"
    attrs = "batch_dims: int = 0, Tindices: {int16, int32, int64}, Taxis: {int32, int64}"
    aliasing = Aliasing(preserves_elements=True, reads_region=True)

    @staticmethod
    def batching(g: BatchBuilder, node: Node) -> Output:
        if node.attr("batch_dims"):
            raise NotBatchable
        return g.copy(node, g.value(0), g.shared(1), g.next_axes(2))

    @staticmethod
    def kernel(xp: ModuleType, batch_dims: int, /, params: Any, indices: Any, axis: Any) -> Any:
        position = checked_axis(axis, params.ndim)
        if batch_dims:
            return take_batched_slices(xp, params, indices, position, batch_dims)
        return take_slices(xp, params, indices, position)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        params = require_rank_at_least(context.inputs[0], 1)
        axis = static_int(context, 2)
        return [_gather_shape(params, context.inputs[1], axis, context.attr("batch_dims"))]

    gradient = staticmethod(gather_gradient)


class Gather(Op):
    """Slices of `params` along its first dimension, selected by `indices`."""

    signature = "params: Tparams, indices: Tindices -> output: Tparams"
    attrs = "validate_indices: bool = true, Tindices: {int32, int64}"
    aliasing = Aliasing(preserves_elements=True, reads_region=True)

    @staticmethod
    def kernel(xp: ModuleType, params: Any, indices: Any) -> Any:
        if not params.ndim:
            raise OpError("params must be at least 1 dimensional")
        return take_slices(xp, params, indices, 0)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [_gather_shape(require_rank_at_least(context.inputs[0], 1), context.inputs[1], 0, 0)]

    gradient = staticmethod(gather_gradient)


def take_slices(xp: ModuleType, params: Any, indices: Any, axis: int) -> Any:
    """Select slices along an axis. Raises OpError for an index out of range.

    Kernels on an accelerator cannot fail; they clip the index instead, and may defer the check.
    """
    if xp is not np:
        defer_check(lambda: _are_in_range(indices, params.shape[axis]))
        if not params.shape[axis]:  # jax takes nothing from an empty array in another shape
            shape = (*params.shape[:axis], *indices.shape, *params.shape[axis + 1 :])
            return xp.zeros(shape, params.dtype)
        return xp.take(params, xp.clip(indices, 0, max(params.shape[axis] - 1, 0)), axis=axis)
    if not indices.ndim and not axis and not params.dtype.hasobject:
        if not 0 <= indices < params.shape[0]:
            raise OpError(_is_out_of_range(indices, params.shape[0]))
        return params[indices]
    try:
        result = params.take(_without_negative(indices), axis)
    except IndexError:
        raise OpError(_is_out_of_range(indices, params.shape[axis])) from None
    return result if isinstance(result, np.ndarray | np.generic) else object_item(result)


def _without_negative(indices: Any) -> Any:
    """The NumPy indices as NumPy rejects them. Raises IndexError for negative ones."""
    if isinstance(indices, np.ndarray) and indices.dtype == np.int32:
        return indices.view(np.uint32)  # read as unsigned, a negative index is too large
    if indices.size and indices.min() < 0:
        raise IndexError
    return indices


def _is_out_of_range(indices: Any, size: int) -> str:
    array = np.asarray(indices)
    bad = np.argwhere((array < 0) | (array >= size))
    where = "" if array.ndim == 0 or not len(bad) else str(bad[0].tolist())
    value = array if array.ndim == 0 else array[tuple(bad[0])] if len(bad) else "?"
    return f"indices{where} = {value} is not in [0, {size})"


def _are_in_range(indices: Any, size: int) -> Any:
    return np.True_ if is_in_range(indices, size) else (indices >= 0) & (indices < size)


def take_batched_slices(xp: ModuleType, params: Any, indices: Any, axis: int, batch: int) -> Any:
    """Select slices along an axis, per element of the first `batch` dimensions."""
    batch = batch + indices.ndim if batch < 0 else batch
    if not 0 <= batch <= min(indices.ndim, params.ndim):
        raise OpError(f"batch_dims {batch} must be in [0, {min(indices.ndim, params.ndim)}]")
    if axis < batch:
        raise OpError(f"batch_dims ({batch}) must be less than or equal to axis ({axis}).")
    if params.shape[:batch] != indices.shape[:batch]:
        raise OpError(
            f"The first {batch} dimensions of params {list(params.shape)} and indices "
            f"{list(indices.shape)} must match"
        )
    size = params.shape[axis]
    if xp is not np:
        defer_check(lambda: _are_in_range(indices, size))
    # move the gathered axis next to the batch dimensions, and the dimensions between back at the
    # end
    moved = params if axis == batch else xp.moveaxis(params, axis, batch)
    rows = row_numbers(xp, indices.shape[:batch], indices.ndim)
    if xp is np:
        try:
            picked = moved[(*rows, _without_negative(indices))]
        except IndexError:
            raise OpError(_is_out_of_range(indices, size)) from None
    else:
        picked = moved[(*rows, xp.clip(indices, 0, max(size - 1, 0)))]
    between = axis - batch
    if not between or indices.ndim == batch:
        return picked
    moved_axes = range(indices.ndim, indices.ndim + between)
    return xp.moveaxis(picked, list(moved_axes), list(range(batch, batch + between)))


def row_numbers(xp: ModuleType, sizes: tuple[int, ...], rank: int) -> list[Any]:
    """The index of each element along the first dimensions of indices of this rank."""
    few = xp is np and sum(sizes) <= _FEW_ROWS
    return (_few_row_numbers if few else _row_numbers)(xp, sizes, rank)


def _row_numbers(xp: ModuleType, sizes: tuple[int, ...], rank: int) -> list[Any]:
    last = rank - 1
    return [xp.arange(size).reshape([-1] + [1] * (last - d)) for d, size in enumerate(sizes)]


# rows up to which their numbers are kept: a loop selects from as many in each iteration
_FEW_ROWS: Final = 256
_few_row_numbers = lru_cache(maxsize=64)(_row_numbers)


def _gather_shape(params: Shape, indices: Shape, axis: int | None, batch: int) -> Shape:
    if batch < 0:
        if indices.dims is None:
            return UNKNOWN_SHAPE
        batch = static_axis(batch, len(indices.dims))
    require_rank_at_least(indices, batch)
    require_rank_at_least(params, batch)
    if params.dims is None or indices.dims is None:
        return UNKNOWN_SHAPE
    if axis is None:
        return shape_of_rank(len(params.dims) - 1 + len(indices.dims) - batch)
    position = static_axis(axis, len(params.dims))
    if position < batch:
        raise ShapeError(f"batch_dims {batch} is beyond the axis {position}")
    rows = Shape(params.dims[:batch]).merge(Shape(indices.dims[:batch]))
    return (
        rows
        + Shape(params.dims[batch:position])
        + Shape(indices.dims[batch:])
        + Shape(params.dims[position + 1 :])
    )


class GatherNd(Op):
    """Slices of `params` selected by index vectors over its leading dimensions."""

    signature = "params: Tparams, indices: Tindices -> output: Tparams"
    attrs = "Tindices: {int16, int32, int64}, bad_indices_policy: string = ''"
    aliasing = Aliasing(reads_region=True)

    @staticmethod
    def kernel(
        xp: ModuleType, bad_indices_policy: bytes, Tparams: DType, /, params: Any, indices: Any
    ) -> Any:
        params, indices = with_index_depth(xp, params, indices)
        check = bad_indices_policy != b"IGNORE"
        if xp is np and check and indices.ndim > 1 and indices.shape[-1] == 1:
            with suppress(OpError):  # which does not name the vector
                return take_slices(xp, params, indices[..., 0], 0)
        where, bad = index_vectors(xp, indices, params.shape, check=check)
        picked = params[(*where, ...)]
        if bad is None:
            return picked
        bad = bad.reshape(bad.shape + (1,) * (picked.ndim - bad.ndim))
        return xp.where(bad, xp.full((), b"" if Tparams.is_object else 0, Tparams.numpy), picked)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        params, indices = context.inputs
        require_rank_at_least(indices, 1)
        if params.dims is None or indices.dims is None or indices.dims[-1] is None:
            return [UNKNOWN_SHAPE]
        depth = indices.dims[-1]
        if depth > len(params.dims):
            raise ShapeError(f"index vectors of length {depth} exceed the rank of shape {params}")
        return [indices[:-1] + params[depth:]]

    gradient = staticmethod(gather_nd_gradient)


def with_index_depth(xp: ModuleType, params: Any, indices: Any) -> tuple[Any, Any]:
    """Add a leading dimension if index vectors are empty: each selects the entire tensor."""
    if indices.ndim < 1:
        raise OpError("indices must be at least a vector")
    if indices.shape[-1]:
        return params, indices
    return params[None], xp.zeros((*indices.shape[:-1], 1), indices.dtype)


def index_vectors(
    xp: ModuleType, indices: Any, sizes: tuple[int, ...], *, check: bool
) -> tuple[tuple[Any, ...], Any | None]:
    """Convert index vectors to an index of arrays, and a mask of invalid vectors (None: none).

    Raises OpError for an invalid vector if `check` is set; an accelerator may defer the check.
    """
    depth = indices.shape[-1]
    if depth > len(sizes):
        raise OpError(
            f"index innermost dimension length must be <= params rank; saw: {depth} vs. "
            f"{len(sizes)}"
        )
    if xp is np:
        parts = tuple([indices[..., d] for d in range(depth)])
        # read as unsigned, a negative index is too large: one comparison checks both bounds
        unsigned = f"u{indices.dtype.itemsize}"
        for part, size in zip(parts, sizes, strict=False):
            if np.count_nonzero(part.view(unsigned) >= size):
                break
        else:
            return parts, None
    limits = xp.asarray(sizes[:depth], indices.dtype if indices.dtype.itemsize > 2 else np.int64)
    wrong = (indices < 0) | (indices >= limits)
    bad = wrong.any(-1)
    if xp is np and check:
        first = np.argwhere(bad)[0].tolist()
        raise OpError(
            f"indices{first} = {indices[tuple(first)].tolist()} does not index into shape "
            f"{list(sizes)}"
        )
    if check:
        defer_check(lambda: ~bad)
    inside = xp.where(bad[..., None], 0, indices)
    return tuple(xp.moveaxis(inside, -1, 0)), bad
