"""Slices picked by indices: Gather, GatherV2, GatherNd."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops import gather_gradients
from cfgraph.ops.dims import (
    any_of_rank,
    runtime_axis,
    static_axis,
    static_int,
    want_rank_at_least,
)
from cfgraph.ops.elements import scalar
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError


class GatherV2(Op):
    """The slices of `params` along an axis that `indices` names, the first dimensions batched."""

    signature = "params: Tparams, indices: Tindices, axis: Taxis -> output: Tparams"
    attrs = "batch_dims: int = 0, Tindices: {int16, int32, int64}, Taxis: {int32, int64}"
    host_inputs = (2,)
    constant_inputs = (2,)
    moves = True
    takes_part = True

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        batch = node.attr("batch_dims")

        def gather(params: Any, indices: Any, axis: Any) -> Any:
            place = runtime_axis(axis, params.ndim)
            if batch:
                return take_batched(xp, params, indices, place, batch)
            return take(xp, params, indices, place)

        return gather

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        params = want_rank_at_least(context.inputs[0], 1)
        axis = static_int(context, 2)
        return [_gathered(params, context.inputs[1], axis, context.attr("batch_dims"))]

    gradient = staticmethod(gather_gradients.of_gather)


class Gather(Op):
    """The slices of `params` along its first dimension that `indices` names."""

    signature = "params: Tparams, indices: Tindices -> output: Tparams"
    attrs = "validate_indices: bool = true, Tindices: {int32, int64}"
    moves = True
    takes_part = True

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        def gather(params: Any, indices: Any) -> Any:
            if not params.ndim:
                message = "params must be at least 1 dimensional"
                raise OpError(message)
            return take(xp, params, indices, 0)

        return gather

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [_gathered(want_rank_at_least(context.inputs[0], 1), context.inputs[1], 0, 0)]

    gradient = staticmethod(gather_gradients.of_gather)


def take(xp: ModuleType, params: Any, indices: Any, axis: int) -> Any:
    """Slices along an axis. Raises OpError where an index is out of range.

    On an accelerator, where a kernel cannot fail, such an index is moved into the range.
    """
    if xp is not np:
        return xp.take(params, xp.clip(indices, 0, max(params.shape[axis] - 1, 0)), axis=axis)
    if not indices.ndim and not axis and not params.dtype.hasobject:
        if not 0 <= indices < params.shape[0]:
            raise OpError(_outside(indices, params.shape[0]))
        return params[indices]
    if isinstance(indices, np.ndarray) and indices.dtype == np.int32:
        # a negative index, read as unsigned, is too large: one check does for both ends
        unsigned = indices.view(np.uint32)
    elif indices.size and indices.min() < 0:
        raise OpError(_outside(indices, params.shape[axis]))
    else:
        unsigned = indices
    try:
        result = params.take(unsigned, axis)
    except IndexError:
        raise OpError(_outside(indices, params.shape[axis])) from None
    return result if isinstance(result, np.ndarray | np.generic) else scalar(result)


def _outside(indices: Any, size: int) -> str:
    array = np.asarray(indices)
    bad = np.argwhere((array < 0) | (array >= size))
    where = "" if array.ndim == 0 or not len(bad) else str(bad[0].tolist())
    value = array if array.ndim == 0 else array[tuple(bad[0])] if len(bad) else "?"
    return f"indices{where} = {value} is not in [0, {size})"


def take_batched(xp: ModuleType, params: Any, indices: Any, axis: int, batch: int) -> Any:
    """Slices along an axis, the first `batch` dimensions of both going together."""
    batch = batch + indices.ndim if batch < 0 else batch
    if not 0 <= batch <= min(indices.ndim, params.ndim):
        message = f"batch_dims {batch} must be in [0, {min(indices.ndim, params.ndim)}]"
        raise OpError(message)
    if axis < batch:
        message = f"batch_dims ({batch}) must be less than or equal to axis ({axis})."
        raise OpError(message)
    if params.shape[:batch] != indices.shape[:batch]:
        message = (
            f"The first {batch} dimensions of params {list(params.shape)} and indices "
            f"{list(indices.shape)} must match"
        )
        raise OpError(message)
    size = params.shape[axis]
    if xp is np and indices.size and (indices.min() < 0 or indices.max() >= size):
        raise OpError(_outside(indices, size))
    # the gathered axis moves in front of what lies between it and the batch, and back
    moved = xp.moveaxis(params, axis, batch)
    rows = [
        xp.arange(indices.shape[place]).reshape([-1] + [1] * (indices.ndim - place - 1))
        for place in range(batch)
    ]
    picked = moved[(*rows, xp.clip(indices, 0, max(size - 1, 0)))]
    between = axis - batch
    if not between or indices.ndim == batch:
        return picked
    mine = range(indices.ndim, indices.ndim + between)
    return xp.moveaxis(picked, list(mine), list(range(batch, batch + between)))


def _gathered(params: Shape, indices: Shape, axis: int | None, batch: int) -> Shape:
    if batch < 0:
        if indices.dims is None:
            return UNKNOWN_SHAPE
        batch = static_axis(batch, len(indices.dims))
    want_rank_at_least(indices, batch)
    want_rank_at_least(params, batch)
    if params.dims is None or indices.dims is None:
        return UNKNOWN_SHAPE
    if axis is None:
        return any_of_rank(len(params.dims) - 1 + len(indices.dims) - batch)
    place = static_axis(axis, len(params.dims))
    if place < batch:
        message = f"batch_dims {batch} is beyond the axis {place}"
        raise ValueError(message)
    rows = Shape(params.dims[:batch]).merge(Shape(indices.dims[:batch]))
    return (
        rows
        + Shape(params.dims[batch:place])
        + Shape(indices.dims[batch:])
        + Shape(params.dims[place + 1 :])
    )


class GatherNd(Op):
    """The slices that index vectors name: each vector indexes the first dimensions."""

    signature = "params: Tparams, indices: Tindices -> output: Tparams"
    attrs = "Tindices: {int16, int32, int64}, bad_indices_policy: string = ''"
    takes_part = True

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        ignore = node.attr("bad_indices_policy") == b"IGNORE"
        dtype = node.attr("Tparams")
        fill = b"" if dtype.is_object else 0

        def gather_nd(params: Any, indices: Any) -> Any:
            params, indices = with_depth(xp, params, indices)
            where, bad = index_vectors(xp, indices, params.shape, check=not ignore)
            picked = params[(*where, ...)]
            if bad is None:
                return picked
            bad = bad.reshape(bad.shape + (1,) * (picked.ndim - bad.ndim))
            return xp.where(bad, xp.full((), fill, dtype.numpy), picked)

        return gather_nd

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        params, indices = context.inputs
        want_rank_at_least(indices, 1)
        if params.dims is None or indices.dims is None or indices.dims[-1] is None:
            return [UNKNOWN_SHAPE]
        depth = indices.dims[-1]
        if depth > len(params.dims):
            message = f"index vectors of {depth} for a tensor of shape {params}"
            raise ValueError(message)
        return [indices[:-1] + params[depth:]]

    gradient = staticmethod(gather_gradients.of_gather_nd)


def with_depth(xp: ModuleType, params: Any, indices: Any) -> tuple[Any, Any]:
    """The same with one dimension more where index vectors are empty: each names all of it."""
    if indices.ndim < 1:
        message = "indices must be at least a vector"
        raise OpError(message)
    if indices.shape[-1]:
        return params, indices
    return params[None], xp.zeros((*indices.shape[:-1], 1), indices.dtype)


def index_vectors(
    xp: ModuleType, indices: Any, sizes: tuple[int, ...], *, check: bool
) -> tuple[tuple[Any, ...], Any | None]:
    """An index of arrays, made of index vectors, and which of them point outside (None: none).

    Raises OpError where one does, if `check`; on an accelerator none is checked.
    """
    depth = indices.shape[-1]
    if depth > len(sizes):
        message = (
            f"index innermost dimension length must be <= params rank; saw: {depth} vs. "
            f"{len(sizes)}"
        )
        raise OpError(message)
    limits = xp.asarray(sizes[:depth], indices.dtype if indices.dtype.itemsize > 2 else np.int64)
    wrong = (indices < 0) | (indices >= limits)
    if xp is np and not wrong.any():
        return tuple(np.moveaxis(indices, -1, 0)), None
    bad = wrong.any(-1)
    if xp is np and check:
        first = np.argwhere(bad)[0].tolist()
        message = (
            f"indices{first} = {indices[tuple(first)].tolist()} does not index into shape "
            f"{list(sizes)}"
        )
        raise OpError(message)
    inside = xp.where(bad[..., None], 0, indices)
    return tuple(xp.moveaxis(inside, -1, 0)), bad
