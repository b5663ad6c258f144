"""Rearrangement of spatial blocks into the batch or depth dimension, and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, ShapeError
from cfgraph.limits import reserve_array
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import (
    InferenceContext,
    require_rank,
    require_rank_at_least,
    shape_of_rank,
    static_ints,
)

SizePairs = list[list[int]]


def space_to_batch(xp: ModuleType, value: Any, block: list[int], pairs: SizePairs) -> Any:
    """Move each position within a spatial block to the batch dimension. Raises OpError."""
    _check_block(value, block, pairs)
    count = len(block)
    trailing = value.shape[count + 1 :]
    borders = [[0, 0], *pairs, *([[0, 0]] * len(trailing))]
    if any(before or after for before, after in borders):
        sizes = (
            n + before + after for n, (before, after) in zip(value.shape, borders, strict=True)
        )
        reserve_array(sizes, value.dtype.itemsize)
        value = xp.pad(value, borders)
    batch, space = value.shape[0], value.shape[1 : count + 1]
    for size, step in zip(space, block, strict=True):
        if size % step:
            raise OpError(f"padded_shape={size} is not divisible by block_shape={step}")
    cut = [
        factor for size, step in zip(space, block, strict=True) for factor in (size // step, step)
    ]
    value = value.reshape([batch, *cut, *trailing])
    order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count + 1, 2)]
    value = value.transpose([*order, *range(2 * count + 1, value.ndim)])
    small = [size // step for size, step in zip(space, block, strict=True)]
    return value.reshape([batch * math.prod(block), *small, *trailing])


def batch_to_space(value: Any, block: list[int], crops: SizePairs) -> Any:
    """Inverse of `space_to_batch`. Raises OpError."""
    _check_block(value, block, crops)
    count, block_size = len(block), math.prod(block)
    batch, space, trailing = value.shape[0], value.shape[1 : count + 1], value.shape[count + 1 :]
    if batch % block_size:
        message = f"Input batch dimension ({batch}) is not divisible by product of block sizes"
        raise OpError(message + f" ({block_size})")
    value = value.reshape([*block, batch // block_size, *space, *trailing])
    order = [count]
    for axis in range(count):
        order += [count + 1 + axis, axis]
    value = value.transpose([*order, *range(2 * count + 1, value.ndim)])
    large = [size * step for size, step in zip(space, block, strict=True)]
    value = value.reshape([batch // block_size, *large, *trailing])
    inside = []
    for size, (before, after) in zip(large, crops, strict=True):
        if before + after > size:
            raise OpError(f"cropped_shape={size - before - after} must be non-negative")
        inside.append(slice(before, size - after))
    return value[(slice(None), *inside)]


def _check_block(value: Any, block: list[int], pairs: SizePairs) -> None:
    if value.ndim < len(block) + 1:
        raise OpError(f"input rank should be >= {len(block) + 1} instead of {value.ndim}")
    if any(step < 1 for step in block):
        raise OpError(f"All values in block_shape must be positive, got {block}")
    if any(width < 0 for pair in pairs for width in pair):
        raise OpError("Paddings and crops must be non-negative")


def _size_pairs(array: Any, count: int) -> SizePairs:
    if array.shape != (count, 2):
        raise OpError(
            f"paddings and crops should have shape [{count}, 2] instead of {list(array.shape)}"
        )
    pairs: SizePairs = array.tolist()
    return pairs


def _block_sizes(array: Any) -> list[int]:
    if array.ndim != 1:
        raise OpError(f"block_shape rank should be 1 instead of {array.ndim}")
    block: list[int] = array.tolist()
    return block


class SpaceBatchOp(Op, abstract=True):
    """Shape inference shared by the ops between space and batch."""

    to_batch: ClassVar[bool]

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        block, pairs = cls.static_block(context)
        data = require_rank_at_least(context.inputs[0], 1 if block is None else len(block) + 1)
        if data.dims is None or block is None:
            return [shape_of_rank(data.rank)]
        trailing = data.dims[len(block) + 1 :]
        if pairs is None:
            pairs = [None] * len(block)
        block_size, batch = math.prod(block), data.dims[0]
        if cls.to_batch:
            first = None if batch is None else batch * block_size
            space = [
                None if dim is None or pair is None else exact_quotient(dim + sum(pair), step)
                for dim, step, pair in zip(data.dims[1:], block, pairs, strict=False)
            ]
        else:
            first = None if batch is None else exact_quotient(batch, block_size)
            space = [
                None if dim is None or pair is None else _cropped_size(dim * step, pair)
                for dim, step, pair in zip(data.dims[1:], block, pairs, strict=False)
            ]
        return [Shape((first, *space, *trailing))]

    @classmethod
    def static_block(
        cls, context: InferenceContext
    ) -> tuple[list[int] | None, list[list[int] | None] | None]:
        """The block sizes and the paddings or crops, as far as they are known."""
        require_rank(context.inputs[1], 1)
        require_rank(context.inputs[2], 2)
        block, pairs = static_ints(context, 1), context.value(2)
        if block is not None and any(step < 1 for step in block):
            raise ShapeError(f"block {block} must be positive")
        fits = pairs is not None and block is not None and pairs.shape == (len(block), 2)
        return block, pairs.tolist() if fits and pairs is not None else None


def exact_quotient(size: int, step: int) -> int:
    """The quotient. Raises ShapeError for a nonzero remainder."""
    if size % step:
        raise ShapeError(f"{size} is not divisible by {step}")
    return size // step


def _cropped_size(size: int, pair: list[int]) -> int:
    if sum(pair) > size:
        raise ShapeError(f"crops {pair} are larger than {size}")
    return size - sum(pair)


class SpaceToBatchND(SpaceBatchOp):
    """Zero-pad, then move each position within a spatial block to the batch dimension."""

    signature = "input: T, block_shape: const Tblock_shape, paddings: const Tpaddings -> output: T"
    attrs = "Tblock_shape: {int32, int64} = int32, Tpaddings: {int32, int64} = int32"
    to_batch = True

    @staticmethod
    def kernel(xp: ModuleType, value: Any, block_shape: Any, paddings: Any) -> Any:
        block = _block_sizes(block_shape)
        return space_to_batch(xp, value, block, _size_pairs(paddings, len(block)))

    gradient = staticmethod(
        lambda g, node, dz: (g.BatchToSpaceND(dz, *node.inputs[1:]), None, None)
    )


class BatchToSpaceND(SpaceBatchOp):
    """Move batch entries back to positions within spatial blocks, then crop."""

    signature = "input: T, block_shape: const Tblock_shape, crops: const Tcrops -> output: T"
    attrs = "Tblock_shape: {int32, int64} = int32, Tcrops: {int32, int64} = int32"
    to_batch = False

    @staticmethod
    def kernel(xp: ModuleType, value: Any, block_shape: Any, crops: Any) -> Any:
        block = _block_sizes(block_shape)
        return batch_to_space(value, block, _size_pairs(crops, len(block)))

    gradient = staticmethod(
        lambda g, node, dz: (g.SpaceToBatchND(dz, *node.inputs[1:]), None, None)
    )


class SquareBlockOp(SpaceBatchOp, abstract=True):
    """Variant for images with a square block of side `block_size`."""

    @classmethod
    def static_block(
        cls, context: InferenceContext
    ) -> tuple[list[int] | None, list[list[int] | None] | None]:
        require_rank(context.inputs[0], 4)
        require_rank(context.inputs[1], 2)
        pairs = context.value(1)
        known = pairs is not None and pairs.shape == (2, 2)
        size = context.attr("block_size")
        return [size, size], pairs.tolist() if known and pairs is not None else None


class SpaceToBatch(SquareBlockOp):
    """SpaceToBatchND of images with a square block."""

    signature = "input: T, paddings: const Tpaddings -> output: T"
    attrs = "Tpaddings: {int32, int64} = int32, block_size: int >= 2"
    to_batch = True

    @staticmethod
    def kernel(xp: ModuleType, block_size: int, /, value: Any, paddings: Any) -> Any:
        return space_to_batch(
            xp, check_image_rank(value), [block_size, block_size], _size_pairs(paddings, 2)
        )

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        return g.BatchToSpace(dz, node.inputs[1], block_size=node.attr("block_size")), None


class BatchToSpace(SquareBlockOp):
    """BatchToSpaceND of images with a square block."""

    signature = "input: T, crops: const Tidx -> output: T"
    attrs = "block_size: int >= 2, Tidx: {int32, int64} = int32"
    to_batch = False

    @staticmethod
    def kernel(xp: ModuleType, block_size: int, /, value: Any, crops: Any) -> Any:
        return batch_to_space(
            check_image_rank(value), [block_size, block_size], _size_pairs(crops, 2)
        )

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        return g.SpaceToBatch(dz, node.inputs[1], block_size=node.attr("block_size")), None


def check_image_rank(value: Any) -> Any:
    """The value unchanged. Raises OpError unless it has four dimensions."""
    if value.ndim != 4:
        raise OpError(f"input rank should be 4 instead of {value.ndim}")
    return value


BlockSizes = Sequence[int | None]


class SpaceDepthOp(Op, abstract=True):
    """Layout handling and shape inference shared by the ops between space and depth."""

    signature = "input: T -> output: T"
    attrs = "block_size: int >= 2, data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'"
    # `rearranged` maps an NHWC image; `static_sizes` infers its height, width, and depth
    rearranged: ClassVar[Callable[..., Any]]
    static_sizes: ClassVar[Callable[..., list[int | None]]]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        size, layout = node.attr("block_size"), node.attr("data_format")
        if layout == b"NHWC":
            return lambda value: cls.rearranged(check_image_rank(value), size)
        if layout == b"NCHW":
            return lambda value: cls.rearranged(
                check_image_rank(value).transpose((0, 2, 3, 1)), size
            ).transpose((0, 3, 1, 2))

        def rearrange_vectors(value: Any) -> Any:
            count, depth, height, width, lanes = value.shape
            flat = value.transpose((0, 2, 3, 1, 4)).reshape((count, height, width, depth * lanes))
            flat = cls.rearranged(flat, size)
            flat = flat.reshape((*flat.shape[:3], flat.shape[3] // lanes, lanes))
            return flat.transpose((0, 3, 1, 2, 4))

        return rearrange_vectors

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        size, layout = context.attr("block_size"), context.attr("data_format")
        data = require_rank(context.inputs[0], 5 if layout == b"NCHW_VECT_C" else 4)
        if data.dims is None:
            return [UNKNOWN_SHAPE]
        if layout == b"NHWC":
            return [Shape((data.dims[0], *cls.static_sizes(data.dims[1:], size)))]
        if layout == b"NCHW":
            _, depth, height, width = data.dims
            height, width, depth = cls.static_sizes((height, width, depth), size)
            return [Shape((data.dims[0], depth, height, width))]
        return [shape_of_rank(5)]

    inverse: ClassVar[str]

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        attrs = {key: node.attr(key) for key in ("block_size", "data_format")}
        return [getattr(g, cls.inverse)(dz, **attrs)]


class SpaceToDepth(SpaceDepthOp):
    """Move each spatial block of an image to the depth dimension."""

    inverse = "DepthToSpace"

    @staticmethod
    def rearranged(value: Any, size: int) -> Any:
        count, height, width, depth = value.shape
        if height % size or width % size:
            raise OpError(
                f"Image width {width} and height {height} should be divisible by block_size: {size}"
            )
        cut = value.reshape((count, height // size, size, width // size, size, depth))
        return cut.transpose((0, 1, 3, 2, 4, 5)).reshape(
            (count, height // size, width // size, size * size * depth)
        )

    @staticmethod
    def static_sizes(dims: BlockSizes, size: int) -> list[int | None]:
        height, width, depth = dims
        return [
            None if height is None else exact_quotient(height, size),
            None if width is None else exact_quotient(width, size),
            None if depth is None else depth * size * size,
        ]


class DepthToSpace(SpaceDepthOp):
    """Move the depth of each pixel to a spatial block of pixels."""

    inverse = "SpaceToDepth"

    @staticmethod
    def rearranged(value: Any, size: int) -> Any:
        count, height, width, depth = value.shape
        if depth % (size * size):
            raise OpError(f"Input depth dimension {depth} should be divisible by: {size * size}")
        channels = depth // (size * size)
        cut = value.reshape((count, height, width, size, size, channels))
        return cut.transpose((0, 1, 3, 2, 4, 5)).reshape(
            (count, height * size, width * size, channels)
        )

    @staticmethod
    def static_sizes(dims: BlockSizes, size: int) -> list[int | None]:
        height, width, depth = dims
        return [
            None if height is None else height * size,
            None if width is None else width * size,
            None if depth is None else exact_quotient(depth, size * size),
        ]
