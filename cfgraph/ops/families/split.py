"""Splitting of tensors along a dimension."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, ShapeError
from cfgraph.ops.kernels.array_namespace import checked_axis
from cfgraph.ops.kernels.variant_math import unwrap_scalar_object
from cfgraph.ops.opdef.batching import BatchBuilder, next_axis
from cfgraph.ops.opdef.facts import Aliasing
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import (
    InferenceContext,
    shape_of_rank,
    static_axis,
    static_int,
    static_ints,
    with_dim,
)


class Split(Op):
    """Slices of equal size along a dimension."""

    signature = "split_dim: const int32, value: T -> output: num_split*T"
    aliasing = Aliasing(preserves_elements=True)
    batching = staticmethod(lambda g, node: g.copy(node, g.next_axes(0), g.value(1)))

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        count = node.attr("num_split")
        last: tuple[Any, list[Any]] = (None, [])

        def split(split_dim: Any, value: Any) -> Any:
            # in most loops the axis and its size are loop-invariant
            nonlocal last
            key, known = (operator.index(split_dim), value.shape), last
            if key != known[0]:
                axis = checked_axis(split_dim, value.ndim, "split_dim")
                last = known = key, split_slices(axis, _equal_sizes(axis, value.shape[axis], count))
            return tuple(map(value.__getitem__, known[1])) if count > 1 else value

        return split

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data, axis = context.inputs[1], static_int(context, 0)
        if data.dims is None or axis is None:
            return [shape_of_rank(data.rank)] * context.output_count
        dim = static_axis(axis, len(data.dims))
        size, count = data.dims[dim], context.output_count
        if size is None:
            return [data] * count
        if size % count:
            message = f"{data} cannot be split into {count} equal slices along dimension {dim}"
            raise ShapeError(message)
        return [with_dim(data, dim, size // count)] * count

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, *grads: Output | None) -> InputGradients:
        pieces = fill_missing_gradients(g, grads)
        return None, pieces[0] if len(pieces) == 1 else g.ConcatV2(pieces, node.inputs[0])


def fill_missing_gradients(g: GradientBuilder, grads: Sequence[Output | None]) -> list[Output]:
    """Gradients of outputs of equal shape, with zeros for missing ones."""
    some = next(grad for grad in grads if grad is not None)
    return [g.zeros_like(some) if grad is None else grad for grad in grads]


def _equal_sizes(axis: int, dim_size: int, count: int) -> list[int]:
    size, remainder = divmod(dim_size, count)
    if remainder:
        raise OpError(
            f"Number of ways to split should evenly divide the split dimension, but got "
            f"split_dim {axis} (size = {dim_size}) and num_split {count}"
        )
    return [size] * count


def split_slices(axis: int, sizes: Sequence[int]) -> list[tuple[slice, ...]]:
    """Indices of consecutive slices of these sizes along an axis."""
    before, start, result = (slice(None),) * axis, 0, []
    for size in sizes:
        result.append((*before, slice(start, start + size)))
        start += size
    return result


def split_views(value: Any, axis: int, sizes: Sequence[int]) -> Any:
    """Views of consecutive slices of these sizes, as kernel outputs."""
    return as_outputs([value[index] for index in split_slices(axis, sizes)])


def as_outputs(values: Sequence[Any]) -> Any:
    """Outputs in the form that a kernel returns: a single value or a tuple."""
    return values[0] if len(values) == 1 else tuple(values)


class SplitV(Op):
    """Slices of explicit sizes along a dimension; -1 stands for the remaining size."""

    signature = "value: T, size_splits: const Tlen, split_dim: const int32 -> output: num_split*T"
    attrs = "Tlen: {int8, int32, int64} = int64"
    batching = staticmethod(lambda g, node: g.copy(node, g.value(0), g.shared(1), g.next_axes(2)))
    aliasing = Aliasing(preserves_elements=True)

    @staticmethod
    def kernel(
        xp: ModuleType, num_split: int, /, value: Any, size_splits: Any, split_dim: Any
    ) -> Any:
        if split_dim.size != 1:
            raise OpError("split_dim tensor must have exactly one element.")
        axis = checked_axis(split_dim.reshape(()), value.ndim, "split_dim")
        if size_splits.shape != (num_split,):
            raise OpError(
                "size_splits should be a vector with one entry per output, "
                f"{num_split} in all; it has the shape {list(size_splits.shape)}"
            )
        return split_views(value, axis, _resolve_sizes(size_splits.tolist(), value.shape[axis]))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data, axes, sizes = context.inputs[0], static_ints(context, 2), context.value(1)
        axis = None if axes is None or len(axes) != 1 else axes[0]
        count = context.output_count
        if data.dims is None or axis is None:
            return [shape_of_rank(data.rank)] * count
        dim = static_axis(axis, len(data.dims))
        if sizes is None or sizes.shape != (count,):
            return [with_dim(data, dim, None)] * count
        dim_size, lengths = data.dims[dim], sizes.tolist()
        if dim_size is not None:
            try:
                lengths = _resolve_sizes(lengths, dim_size)
            except OpError as error:
                raise ShapeError(str(error)) from None
        return [with_dim(data, dim, None if size < 0 else size) for size in lengths]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, *grads: Output | None) -> InputGradients:
        pieces = [
            g.zeros_like(node.output(port)) if grad is None else grad
            for port, grad in enumerate(grads)
        ]
        axis = node.inputs[2]
        if g.known_shape(axis).rank:
            axis = g.Reshape(axis, g.const([], dtypes.int32))
        return pieces[0] if len(pieces) == 1 else g.ConcatV2(pieces, axis), None, None


def _resolve_sizes(sizes: list[int], dim_size: int) -> list[int]:
    if len(sizes) == 1 and sizes[0] != dim_size:
        raise OpError(
            "If there is only one output, it must have the same size as the input. "
            f"Input size: {dim_size} output size: {sizes[0]}"
        )
    known = sum(size for size in sizes if size != -1)
    free = sizes.count(-1)
    if free > 1:
        raise OpError("There can only be one -1 in the input.")
    if any(size < -1 for size in sizes):
        raise OpError(f"Split size must not be negative, but got {sizes}")
    if known > dim_size or (not free and known != dim_size):
        raise OpError(
            "Determined shape must either match input shape along split_dim exactly if fully "
            "specified, or be less than the size of the input along split_dim if not fully "
            f"specified.  Got: {known} for size {dim_size}"
        )
    return [dim_size - known if size == -1 else size for size in sizes]


class Unpack(Op):
    """Slices of a tensor along an axis, which is removed."""

    signature = "value: T -> output: num*T"
    attrs = "num: int >= 0, axis: int = 0"
    aliasing = Aliasing(preserves_elements=True)

    @staticmethod
    def batching(g: BatchBuilder, node: Node) -> Output:
        return g.copy(node, g.value(0), axis=next_axis(node.attr("axis")))

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        num, axis, is_object = node.attr("num"), node.attr("axis"), node.attr("T").is_object

        def unpack(value: Any) -> Any:
            rank = value.ndim
            if not -rank <= axis < rank:
                raise OpError(f"axis = {axis} not in [{-rank}, {rank})")
            if value.shape[axis] != num:
                message = f"Input shape axis {axis} must equal {num}, got shape {list(value.shape)}"
                raise OpError(message)
            if axis in (0, -rank) and not is_object:
                return as_outputs(tuple(value))
            before = (slice(None),) * (axis % rank)
            if is_object:
                return as_outputs(
                    [unwrap_scalar_object(value[(*before, index, ...)]) for index in range(num)]
                )
            return as_outputs([value[(*before, index)] for index in range(num)])

        return unpack

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data, count = context.inputs[0], context.output_count
        if data.dims is None:
            return [UNKNOWN_SHAPE] * count
        axis = static_axis(context.attr("axis"), len(data.dims))
        if data.dims[axis] not in (None, count):
            raise ShapeError(f"dimension {axis} of {data} is not {count}")
        return [Shape(data.dims[:axis] + data.dims[axis + 1 :])] * count

    gradient = staticmethod(
        lambda g, node, *grads: [g.Pack(fill_missing_gradients(g, grads), axis=node.attr("axis"))]
    )


def split_lengths(value: Any, lengths: Any) -> list[Any]:
    """Pieces of these lengths along axis 0. Raises OpError unless the lengths sum to its size."""
    if lengths.ndim != 1:
        raise OpError(f"Expected lengths to be a vector, received shape: {Shape(lengths.shape)}")
    if value.ndim == 0:
        raise OpError("Expected value to be at least a vector, but received shape: []")
    if lengths.sum() != len(value) or (lengths < 0).any():
        raise OpError(
            f"Expected sum of lengths to be equal to values.shape[0], but sum of lengths is "
            f"{lengths.sum()} and value's shape is: {Shape(value.shape)}"
        )
    ends = np.cumsum(lengths).tolist()
    return [value[start:end] for start, end in pairwise([0, *ends])]
