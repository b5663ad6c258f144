"""Slices of XLA, whose positions are clamped so that the slice lies inside the tensor."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape
from cfgraph.ops.opdef.array_namespace import updated_at
from cfgraph.ops.opdef.facts import Aliasing, CompilerSupport, HostPlacement
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank, shape_of_rank


def clamped_window(x: Any, starts: Any, sizes: Sequence[int]) -> tuple[slice, ...]:
    """The window of these sizes that begins at the nearest position inside `x`."""
    if starts.ndim != 1 or len(starts) != x.ndim or len(sizes) != x.ndim:
        message = (
            f"a slice of shape {list(sizes)} at {starts.size} start indices does not fit a tensor "
            f"of rank {x.ndim}"
        )
        raise OpError(message)
    window = []
    for axis, (start, size, dim) in enumerate(zip(starts.tolist(), sizes, x.shape, strict=True)):
        if not 0 <= size <= dim:
            message = f"a slice of size {size} does not fit axis {axis} of size {dim}"
            raise OpError(message)
        first = min(max(start, 0), dim - size)
        window.append(slice(first, first + size))
    return tuple(window)


class XlaDynamicSlice(Op):
    """Slice of constant sizes from start indices, clamped to the tensor."""

    signature = "input: T, start_indices: Tindices, size_indices: Tindices -> output: T"
    attrs = "Tindices: {int32, int64}"
    placement = HostPlacement(host_inputs=(1, 2))
    compilation = CompilerSupport(constant_inputs=(2,))
    aliasing = Aliasing(preserves_elements=True, reads_region=True)

    @staticmethod
    def kernel(xp: ModuleType, x: Any, starts: Any, sizes: Any) -> Any:
        if sizes.ndim != 1:
            message = f"size_indices must be a vector, got shape {list(sizes.shape)}"
            raise OpError(message)
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

    signature = "input: T, update: T, indices: Tindices -> output: T"
    attrs = "Tindices: {int32, int64}"
    placement = HostPlacement(host_inputs=(2,))
    aliasing = Aliasing(preserves_elements=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        def update_slice(x: Any, update: Any, starts: Any) -> Any:
            if hasattr(x, "at"):
                return x.at[_traced_window(xp, x, starts, update.shape)].set(update)
            return updated_at(x, clamped_window(x, starts, update.shape), update)

        return update_slice

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        require_rank(context.inputs[2], 1)
        return [context.inputs[0].merge(shape_of_rank(context.inputs[1].rank))]


def _traced_window(xp: ModuleType, x: Any, starts: Any, sizes: Sequence[int]) -> Any:
    """The window as an index array per axis: jax knows no start that is computed."""
    axes = [
        xp.clip(starts[axis], 0, dim - size) + xp.arange(size)
        for axis, (size, dim) in enumerate(zip(sizes, x.shape, strict=True))
    ]
    return xp.ix_(*axes) if axes else ()
