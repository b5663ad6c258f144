"""Patches of images and volumes as channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.names import decode_text
from cfgraph.ir.shapes import Shape
from cfgraph.ops.kernels.sliding_window import SlidingWindow
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, int32_constant
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank


def _spatial(node: Node, key: str, rank: int) -> tuple[int, ...]:
    """The entries of a list attribute for the spatial dimensions; the others must be 1."""
    sizes = node.attr(key)
    if len(sizes) != rank or sizes[0] != 1 or sizes[-1] != 1 or min(sizes) < 1:
        raise OpError(f"{key} must hold {rank} sizes, 1 for batch and depth, got {list(sizes)}")
    return tuple(int(size) for size in sizes[1:-1])


class PatchOp(Op, abstract=True):
    """Patches of a sliding window, flattened into the channels."""

    rank: int

    @classmethod
    def window(cls, node: Node) -> tuple[tuple[int, ...], SlidingWindow]:
        """The window of a node and its movement."""
        window = _spatial(node, "ksizes", cls.rank)
        known = "rates" in node.attrs
        rates = _spatial(node, "rates", cls.rank) if known else (1,) * (cls.rank - 2)
        padding = decode_text(node.attr("padding"))
        strides = _spatial(node, "strides", cls.rank)
        return window, SlidingWindow(strides, rates, padding, ((0, 0),) * (cls.rank - 2))

    @classmethod
    def kernel(cls, xp: ModuleType, window: Any, /, x: Any) -> Any:
        sizes, slide = window
        if x.ndim != cls.rank:
            raise OpError(f"input must be {cls.rank}-dimensional, got shape {list(x.shape)}")
        patches = slide.fit(x.shape[1:-1], sizes).patches(xp, x)
        return patches.reshape((*patches.shape[:-2], math.prod(patches.shape[-2:])))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        x = require_rank(context.inputs[0], cls.rank)
        window, slide = cls.window(context.node)
        assert x.dims is not None
        counts = [slide.static_output_size(d, x.dims[1 + d], k) for d, k in enumerate(window)]
        depth = None if x.dims[-1] is None else x.dims[-1] * math.prod(window)
        return [Shape((x.dims[0], *counts, depth))]

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        """Sum the gradients of all patches that contain a pixel.

        The patches of an image of pixel numbers say which pixel each element comes from; those of
        the padding have number 0.
        """
        x = node.inputs[0]
        window = math.prod(cls.window(node)[0])
        shape = g.shape(x)
        last = cls.rank - 1
        axes = [g.Slice(shape, _ints(g, [d]), _ints(g, [1])) for d in (0, last)]
        inner = g.Slice(shape, _ints(g, [1]), _ints(g, [cls.rank - 2]))
        pixels = g.Prod(inner, _ints(g, [0]))
        stop = g.Add(pixels, int32_constant(g, 1))
        numbers = g.Range(int32_constant(g, 1), stop, int32_constant(g, 1))
        image = g.Reshape(numbers, g.ConcatV2(_ints(g, [1]), inner, _ints(g, [1]), _zero(g)))
        keys = ("ksizes", "strides", "padding", "rates")
        attrs = {key: node.attr(key) for key in keys if key in node.attrs}
        origin = getattr(g, node.op)(image, **attrs)
        # explicit sizes: in an empty batch, -1 is ambiguous
        count = g.Reshape(g.Size(origin), _ints(g, [1]))
        patches = g.FloorDiv(count, _ints(g, [window]))
        # elements in the order pixel of the patch, image, channel
        sizes = g.ConcatV2(axes[0], patches, _ints(g, [window]), axes[1], _zero(g))
        split = g.Reshape(dy, sizes)
        rows = g.Transpose(split, _ints(g, [1, 2, 0, 3]))
        flat = g.Reshape(rows, g.ConcatV2(count, *axes, _zero(g)))
        sums = g.UnsortedSegmentSum(flat, g.Reshape(origin, _ints(g, [-1])), stop)
        real = g.Slice(sums, _ints(g, [1, 0, 0]), _ints(g, [-1, -1, -1]))
        whole = g.Reshape(real, g.ConcatV2(inner, *axes, _zero(g)))
        order = [cls.rank - 2, *range(cls.rank - 2), last]
        return [g.Transpose(whole, _ints(g, order))]


def _ints(g: GradientBuilder, values: Sequence[int]) -> Output:
    return g.const(list(values), dtypes.int32)


def _zero(g: GradientBuilder) -> Output:
    return int32_constant(g, 0)


_PADDING: Final = "padding: {'SAME', 'VALID'}"


class ExtractImagePatches(PatchOp):
    """Patches of images as channels."""

    signature = "images: T -> patches: T"
    attrs = (
        "ksizes: list(int) >= 4, strides: list(int) >= 4, rates: list(int) >= 4, "
        "T: {bfloat16, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, "
        f"uint32, uint64, complex64, complex128, bool}}, {_PADDING}"
    )
    compilation = CompilerSupport(
        uncompiled_types="bool, complex64, complex128, int8, int16, int64, uint8, uint16, uint32, "
        "uint64"
    )
    rank = 4


class ExtractVolumePatches(PatchOp):
    """Patches of volumes as channels."""

    signature = "input: T -> patches: T"
    attrs = (
        "ksizes: list(int) >= 5, strides: list(int) >= 5, T: {float32, float64, int32, uint8, "
        f"int16, int8, int64, bfloat16, uint16, float16, uint32, uint64}}, {_PADDING}"
    )
    compilation = CompilerSupport(compiled=False)
    rank = 5
