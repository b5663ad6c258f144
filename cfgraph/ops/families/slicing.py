"""Rectangular slices, by start and extent.

The slices of XLA have positions that are clamped so that the slice lies inside the tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape, ShapeError
from cfgraph.ops.kernels.array_namespace import updated_at
from cfgraph.ops.opdef.facts import AlgebraicFacts, Aliasing
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients
from cfgraph.ops.opdef.op import Op, OpError, knows_values
from cfgraph.ops.opdef.shape_functions import (
    InferenceContext,
    require_rank,
    shape_of_rank,
    static_ints,
)


def _slice_value(value: Any, begin: Any, size: Any) -> Any:
    rank = value.ndim
    if begin.shape != (rank,) or size.shape != (rank,):
        raise OpError(
            f"Expected begin and size arguments to be 1-D tensors of size {rank}, but got shapes "
            f"{list(begin.shape)} and {list(size.shape)} instead."
        )
    if not rank:
        return value
    index = []
    for axis, (start, extent, dim) in enumerate(
        zip(begin.tolist(), size.tolist(), value.shape, strict=True)
    ):
        stop = dim if extent == -1 else start + extent
        if not 0 <= start <= dim:
            raise OpError(f"Expected begin[{axis}] in [0, {dim}], but got {start}")
        if not start <= stop <= dim:
            raise OpError(f"Expected size[{axis}] in [0, {dim - start}], but got {extent}")
        index.append(slice(start, stop))
    return value[tuple(index)]


class Slice(Op):
    """Slice of extent `size` from `begin`; size -1 extends to the end of the dimension."""

    signature = "input: T, begin: const Index, size: const Index -> output: T"
    attrs = "Index: {int32, int64}"
    aliasing = Aliasing(preserves_elements=True, reads_region=True)
    algebra = AlgebraicFacts(product_role="slices")

    @classmethod
    def equal_input(cls, context: InferenceContext) -> int | None:
        return 0 if knows_values(context, 1) and cls.keeps_static_shape(context) else None

    function = staticmethod(_slice_value)
    batching = staticmethod(
        lambda g, node: g.copy(node, g.value(0), g.prefixed(1, 0), g.prefixed(2, -1))
    )

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data, begin, size = context.inputs[0], static_ints(context, 1), static_ints(context, 2)
        bounds = require_rank(context.inputs[1].merge(context.inputs[2]), 1)
        rank = bounds.dims[0] if bounds.dims else None
        data = data.merge(shape_of_rank(rank))
        sizes = context.shape_value(2)
        if data.dims is None:
            return [sizes if size is not None and -1 not in size else shape_of_rank(sizes.rank)]
        if size is None:
            return [sizes.merge(shape_of_rank(len(data.dims)))]
        if begin is None:
            return [
                Shape(
                    None if extent == -1 and dim != 0 else max(extent, 0)
                    for extent, dim in zip(size, data.dims, strict=True)
                )
            ]
        return [
            Shape(
                _static_slice_size(dim, start, extent)
                for dim, start, extent in zip(data.dims, begin, size, strict=True)
            )
        ]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        x, begin, _ = node.inputs
        margins = _static_slice_margins(g, node)
        if margins is not None:
            return g.Pad(dz, g.const(margins or np.zeros((0, 2)), dtypes.int32)), None, None
        index = begin.dtype or dtypes.int32
        after = g.Sub(g.Sub(g.shape(x, index), g.shape(dz, index)), begin)
        return g.Pad(dz, g.Pack(begin, after, axis=1)), None, None


def _static_slice_margins(g: GradientBuilder, node: Node) -> list[list[int]] | None:
    """Extents of each dimension before and after the slice, None if not statically known."""
    x, begin, size = node.inputs
    starts, extents, dims = g.known_value(begin), g.known_value(size), g.known_shape(x).dims
    if starts is None or extents is None or dims is None:
        return None
    margins = []
    for dim, start, extent in zip(dims, starts.tolist(), extents.tolist(), strict=True):
        if extent != -1 and dim is None:
            return None
        margins.append([start, 0 if extent == -1 or dim is None else dim - start - extent])
    return margins


def _static_slice_size(dim: int | None, start: int, extent: int) -> int | None:
    if extent == -1:
        extent = -1 if dim is None else dim - start
        if dim is None:
            return None
    if start < 0 or extent < 0 or (dim is not None and start + extent > dim):
        message = f"a slice of size {extent} from {start} does not fit a dimension of size {dim}"
        raise ShapeError(message)
    return extent


def clamped_window(x: Any, starts: Any, sizes: Sequence[int]) -> tuple[slice, ...]:
    """The window of these sizes that begins at the nearest position inside `x`."""
    if starts.ndim != 1 or len(starts) != x.ndim or len(sizes) != x.ndim:
        raise OpError(
            f"a slice of shape {list(sizes)} at {starts.size} start indices does not fit a tensor "
            f"of rank {x.ndim}"
        )
    window: list[slice] = []
    for start, size, dim in zip(starts.tolist(), sizes, x.shape, strict=True):
        last = dim - size
        if size < 0 or last < 0:
            axis = len(window)
            raise OpError(f"a slice of size {size} does not fit axis {axis} of size {dim}")
        first = last if start > last else max(start, 0)
        window.append(slice(first, first + size))
    return tuple(window)


class XlaDynamicSlice(Op):
    """Slice of constant sizes from start indices, clamped to the tensor."""

    signature = "input: T, start_indices: host Tindices, size_indices: const Tindices -> output: T"
    attrs = "Tindices: {int32, int64}"
    aliasing = Aliasing(preserves_elements=True, reads_region=True)

    @staticmethod
    def kernel(xp: ModuleType, x: Any, starts: Any, sizes: Any) -> Any:
        if sizes.ndim != 1:
            raise OpError(f"size_indices must be a vector, got shape {list(sizes.shape)}")
        if hasattr(x, "at"):
            return x[_traced_window(xp, x, starts, sizes.tolist())]
        return x[clamped_window(x, starts, sizes.tolist())]

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        require_rank(context.inputs[1], 1)
        require_rank(context.inputs[2], 1)
        return [context.shape_value(2).merge(shape_of_rank(context.inputs[0].rank))]


class XlaDynamicUpdateSlice(Op):
    """Tensor with `update` written at start indices, clamped so that the update fits."""

    signature = "input: T, update: T, indices: host Tindices -> output: T"
    attrs = "Tindices: {int32, int64}"
    aliasing = Aliasing(preserves_elements=True)

    @staticmethod
    def kernel(xp: ModuleType, x: Any, update: Any, starts: Any) -> Any:
        if hasattr(x, "at"):
            return x.at[_traced_window(xp, x, starts, update.shape)].set(update)
        return updated_at(x, clamped_window(x, starts, update.shape), update)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        require_rank(context.inputs[2], 1)
        return [context.inputs[0].merge(shape_of_rank(context.inputs[1].rank))]


def _traced_window(xp: ModuleType, x: Any, starts: Any, sizes: Sequence[int]) -> Any:
    """The window as an index array per axis: jax knows no start that is computed."""
    clamped_window(x, np.zeros(starts.shape, np.int64), sizes)  # raises for one that does not fit
    axes = [
        xp.clip(starts[axis], 0, dim - size) + xp.arange(size)
        for axis, (size, dim) in enumerate(zip(sizes, x.shape, strict=True))
    ]
    return xp.ix_(*axes) if axes else ()
