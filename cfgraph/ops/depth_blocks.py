"""Blocks of an image moved to its depth, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.adjoint import Adjoint, Partials
from cfgraph.ops.blocks import exactly, image
from cfgraph.ops.dims import any_of_rank, want_rank
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError

Sizes = Sequence[int | None]


class DepthBlocks(Op, abstract=True):
    """What the two ops between space and depth share: layouts, and their static shape."""

    # the result for an image of layout NHWC, and its height, width and depth
    rearranged: ClassVar[Callable[..., Any]]
    static_sizes: ClassVar[Callable[..., list[int | None]]]

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        size, layout = node.attr("block_size"), node.attr("data_format")
        if layout == b"NHWC":
            return lambda value: cls.rearranged(image(value), size)
        if layout == b"NCHW":
            return lambda value: cls.rearranged(
                image(value).transpose((0, 2, 3, 1)), size
            ).transpose((0, 3, 1, 2))

        def of_vectors(value: Any) -> Any:
            count, depth, high, wide, lanes = value.shape
            flat = value.transpose((0, 2, 3, 1, 4)).reshape((count, high, wide, depth * lanes))
            flat = cls.rearranged(flat, size)
            flat = flat.reshape((*flat.shape[:3], flat.shape[3] // lanes, lanes))
            return flat.transpose((0, 3, 1, 2, 4))

        return of_vectors

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        size, layout = context.attr("block_size"), context.attr("data_format")
        data = want_rank(context.inputs[0], 5 if layout == b"NCHW_VECT_C" else 4)
        if data.dims is None:
            return [UNKNOWN_SHAPE]
        if layout == b"NHWC":
            return [Shape((data.dims[0], *cls.static_sizes(data.dims[1:], size)))]
        if layout == b"NCHW":
            _, depth, high, wide = data.dims
            high, wide, depth = cls.static_sizes((high, wide, depth), size)
            return [Shape((data.dims[0], depth, high, wide))]
        return [any_of_rank(5)]

    inverse: ClassVar[str]

    @classmethod
    def gradient(cls, g: Adjoint, node: Node, dz: Output) -> Partials:
        attrs = {key: node.attr(key) for key in ("block_size", "data_format")}
        return [getattr(g, cls.inverse)(dz, **attrs)]


class SpaceToDepth(DepthBlocks):
    """Each block of an image becomes one place with all its values in the depth."""

    signature = "input: T -> output: T"
    attrs = "block_size: int >= 2, data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'"
    inverse = "DepthToSpace"

    @staticmethod
    def rearranged(value: Any, size: int) -> Any:
        count, high, wide, depth = value.shape
        if high % size or wide % size:
            message = (
                f"Image width {wide} and height {high} should be divisible by block_size: {size}"
            )
            raise OpError(message)
        cut = value.reshape((count, high // size, size, wide // size, size, depth))
        return cut.transpose((0, 1, 3, 2, 4, 5)).reshape(
            (count, high // size, wide // size, size * size * depth)
        )

    @staticmethod
    def static_sizes(dims: Sizes, size: int) -> list[int | None]:
        high, wide, depth = dims
        return [
            None if high is None else exactly(high, size),
            None if wide is None else exactly(wide, size),
            None if depth is None else depth * size * size,
        ]


class DepthToSpace(DepthBlocks):
    """The depth of each place of an image becomes a block of places."""

    signature = "input: T -> output: T"
    attrs = "block_size: int >= 2, data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'"
    inverse = "SpaceToDepth"

    @staticmethod
    def rearranged(value: Any, size: int) -> Any:
        count, high, wide, depth = value.shape
        if depth % (size * size):
            message = f"Input depth dimension {depth} should be divisible by: {size * size}"
            raise OpError(message)
        left = depth // (size * size)
        cut = value.reshape((count, high, wide, size, size, left))
        return cut.transpose((0, 1, 3, 2, 4, 5)).reshape((count, high * size, wide * size, left))

    @staticmethod
    def static_sizes(dims: Sizes, size: int) -> list[int | None]:
        high, wide, depth = dims
        return [
            None if high is None else high * size,
            None if wide is None else wide * size,
            None if depth is None else exactly(depth, size * size),
        ]
