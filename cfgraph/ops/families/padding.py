"""Padding: constant, or mirrored from the tensor."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape, ShapeError
from cfgraph.limits import reserve_array
from cfgraph.ops.opdef.batching import BatchBuilder
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, sum_all
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank, shape_of_rank

PaddingWidths = list[list[int]]


def padding_widths(value: Any, paddings: Any) -> PaddingWidths:
    """Padding before and after each dimension. Raises OpError unless `paddings` fits `value`."""
    if paddings.ndim != 2 or paddings.shape[1] != 2:
        raise OpError(f"paddings must be a matrix with 2 columns: {list(paddings.shape)}")
    if paddings.shape[0] != value.ndim:
        raise OpError(
            "The first dimension of paddings must be the rank of inputs"
            f"{list(paddings.shape)} {list(value.shape)}"
        )
    pairs: PaddingWidths = paddings.tolist()
    for before, after in pairs:
        if before < 0 or after < 0:
            raise OpError(f"Paddings must be non-negative: {before} {after}")
    return pairs


def static_padded_shape(data: Shape, paddings: Shape, values: Any | None, sign: int = 1) -> Shape:
    """The static shape of a tensor with padding added, or removed if `sign` is -1."""
    paddings_shape = require_rank(paddings, 2).merge(Shape((None, 2)))
    rank = (
        data.rank
        if paddings_shape.dims is None or paddings_shape.dims[0] is None
        else paddings_shape.dims[0]
    )
    data = data.merge(shape_of_rank(rank))
    if data.dims is None or values is None or values.shape != (len(data.dims), 2):
        return shape_of_rank(rank)
    if values.size and values.min() < 0:
        raise ShapeError("paddings must not be negative")
    return Shape(
        None if dim is None else dim + sign * (before + after)
        for dim, (before, after) in zip(data.dims, values.tolist(), strict=True)
    )


class Pad(Op):
    """A tensor padded with zeros."""

    signature = "input: T, paddings: const Tpaddings -> output: T"
    attrs = "Tpaddings: {int32, int64} = int32"

    @staticmethod
    def batching(g: BatchBuilder, node: Node) -> Output:
        paddings, *fill = map(g.shared, range(1, len(node.inputs)))
        widths = g.ConcatV2(g.const([[0, 0]], paddings), paddings, g.const(0))
        return g.copy(node, g.value(0), widths, *fill)

    @staticmethod
    def zero(node: Node) -> Any:
        """The element that is zero or empty."""
        dtype = node.attr("T")
        return b"" if dtype.is_object else dtype.numpy.type(0)

    @staticmethod
    def kernel(xp: ModuleType, zero: Any, /, value: Any, paddings: Any, fill: Any = None) -> Any:
        if fill is None:
            fill = zero
        elif fill.ndim:
            raise OpError(f"constant_values must be a scalar. Found: {list(fill.shape)}")
        return _pad(xp, value, padding_widths(value, paddings), fill)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [static_padded_shape(context.inputs[0], context.inputs[1], context.value(1))]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        x, paddings = node.inputs[:2]
        dx = g.Slice(dz, _start_offsets(g, paddings), g.shape(x, paddings.dtype or dtypes.int32))
        of_border = (lambda: g.Sub(sum_all(g, dz), sum_all(g, dx)),)
        return [dx, None, *of_border[: len(node.inputs) - 2]]


def _start_offsets(g: GradientBuilder, paddings: Output) -> Output:
    """The first column of `paddings`: the offset of the tensor inside its padding."""
    known = g.known_value(paddings)
    if known is not None and paddings.dtype is not None:
        return g.const(known[:, 0], paddings.dtype)
    begin, end, strides = (g.const(bounds, dtypes.int32) for bounds in ([0, 0], [0, 1], [1, 1]))
    return g.StridedSlice(
        paddings, begin, end, strides, begin_mask=1, end_mask=1, shrink_axis_mask=2
    )


class PadV2(Pad):
    """A tensor padded with a constant."""

    signature = "input: T, paddings: const Tpaddings, constant_values: T -> output: T"


def _pad(xp: ModuleType, value: Any, pairs: PaddingWidths, fill: Any) -> Any:
    if not any(before or after for before, after in pairs):
        return value
    sizes = [
        size + before + after for size, (before, after) in zip(value.shape, pairs, strict=True)
    ]
    reserve_array(sizes, value.dtype.itemsize)
    if hasattr(value, "at"):
        return xp.pad(value, pairs, constant_values=fill)
    # np.pad is 20 times slower on small arrays
    # np.zeros takes cleared pages instead of writing them; a GPU would wait for the comparison
    is_zero = isinstance(fill, int | np.ndarray | np.generic) and fill == 0
    result = xp.zeros(sizes, value.dtype) if is_zero else xp.full(sizes, fill, value.dtype)
    interior = [
        slice(before, before + size) for size, (before, _) in zip(value.shape, pairs, strict=True)
    ]
    result[tuple(interior)] = value
    return result


class MirrorPad(Op):
    """A tensor padded with its mirror image; SYMMETRIC repeats the edge, REFLECT does not."""

    signature = "input: T, paddings: const Tpaddings -> output: T"
    attrs = "Tpaddings: {int32, int64} = int32, mode: {'REFLECT', 'SYMMETRIC'}"

    @staticmethod
    def kernel(xp: ModuleType, mode: bytes, /, value: Any, paddings: Any) -> Any:
        edge = int(mode == b"REFLECT")
        pairs = padding_widths(value, paddings)
        for axis, (size, (before, after)) in enumerate(zip(value.shape, pairs, strict=True)):
            if before > size - edge or after > size - edge:
                raise OpError(_too_wide(size - edge, before, after))
            if before or after:
                value = xp.take(value, _mirror_indices(size, before, after, edge), axis=axis)
        return value

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [static_padded_shape(context.inputs[0], context.inputs[1], context.value(1))]

    gradient = staticmethod(
        lambda g, node, dz: (g.MirrorPadGrad(dz, node.inputs[1], mode=node.attr("mode")), None)
    )


def _too_wide(limit: int, before: int, after: int) -> str:
    return f"paddings must be no greater than {limit}, got {before}, {after}"


def _mirror_indices(size: int, before: int, after: int, edge: int) -> Any:
    """Source indices along one dimension, including its mirror images."""
    indices = np.arange(size)
    last = size - edge
    return np.concatenate(
        [indices[edge : edge + before][::-1], indices, indices[last - after : last][::-1]]
    )


class MirrorPadGrad(Op):
    """Gradient of MirrorPad: the padding folded back and added to its source elements."""

    signature = "input: T, paddings: const Tpaddings -> output: T"
    attrs = "Tpaddings: {int32, int64} = int32, mode: {'REFLECT', 'SYMMETRIC'}"

    @staticmethod
    def kernel(xp: ModuleType, mode: bytes, /, value: Any, paddings: Any) -> Any:
        edge = int(mode == b"REFLECT")
        for axis, (before, after) in enumerate(padding_widths(value, paddings)):
            size = value.shape[axis] - before - after
            if size < 1 or before > size - edge or after > size - edge:
                raise OpError(_too_wide(size - edge, before, after))
            value = _fold_mirror(xp, value, axis, before, after, edge)
        return value

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [static_padded_shape(context.inputs[0], context.inputs[1], context.value(1), -1)]

    gradient = staticmethod(
        lambda g, node, dz: (g.MirrorPad(dz, node.inputs[1], mode=node.attr("mode")), None)
    )


def _fold_mirror(xp: ModuleType, value: Any, axis: int, before: int, after: int, edge: int) -> Any:
    def segment(start: int, stop: int, step: int = 1) -> Any:
        return value[(*(slice(None),) * axis, slice(start, stop))][
            (*(slice(None),) * axis, slice(None, None, step))
        ]

    def zeros(count: int) -> Any:
        shape = list(value.shape)
        shape[axis] = count
        return xp.zeros(shape, value.dtype)

    whole = value.shape[axis]
    size = whole - before - after
    result = segment(before, whole - after)
    if before:
        left = [zeros(edge), segment(0, before, -1), zeros(size - before - edge)]
        result = result + xp.concatenate(left, axis)
    if after:
        right = [zeros(size - after - edge), segment(whole - after, whole, -1), zeros(edge)]
        result = result + xp.concatenate(right, axis)
    return result
