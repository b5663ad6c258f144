"""Concatenation and stacking along a dimension: Concat, ConcatV2, ConcatOffset, Pack."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial, reduce
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.families.split import as_outputs
from cfgraph.ops.kernels.array_namespace import checked_axis
from cfgraph.ops.opdef.batching import BatchBuilder, next_axis
from cfgraph.ops.opdef.facts import Aliasing, CompilerSupport
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradient, InputGradients
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import (
    InferenceContext,
    require_rank,
    require_rank_at_least,
    shape_of_rank,
    static_axis,
    static_int,
    with_dim,
)


class ConcatV2(Op):
    """Concatenation of N tensors along an existing axis (last input)."""

    signature = "values: N*T, axis: const Tidx -> output: T"
    attrs = "N: int >= 2, Tidx: {int32, int64} = int32"
    aliasing = Aliasing(preserves_elements=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        concatenate, index = xp.concatenate, operator.index

        def concat(*values: Any) -> Any:
            parts = values[:-1]
            try:
                return concatenate(parts, index(values[-1]))
            except (ValueError, TypeError, IndexError):
                raise OpError(_concat_error(parts, values[-1])) from None

        return concat

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [concat_shape(context.inputs[:-1], static_int(context, len(context.inputs) - 1))]

    gradient = staticmethod(
        lambda g, node, dz: [*_split_gradient(g, node.inputs[:-1], node.inputs[-1], dz), None]
    )

    @staticmethod
    def batching(g: BatchBuilder, node: Node) -> Output:
        last = len(node.inputs) - 1
        return g.copy(node, *map(g.repeated, range(last)), g.next_axes(last))


class Concat(Op):
    """Concatenation of N tensors along an existing axis (first input)."""

    signature = "concat_dim: const int32, values: N*T -> output: T"
    attrs = "N: int >= 2"
    aliasing = Aliasing(preserves_elements=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        concat = ConcatV2.bind(node, xp)

        def axis_first(axis: Any, *values: Any) -> Any:
            return concat(*values, axis)

        return axis_first

    shape = staticmethod(lambda context: [concat_shape(context.inputs[1:], static_int(context, 0))])
    gradient = staticmethod(
        lambda g, node, dz: [None, *_split_gradient(g, node.inputs[1:], node.inputs[0], dz)]
    )


def _split_gradient(
    g: GradientBuilder, parts: Sequence[Output], axis: Output, dz: Output
) -> Sequence[InputGradient]:
    """Gradient of each concatenated part: the matching slice of `dz`."""
    position, sizes = _static_part_sizes(g, parts, axis)
    if axis.dtype != dtypes.int32:
        axis = g.Cast(axis, DstT=dtypes.int32)

    def split(number: int) -> Output:
        lengths = g.const(sizes, dtypes.int32)
        return g.SplitV(dz, lengths, axis, num_split=len(parts)).node.output(number)

    def measured(number: int) -> Output:
        shapes = [g.shape(part) for part in parts]
        starts = g.ConcatOffset(axis, shapes).node
        return g.Slice(dz, starts.output(number), shapes[number])

    def sliced(number: int) -> Output:
        ends = _part_bounds(sizes, number)
        return measured(number) if ends is None else _slice_between(g, dz, position, *ends)

    return [partial(sliced if None in sizes else split, number) for number in range(len(parts))]


def _static_part_sizes(
    g: GradientBuilder, parts: Sequence[Output], axis: Output
) -> tuple[int, list[int | None]]:
    """Concatenation axis (non-negative) and part sizes along it, None for unknown sizes."""
    axis_value, shapes = g.known_value(axis), [g.known_shape(part).dims for part in parts]
    rank = next((len(dims) for dims in shapes if dims is not None), None)
    if axis_value is None or rank is None:
        return 0, [None] * len(parts)
    position = int(axis_value) % rank
    return position, [None if dims is None else dims[position] for dims in shapes]


def _part_bounds(sizes: Sequence[int | None], number: int) -> tuple[int, int] | None:
    """Bounds of a part, or None if unknown; negative bounds count from the end."""
    size, before, after = sizes[number], 0, 0
    for neighbor in sizes[:number]:
        if neighbor is None:
            break
        before += neighbor
    else:
        return None if size is None else (before, before + size)
    for neighbor in sizes[number + 1 :]:
        if neighbor is None:
            return None
        after += neighbor
    # counted from the end, an empty part is indistinguishable from the entire tensor
    return (-after - size, -after) if size else None


def _slice_between(g: GradientBuilder, x: Output, axis: int, begin: int, end: int) -> Output:
    """Slice of a tensor along an axis; an `end` of 0 means the end of the tensor."""
    leading_mask = (1 << axis) - 1
    first, last, step = (
        g.const([*[fill] * axis, bound], dtypes.int32)
        for fill, bound in ((0, begin), (0, end), (1, 1))
    )
    end_mask = leading_mask if end else leading_mask | 1 << axis
    return g.StridedSlice(x, first, last, step, begin_mask=leading_mask, end_mask=end_mask)


def _concat_error(parts: Sequence[Any], axis: Any) -> str:
    if axis.ndim:
        return f"Concat axis tensor should be a scalar, but got shape {list(axis.shape)}"
    rank = parts[0].ndim
    if not -rank <= axis < rank:
        return (
            "ConcatOp : Expected concatenating dimensions in the range "
            f"[{-rank}, {rank}), but got {axis}"
        )
    shapes = " vs. ".join(str(list(part.shape)) for part in parts[:8])
    return f"ConcatOp : Dimensions of inputs should match: {shapes}"


def concat_shape(parts: Sequence[Shape], axis: int | None) -> Shape:
    """The static shape of a concatenation."""
    known = [part for part in parts if part.dims is not None]
    if not known:
        return UNKNOWN_SHAPE
    rank = require_rank_at_least(known[0], 1).rank or 0
    if axis is None:
        for part in known:
            require_rank(part, rank)
        return shape_of_rank(rank)
    position = static_axis(axis, rank)
    common = reduce(Shape.merge, (with_dim(part, position, None) for part in known))
    size = 0
    for part in parts:
        part_size = None if part.dims is None else part.dims[position]
        if part_size is None:
            return common
        size += part_size
    return with_dim(common, position, size)


def _concat_offsets(concat_dim: Any, *shapes: Any) -> Any:
    first = shapes[0]
    axis = checked_axis(concat_dim, len(first), "Concat dim")
    expected, offsets, reached = first.tolist(), [], 0
    for number, shape in enumerate(shapes):
        sizes = shape.tolist()
        expected[axis] = sizes[axis] if len(sizes) > axis else None
        if sizes != expected:
            raise OpError(
                f"All dimensions except {axis} must match. Input {number} has shape {sizes} "
                f"and doesn't match input 0 with shape {first.tolist()}."
            )
        offset = np.zeros(len(sizes), shape.dtype)
        offset[axis] = reached
        offsets.append(offset)
        reached += sizes[axis]
    return as_outputs(offsets)


class ParallelConcat(Op):
    """Tensors of one row each, in a tensor whose shape is an attribute."""

    signature = "values: N*T -> output: T"
    attrs = "N: int >= 1, shape: shape"
    aliasing = Aliasing(preserves_elements=True)
    compilation = CompilerSupport(compiled=False)

    @staticmethod
    def kernel(xp: ModuleType, shape: Shape, /, *values: Any) -> Any:
        dims = tuple(shape.dims or ())
        if dims[:1] != (len(values),) or any(x.shape != (1, *dims[1:]) for x in values):
            raise OpError(f"{len(values)} rows do not fit the shape {shape}")
        return (np if values[0].dtype == object else xp).concatenate(values)

    shape = staticmethod(lambda context: [context.attr("shape")])


class ConcatOffset(Op):
    """Start offset of each tensor in a concatenation, computed from the tensors' shapes."""

    signature = "concat_dim: const int32, shape: const N*shape_type -> offset: N*shape_type"
    attrs = "N: int >= 2, shape_type: {int32, int64} = int32"
    function = staticmethod(_concat_offsets)
    shape = staticmethod(lambda context: list(context.inputs[1 : 1 + context.output_count]))


class Pack(Op):
    """Tensors of equal shape, stacked along a new axis."""

    signature = "values: N*T -> output: T"
    attrs = "axis: int = 0"
    aliasing = Aliasing(preserves_elements=True)

    @staticmethod
    def batching(g: BatchBuilder, node: Node) -> Output:
        parts = map(g.repeated, range(len(node.inputs)))
        return g.copy(node, *parts, axis=next_axis(node.attr("axis")))

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        axis, dtype = node.attr("axis"), node.attr("T")
        if dtype.is_object:
            return lambda *values: _stack(np, [object_array(value) for value in values], axis)
        if xp is not np or axis != 0:
            return lambda *values: _stack(xp, values, axis)
        array, kind = np.array, dtype.numpy

        def pack(*values: Any) -> Any:
            # loops often pack scalars, for which np.stack takes five times as long
            for value in values:
                if value.shape:
                    return _stack(np, values, 0)
            return array(values, kind)

        return pack

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        shape = reduce(Shape.merge, context.inputs, UNKNOWN_SHAPE)
        if shape.dims is None:
            return [UNKNOWN_SHAPE]
        axis = static_axis(context.attr("axis"), len(shape.dims) + 1)
        return [Shape((*shape.dims[:axis], len(context.inputs), *shape.dims[axis:]))]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        count, axis = len(node.inputs), node.attr("axis")

        def unpacked(number: int) -> Output:
            return g.Unpack(dz, num=count, axis=axis).node.output(number)

        return [partial(unpacked, number) for number in range(count)]


def _stack(xp: ModuleType, values: Sequence[Any], axis: int) -> Any:
    rank, first = values[0].ndim, values[0].shape
    if not -rank - 1 <= axis <= rank:
        raise OpError(f"axis = {axis} not in [{-rank - 1}, {rank + 1})")
    for number, value in enumerate(values):
        if value.shape != first:
            raise OpError(
                "Shapes of all inputs must match: "
                f"values[0].shape = {list(first)} != values[{number}].shape = {list(value.shape)}"
            )
    if xp is not np:
        return xp.stack(values, axis)
    # np.stack takes three times as long for small arrays
    axis %= rank + 1
    sizes = (*first[:axis], 1, *first[axis:])
    return np.concatenate([value.reshape(sizes) for value in values], axis)


def object_array(value: Any) -> Any:
    """Wrap a resource or variant in an object array, so that it can be concatenated."""
    if isinstance(value, np.ndarray):
        return value
    array = np.empty((), object)
    array[()] = value
    return array
