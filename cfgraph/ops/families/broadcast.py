"""Broadcasting, tiling, and the reduction axes of a broadcast's gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, ShapeError, vector_shape
from cfgraph.limits import reserve_array
from cfgraph.ops.opdef.batching import BatchBuilder
from cfgraph.ops.opdef.facts import Aliasing, CompilerSupport
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    int32_constant,
    sum_to_shape,
)
from cfgraph.ops.opdef.op import Kernel, Op, OpError, knows_values
from cfgraph.ops.opdef.shape_functions import (
    InferenceContext,
    require_rank,
    shape_of_rank,
    static_ints,
)

# elements up to which a copy takes a fifth of the time of a view
_FEW: Final = 1024


class BroadcastTo(Op):
    """The tensor broadcast to `shape`."""

    signature = "input: T, shape: const Tidx -> output: T"
    attrs = "Tidx: {int32, int64} = int32"
    aliasing = Aliasing(preserves_elements=True)

    @staticmethod
    def batching(g: BatchBuilder, node: Node) -> Output:
        return g.copy(node, g.aligned(0, g.rank(node.output())), g.prefixed(1))

    @classmethod
    def equal_input(cls, context: InferenceContext) -> int | None:
        return 0 if knows_values(context, 1) and cls.keeps_static_shape(context) else None

    @staticmethod
    def kernel(xp: ModuleType, value: Any, shape: Any) -> Any:
        sizes = tuple(shape.tolist())
        if value.shape == sizes:
            return value
        reserve_array(sizes, value.dtype.itemsize)
        try:
            if xp is np and value.ndim <= len(sizes) and math.prod(sizes) <= _FEW:
                result = np.empty(sizes, value.dtype)
                result[...] = value
                return result
            return xp.broadcast_to(value, sizes)
        except ValueError:
            raise OpError(f"Incompatible shapes: {list(value.shape)} vs. {list(sizes)}") from None

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        require_rank(context.inputs[1], 1)
        data, target = context.inputs[0], context.shape_value(1)
        if data.rank is not None and target.rank is not None and data.rank > target.rank:
            raise ShapeError(f"the rank of {data} is greater than that of {target}")
        if data.is_full and target.is_full and data.broadcast(target) != target:
            raise ShapeError(f"{data} does not broadcast to {target}")
        return [target]

    gradient = staticmethod(lambda g, node, dz: (sum_to_shape(g, dz, node.inputs[0], dz), None))


class BroadcastArgs(Op):
    """Shape to which two shapes broadcast."""

    signature = "s0: const T, s1: const T -> r0: T"
    attrs = "T: {int32, int64} = int32"

    @staticmethod
    def kernel(xp: ModuleType, T: DType, /, s0: Any, s1: Any) -> Any:
        first, second = _static_sizes(s0, 0), _static_sizes(s1, 1)
        if not first or first == second:
            return s1
        if not second:
            return s0
        rank = max(len(first), len(second))
        padded = ([1] * (rank - len(sizes)) + sizes for sizes in (first, second))
        pairs = list(zip(*padded, strict=True))
        if any(1 not in pair and pair[0] != pair[1] for pair in pairs):
            raise OpError(_broadcast_mismatch(first, second))
        return np.array([b if a == 1 else a for a, b in pairs], T.numpy)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        ranks = [require_rank(shape, 1).dims for shape in context.inputs]
        sizes = [dims[0] if dims else None for dims in ranks]
        if sizes[0] is None or sizes[1] is None:
            return [vector_shape()]
        return [vector_shape(max(sizes[0], sizes[1]))]


class BroadcastGradientArgs(Op):
    """Axes to sum the gradient of a broadcast over, for each of the two operand shapes.

    An axis of size 1 in both shapes is listed for both. Equal shapes have no such axes.
    """

    signature = "s0: const T, s1: const T -> r0: T, r1: T"
    attrs = "T: {int32, int64} = int32"

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        dtype = node.attr("T").numpy
        no_axes = np.array((), dtype)
        last: tuple[Any, Any] = (None, ())

        def gradient_args(s0: Any, s1: Any) -> Any:
            # most loops have the same shapes in every iteration
            nonlocal last
            key, known = (_static_sizes(s0, 0), _static_sizes(s1, 1)), last
            if key[0] == key[1]:
                return no_axes, no_axes
            if key != known[0]:
                axes = tuple(np.array(axes, dtype) for axes in repeated_axes(*key))
                last = known = key, axes
            return known[1]

        return gradient_args

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        for shape in context.inputs:
            require_rank(shape, 1)
        first, second = static_ints(context, 0), static_ints(context, 1)
        if first is None or second is None:
            return [vector_shape(), vector_shape()]
        try:
            x_axes, y_axes = ([], []) if first == second else repeated_axes(first, second)
        except OpError as error:
            raise ShapeError(str(error)) from None
        return [vector_shape(len(x_axes)), vector_shape(len(y_axes))]


def repeated_axes(x: Sequence[int], y: Sequence[int]) -> tuple[list[int], list[int]]:
    """Axes along which each of two shapes is broadcast. Raises OpError if they are incompatible."""
    rank = max(len(x), len(y))
    x_padded = [1] * (rank - len(x)) + list(x)
    y_padded = [1] * (rank - len(y)) + list(y)
    x_axes, y_axes = [], []
    for axis, (a, b) in enumerate(zip(x_padded, y_padded, strict=True)):
        if a == b != 1:
            continue
        if a != 1 and b != 1:
            raise OpError(_broadcast_mismatch(x, y))
        if a == 1:
            x_axes.append(axis)
        if b == 1:
            y_axes.append(axis)
    return x_axes, y_axes


def _static_sizes(shape: Any, slot: int) -> list[int]:
    if shape.ndim != 1:
        raise OpError(f"In[{slot}] must be a vector, it has the shape {list(shape.shape)}")
    sizes: list[int] = shape.tolist()
    return sizes


def _broadcast_mismatch(first: Sequence[int], second: Sequence[int]) -> str:
    return f"Incompatible shapes: {list(first)} vs. {list(second)}"


class Tile(Op):
    """The tensor repeated `multiples[d]` times along each dimension d."""

    signature = "input: T, multiples: const Tmultiples -> output: T"
    attrs = "Tmultiples: {int32, int64} = int32"
    batching = staticmethod(lambda g, node: g.copy(node, g.value(0), g.prefixed(1, 1)))

    @classmethod
    def equal_input(cls, context: InferenceContext) -> int | None:
        return 0 if knows_values(context, 1) and cls.keeps_static_shape(context) else None

    @staticmethod
    def kernel(xp: ModuleType, value: Any, multiples: Any) -> Any:
        counts = _multiples(value, multiples)
        reserve_array((value.size, *counts), value.dtype.itemsize)
        if counts.count(1) == len(counts):
            return value
        return _repeat_tiles(value, counts) if xp is np else xp.tile(value, counts)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        data, counts = context.inputs[0], context.value(1)
        shape = require_rank(context.inputs[1], 1)
        size = shape.dims[0] if shape.dims else None
        if data.dims is None:
            return [shape_of_rank(size)]
        if size is not None and size != len(data.dims):
            message = f"tensor of shape {data} has {size} multiples, expected one per dimension"
            raise ShapeError(message)
        if counts is None:
            return [shape_of_rank(len(data.dims))]
        if counts.size and counts.min() < 0:
            raise ShapeError("multiples must not be negative")
        return [
            Shape(
                0 if count == 0 else None if dim is None else dim * count
                for dim, count in zip(data.dims, counts.tolist(), strict=True)
            )
        ]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        x, multiples = node.inputs
        counts, dims = g.known_value(multiples), g.known_shape(x).dims
        if counts is None or dims is None or None in dims:
            sizes = g.shape(x, multiples.dtype or dtypes.int32)
            both = g.Reshape(g.Pack(multiples, sizes, axis=1), int32_constant(g, [-1]))
            axes = g.Range(int32_constant(g, 0), g.Size(both), int32_constant(g, 2))
            return g.Sum(g.Reshape(dz, both), axes), None
        split = [size for pair in zip(counts.tolist(), dims, strict=True) for size in pair]
        axes = int32_constant(g, range(0, len(split), 2))
        return g.Sum(g.Reshape(dz, int32_constant(g, split)), axes), None


def _repeat_tiles(value: Any, counts: tuple[int, ...]) -> Any:
    """As np.tile, which takes four times as long for small arrays."""
    sizes = value.shape
    if all(size == 1 or count == 1 for count, size in zip(counts, sizes, strict=True)):
        repeated = [count * size for count, size in zip(counts, sizes, strict=True)]
        result = np.empty(repeated, value.dtype)
        result[...] = value  # broadcasts
        return result
    result = np.empty([n for pair in zip(counts, sizes, strict=True) for n in pair], value.dtype)
    result[...] = value.reshape([n for size in sizes for n in (1, size)])
    return result.reshape([count * size for count, size in zip(counts, sizes, strict=True)])


def _multiples(value: Any, multiples: Any) -> tuple[int, ...]:
    if multiples.shape != (value.ndim,):
        raise OpError(
            f"Expected multiples argument to be a vector of length {value.ndim} "
            f"but got length {multiples.size}"
        )
    counts = tuple(multiples.tolist())
    for axis, count in enumerate(counts):
        if count < 0:
            raise OpError(f"Expected multiples[{axis}] >= 0, but got {count}")
    return counts


class TileGrad(Op):
    """Sum over the tiles of a Tile: its gradient in older graphs."""

    signature = "input: T, multiples: const int32 -> output: T"
    compilation = CompilerSupport(compiled=False)

    @staticmethod
    def kernel(xp: ModuleType, T: DType, /, value: Any, multiples: Any) -> Any:
        counts = _multiples(value, multiples)
        split = [
            factor
            for size, count in zip(value.shape, counts, strict=True)
            for factor in (count, size // count)
        ]
        tiles = value.reshape(split)
        return tiles.sum(axis=tuple(range(0, 2 * len(counts), 2)), dtype=T.numpy)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [
            UNKNOWN_SHAPE
            if context.inputs[0].rank is None
            else shape_of_rank(context.inputs[0].rank)
        ]

    gradient = staticmethod(lambda g, node, dz: (g.Tile(dz, node.inputs[1]), None))
