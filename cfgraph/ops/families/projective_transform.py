"""Projective transforms of images: rotations, shears, zooms, and shifts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir.dtypes import float32
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.names import decode_text
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.resizing import check_image_rank, size_of_images
from cfgraph.ops.opdef.facts import HostPlacement
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, int32_constant
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext

_ZERO: Final = np.float32(0)
_ONE: Final = np.float32(1)


def _whole(quotients: Any) -> Any:
    """The quotients as integers; infinity as the least one."""
    return quotients.astype(np.int64).astype(np.float32)


def _reflected(positions: Any, size: int) -> Any:
    """Positions beyond the edges, mirrored at them: d c b a | a b c d | d c b a."""
    if size <= 1:
        return np.zeros_like(positions)
    twice, length = np.float32(2 * size), np.float32(size)
    below = positions + twice * _whole(-positions / twice)
    below = np.where(below < -length, below + twice, -below - _ONE)
    above = positions - twice * _whole(positions / twice)
    above = np.where(above >= length, twice - above - _ONE, above)
    return _bounded(_choose(positions, size, below, above), size)


def _wrapped(positions: Any, size: int) -> Any:
    """Positions beyond the edges, continued at the opposite edge: a b c d | a b c d | a b c d."""
    if size <= 1:
        return np.zeros_like(positions)
    span, length = np.float32(size - 1), np.float32(size)
    below = positions + length * (_whole(-positions / span) + _ONE)
    above = positions - length * _whole(positions / span)
    return _bounded(_choose(positions, size, below, above), size)


def _choose(positions: Any, size: int, below: Any, above: Any) -> Any:
    inside = np.where(positions > np.float32(size - 1), above, positions)
    return np.where(positions < 0, below, inside)


def _bounded(positions: Any, size: int) -> Any:
    return np.clip(positions, np.float32(0), np.float32(max(size - 1, 0)))


_FILL_MODES: Final[Mapping[str, Callable[[Any, int], Any]]] = {
    "REFLECT": _reflected,
    "WRAP": _wrapped,
    "NEAREST": _bounded,
    "CONSTANT": lambda positions, size: positions,
}


def _read(images: Any, y: Any, x: Any, fill: Any) -> Any:
    """Pixels at positions per image, [batch, height, width, channels]; `fill` outside."""
    _, height, width, _ = images.shape
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    rows = np.where(inside, y, 0).astype(np.int64)
    columns = np.where(inside, x, 0).astype(np.int64)
    pixels = images[np.arange(len(images))[:, None, None], rows, columns]
    return pixels if inside.all() else np.where(inside[..., None], pixels, fill)


def _bilinear(images: Any, y: Any, x: Any, fill: Any) -> Any:
    top, left = np.floor(y), np.floor(x)
    bottom, right = top + _ONE, left + _ONE
    before, behind = (right - x)[..., None], (x - left)[..., None]
    rows = [
        before * _read(images, row, left, fill).astype(np.float32)
        + behind * _read(images, row, right, fill).astype(np.float32)
        for row in (top, bottom)
    ]
    return (bottom - y)[..., None] * rows[0] + (y - top)[..., None] * rows[1]


def _round(positions: Any) -> Any:
    """The nearest integers; halves are rounded away from zero."""
    return np.copysign(np.floor(np.abs(positions) + np.float32(0.5)), positions)


def transform_images(
    images: Any, transforms: Any, size: tuple[int, int], fill: Any, fill_mode: str, *, smooth: bool
) -> Any:
    """Output pixels read from the input at their projected positions, between pixels if smooth."""
    value = fill.astype(images.dtype)
    if 0 in images.shape[1:3]:
        return np.full((len(images), *size, images.shape[3]), value)
    y, x = (np.arange(n, dtype=np.float32) for n in size)
    y = y[None, :, None]
    a, b, c, d, e, f, g, h = np.moveaxis(transforms, 1, 0)[:, :, None, None]
    scale = g * x + h * y + _ONE
    flat = scale == 0
    with np.errstate(all="ignore"):
        from_x, from_y = (a * x + b * y + c) / scale, (d * x + e * y + f) / scale
        apply_mode = _FILL_MODES[fill_mode]
        from_x, from_y = apply_mode(from_x, images.shape[2]), apply_mode(from_y, images.shape[1])
        shape = (len(images), *size)
        from_x, from_y = np.broadcast_to(from_x, shape), np.broadcast_to(from_y, shape)
        if smooth:
            result = _bilinear(images, from_y, from_x, value).astype(images.dtype)
        else:
            result = _read(images, _round(from_y), _round(from_x), value)
    return np.where(flat[..., None], value, result) if flat.any() else result


class ImageProjectiveTransformV2(Op):
    """Images transformed by 8 numbers each, which map output to input positions."""

    signature = (
        "images: dtype, transforms: float32, output_shape: int32 -> transformed_images: dtype"
    )
    attrs = (
        "dtype: {uint8, int32, int64, float16, bfloat16, float32, float64}, "
        "interpolation: string, fill_mode: string = 'CONSTANT'"
    )
    placement = HostPlacement(host_only=True)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        interpolation = decode_text(node.attr("interpolation"))
        fill_mode = decode_text(node.attr("fill_mode"))
        if interpolation not in ("NEAREST", "BILINEAR") or fill_mode not in _FILL_MODES:
            raise OpError(f"invalid interpolation {interpolation} or fill_mode {fill_mode}")
        smooth = interpolation == "BILINEAR"

        def transform(images: Any, transforms: Any, size: Any, fill: Any = _ZERO) -> Any:
            check_image_rank(images)
            if fill.ndim:
                raise OpError(f"fill_value must be a scalar, got shape {list(fill.shape)}")
            if transforms.ndim != 2 or transforms.shape not in ((1, 8), (len(images), 8)):
                raise OpError(
                    "Input transform should be num_images x 8 or 1 x 8, got "
                    f"{list(transforms.shape)}"
                )
            height, width = size_of_images(images, size)
            return transform_images(
                images, transforms, (height, width), fill, fill_mode, smooth=smooth
            )

        return transform

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        dims, size = context.inputs[0].dims, context.shape_value(2).dims
        batch, channels = (dims[0], dims[3]) if dims and len(dims) == 4 else (None, None)
        height, width = size if size and len(size) == 2 else (None, None)
        return [Shape((batch, height, width, channels))]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        images, transforms, _, *fill = node.inputs
        count = g.Slice(g.Shape(transforms), int32_constant(g, [0]), int32_constant(g, [1]))
        one, zero = g.const(1.0, float32), g.const(0.0, float32)
        ones = g.Fill(g.ConcatV2([count, int32_constant(g, [1])], int32_constant(g, 0)), one)
        flat = g.ConcatV2([transforms, ones], int32_constant(g, 1))
        inverse = g.MatrixInverse(g.Reshape(flat, int32_constant(g, [-1, 3, 3])))
        inverse = g.Reshape(inverse, int32_constant(g, [-1, 9]))
        last = g.Slice(inverse, int32_constant(g, [0, 8]), int32_constant(g, [-1, 1]))
        first = g.Slice(inverse, int32_constant(g, [0, 0]), int32_constant(g, [-1, 8]))
        size = g.Slice(g.Shape(images), int32_constant(g, [1]), int32_constant(g, [2]))
        attrs = {name: node.attr(name) for name in ("interpolation", "fill_mode")}
        inputs = (dz, g.RealDiv(first, last), size, *([zero] if fill else []))
        return [getattr(g, node.op)(*inputs, **attrs), *([None] * (len(node.inputs) - 1))]


class ImageProjectiveTransformV3(ImageProjectiveTransformV2):
    """Images transformed by 8 numbers each; pixels outside the input have a fill value."""

    signature = (
        "images: dtype, transforms: float32, output_shape: int32, fill_value: float32 "
        "-> transformed_images: dtype"
    )
