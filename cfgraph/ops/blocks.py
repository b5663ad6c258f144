"""Blocks of space moved to the batch or to the depth, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.adjoint import Adjoint, Partials
from cfgraph.ops.dims import any_of_rank, static_ints, want_rank, want_rank_at_least
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError

Pairs = list[list[int]]


def space_to_batch(xp: ModuleType, value: Any, block: list[int], pairs: Pairs) -> Any:
    """Each place in a block of space becomes a part of the batch. Raises OpError."""
    _check_block(value, block, pairs)
    count = len(block)
    rest = value.shape[count + 1 :]
    borders = [[0, 0], *pairs, *([[0, 0]] * len(rest))]
    if any(before or after for before, after in borders):
        value = xp.pad(value, borders)
    batch, space = value.shape[0], value.shape[1 : count + 1]
    for size, step in zip(space, block, strict=True):
        if size % step:
            message = f"padded_shape={size} is not divisible by block_shape={step}"
            raise OpError(message)
    cut = [part for size, step in zip(space, block, strict=True) for part in (size // step, step)]
    value = value.reshape([batch, *cut, *rest])
    order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count + 1, 2)]
    value = value.transpose([*order, *range(2 * count + 1, value.ndim)])
    small = [size // step for size, step in zip(space, block, strict=True)]
    return value.reshape([batch * math.prod(block), *small, *rest])


def batch_to_space(value: Any, block: list[int], crops: Pairs) -> Any:
    """The reverse of `space_to_batch`. Raises OpError."""
    _check_block(value, block, crops)
    count, whole = len(block), math.prod(block)
    batch, space, rest = value.shape[0], value.shape[1 : count + 1], value.shape[count + 1 :]
    if batch % whole:
        message = f"Input batch dimension ({batch}) is not divisible by product of block sizes"
        raise OpError(message + f" ({whole})")
    value = value.reshape([*block, batch // whole, *space, *rest])
    order = [count]
    for place in range(count):
        order += [count + 1 + place, place]
    value = value.transpose([*order, *range(2 * count + 1, value.ndim)])
    large = [size * step for size, step in zip(space, block, strict=True)]
    value = value.reshape([batch // whole, *large, *rest])
    inside = []
    for size, (before, after) in zip(large, crops, strict=True):
        if before + after > size:
            message = f"cropped_shape={size - before - after} must be non-negative"
            raise OpError(message)
        inside.append(slice(before, size - after))
    return value[(slice(None), *inside)]


def _check_block(value: Any, block: list[int], pairs: Pairs) -> None:
    if value.ndim < len(block) + 1:
        message = f"input rank should be >= {len(block) + 1} instead of {value.ndim}"
        raise OpError(message)
    if any(step < 1 for step in block):
        message = f"All values in block_shape must be positive, got {block}"
        raise OpError(message)
    if any(width < 0 for pair in pairs for width in pair):
        message = "Paddings and crops must be non-negative"
        raise OpError(message)


def _pairs(array: Any, count: int) -> Pairs:
    if array.shape != (count, 2):
        message = (
            f"paddings and crops should have shape [{count}, 2] instead of {list(array.shape)}"
        )
        raise OpError(message)
    pairs: Pairs = array.tolist()
    return pairs


def _block(array: Any) -> list[int]:
    if array.ndim != 1:
        message = f"block_shape rank should be 1 instead of {array.ndim}"
        raise OpError(message)
    block: list[int] = array.tolist()
    return block


class Blocks(Op, abstract=True):
    """What the four ops between space and batch share: their static shape."""

    to_batch: ClassVar[bool]
    host_inputs: ClassVar[tuple[int, ...]] = (1, 2)
    constant_inputs: ClassVar[tuple[int, ...]] = (1, 2)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        block, pairs = cls.static_block(context)
        data = want_rank_at_least(context.inputs[0], 1 if block is None else len(block) + 1)
        if data.dims is None or block is None:
            return [any_of_rank(data.rank)]
        rest = data.dims[len(block) + 1 :]
        if pairs is None:
            pairs = [None] * len(block)
        whole, batch = math.prod(block), data.dims[0]
        if cls.to_batch:
            first = None if batch is None else batch * whole
            space = [
                None if dim is None or pair is None else exactly(dim + sum(pair), step)
                for dim, step, pair in zip(data.dims[1:], block, pairs, strict=False)
            ]
        else:
            first = None if batch is None else exactly(batch, whole)
            space = [
                None if dim is None or pair is None else _cropped(dim * step, pair)
                for dim, step, pair in zip(data.dims[1:], block, pairs, strict=False)
            ]
        return [Shape((first, *space, *rest))]

    @classmethod
    def static_block(
        cls, context: InferenceContext
    ) -> tuple[list[int] | None, list[list[int] | None] | None]:
        """The block and the paddings or crops where they are known."""
        want_rank(context.inputs[1], 1)
        want_rank(context.inputs[2], 2)
        block, pairs = static_ints(context, 1), context.value(2)
        if block is not None and any(step < 1 for step in block):
            message = f"block {block} must be positive"
            raise ValueError(message)
        fits = pairs is not None and block is not None and pairs.shape == (len(block), 2)
        return block, pairs.tolist() if fits and pairs is not None else None


def exactly(size: int, step: int) -> int:
    """The quotient. Raises ValueError where there is a remainder."""
    if size % step:
        message = f"{size} is not divisible by {step}"
        raise ValueError(message)
    return size // step


def _cropped(size: int, pair: list[int]) -> int:
    if sum(pair) > size:
        message = f"crops {pair} are larger than {size}"
        raise ValueError(message)
    return size - sum(pair)


class SpaceToBatchND(Blocks):
    """Each place in a block of space becomes a part of the batch, after zeros were put around."""

    signature = "input: T, block_shape: Tblock_shape, paddings: Tpaddings -> output: T"
    attrs = "Tblock_shape: {int32, int64} = int32, Tpaddings: {int32, int64} = int32"
    to_batch = True

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        def kernel(value: Any, block_shape: Any, paddings: Any) -> Any:
            block = _block(block_shape)
            return space_to_batch(xp, value, block, _pairs(paddings, len(block)))

        return kernel

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        return g.BatchToSpaceND(dz, *node.inputs[1:]), None, None


class BatchToSpaceND(Blocks):
    """Parts of the batch become the places in a block of space, which is then cropped."""

    signature = "input: T, block_shape: Tblock_shape, crops: Tcrops -> output: T"
    attrs = "Tblock_shape: {int32, int64} = int32, Tcrops: {int32, int64} = int32"
    to_batch = False

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        def kernel(value: Any, block_shape: Any, crops: Any) -> Any:
            block = _block(block_shape)
            return batch_to_space(value, block, _pairs(crops, len(block)))

        return kernel

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        return g.SpaceToBatchND(dz, *node.inputs[1:]), None, None


class SquareBlocks(Blocks, abstract=True):
    """The forms for images, whose block is a square of attribute `block_size`."""

    host_inputs = (1,)
    constant_inputs = (1,)

    @classmethod
    def static_block(
        cls, context: InferenceContext
    ) -> tuple[list[int] | None, list[list[int] | None] | None]:
        want_rank(context.inputs[0], 4)
        want_rank(context.inputs[1], 2)
        pairs = context.value(1)
        known = pairs is not None and pairs.shape == (2, 2)
        size = context.attr("block_size")
        return [size, size], pairs.tolist() if known and pairs is not None else None


class SpaceToBatch(SquareBlocks):
    """SpaceToBatchND of images with a square block."""

    signature = "input: T, paddings: Tpaddings -> output: T"
    attrs = "Tpaddings: {int32, int64} = int32, block_size: int >= 2"
    to_batch = True

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        size = node.attr("block_size")
        return lambda value, paddings: space_to_batch(
            xp, image(value), [size, size], _pairs(paddings, 2)
        )

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        return g.BatchToSpace(dz, node.inputs[1], block_size=node.attr("block_size")), None


class BatchToSpace(SquareBlocks):
    """BatchToSpaceND of images with a square block."""

    signature = "input: T, crops: Tidx -> output: T"
    attrs = "block_size: int >= 2, Tidx: {int32, int64} = int32"
    to_batch = False

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        size = node.attr("block_size")
        return lambda value, crops: batch_to_space(image(value), [size, size], _pairs(crops, 2))

    @staticmethod
    def gradient(g: Adjoint, node: Node, dz: Output) -> Partials:
        return g.SpaceToBatch(dz, node.inputs[1], block_size=node.attr("block_size")), None


def image(value: Any) -> Any:
    """The value, which has four dimensions. Raises OpError where it has others."""
    if value.ndim != 4:
        message = f"input rank should be 4 instead of {value.ndim}"
        raise OpError(message)
    return value
