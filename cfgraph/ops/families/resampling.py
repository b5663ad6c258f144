"""Resizing of images by bicubic, area, and windowed kernels, each as two interpolation matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.names import decode_text
from cfgraph.limits import reserve_array
from cfgraph.ops.families.resizing import (
    Interpolation,
    ResizeGrid,
    ResizeOp,
    check_image_batch,
    check_image_rank,
    interpolated,
    interpolation,
    nonzero_weights,
    size_of_resized,
)
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, same_attrs
from cfgraph.ops.opdef.op import Op, OpError

_IMAGES: Final = (
    "T: {int8, uint8, int16, uint16, int32, int64, float16, float32, float64, bfloat16}"
)
_CORNERS: Final = "align_corners: bool = false, half_pixel_centers: bool = false"
# steps between two pixels at which TensorFlow tabulates the cubic kernel
_TABLE_SIZE: Final = 1024
# sums of weights below this are not normalized
_LEAST_SUM: Final = 1000 * float(np.finfo(np.float32).tiny)
WeightFunction = Callable[[Any], Any]


def _cubic_table(a: float) -> Any:
    """The cubic kernel between 0 and 1, and between 1 and 2."""
    x = np.arange(_TABLE_SIZE + 1, dtype=np.float64) / _TABLE_SIZE
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    x = x + 1
    return np.stack([near, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a]).astype(np.float32)


@lru_cache(maxsize=64)
def bicubic_weights(size: int, count: int, scale: Any, *, centers: bool) -> Interpolation:
    """The bicubic interpolation of each output row.

    With pixel centers, weights outside the image are dropped; without, edge pixels repeat.
    """
    reserve_array((count, size), 4)
    half, rows = np.float32(0.5), np.arange(count, dtype=np.float32)
    positions = (rows + half) * scale - half if centers else rows * scale
    low = np.floor(positions)
    offsets = np.rint((positions - low) * np.float32(_TABLE_SIZE)).astype(np.int64)
    near, far = _cubic_table(-0.5 if centers else -0.75)
    back = _TABLE_SIZE - offsets
    weights = np.stack([far[offsets], near[offsets], near[back], far[back]])
    places = low.astype(np.int64) + np.arange(-1, 3)[:, None]
    bounded = np.clip(places, 0, size - 1)
    if centers:
        weights = np.where(bounded == places, weights, np.float32(0))
        weights = _normalized(weights, 0)
    return interpolation(bounded, weights, size)


def _normalized(weights: Any, axis: int) -> Any:
    total = weights.sum(axis, keepdims=True)
    return np.where(np.abs(total) >= _LEAST_SUM, weights / np.where(total == 0, 1, total), weights)


@lru_cache(maxsize=64)
def area_weights(size: int, count: int, scale: Any) -> Interpolation:
    """The share of each input row in each output row."""
    reserve_array((count, size), 4)
    matrix = np.zeros((count, size), np.float32)
    for row in range(count):
        start, stop = np.float32(row) * scale, np.float32(row + 1) * scale
        for place in range(int(np.floor(start)), int(np.ceil(stop))):
            share = min(np.float32(place + 1), stop) - max(np.float32(place), start)
            matrix[row, min(max(place, 0), size - 1)] += share / scale
    return nonzero_weights(matrix)


class MatrixResize(ResizeOp, abstract=True):
    """Resizing by the interpolation matrices of a grid."""

    signature = "images: T, size: const int32 -> resized_images: float32"
    compilation = CompilerSupport(compiled=False)
    weights: Callable[[ResizeGrid, int, int], Interpolation]

    @classmethod
    def kernel(cls, xp: ModuleType, grid: Any, /, x: Any, size: Any) -> Any:
        height, width = size_of_resized(x, size)
        rows, columns = cls.weights(grid, x.shape[1], height), cls.weights(grid, x.shape[2], width)
        return interpolated(xp, x.astype(xp.float32), rows, columns)


def _bicubic(grid: ResizeGrid, size: int, count: int) -> Interpolation:
    return bicubic_weights(size, count, grid.scale(size, count), centers=grid.centers)


class ResizeBicubic(MatrixResize):
    """Images resized by bicubic interpolation in float32."""

    attrs = f"{_IMAGES}, {_CORNERS}"
    weights = staticmethod(_bicubic)
    gradient = staticmethod(
        lambda g, node, dy: (same_attrs(g, "ResizeBicubicGrad", node, dy, node.inputs[0]), None)
    )


class ResizeBicubicGrad(Op):
    """Gradient of ResizeBicubic."""

    signature = "grads: float32, original_image: T -> output: T"
    attrs = f"T: {{float32, float64}}, {_CORNERS}"
    compilation = CompilerSupport(compiled=False)
    grid = ResizeGrid

    @staticmethod
    def kernel(xp: ModuleType, grid: ResizeGrid, /, dy: Any, x: Any) -> Any:
        check_image_batch(dy)
        check_image_batch(x)
        rows = _bicubic(grid, x.shape[1], dy.shape[1]).transposed
        columns = _bicubic(grid, x.shape[2], dy.shape[2]).transposed
        return interpolated(xp, dy, rows, columns).astype(x.dtype)

    shape = staticmethod(lambda context: [context.inputs[1]])


class ResizeArea(MatrixResize):
    """Images resized by averages over areas, in float32."""

    attrs = f"{_IMAGES}, align_corners: bool = false"
    weights = staticmethod(
        lambda grid, size, count: area_weights(size, count, grid.scale(size, count))
    )

    @classmethod
    def grid(cls, node: Node) -> ResizeGrid:
        grid = ResizeGrid.__new__(ResizeGrid)
        grid.corners, grid.centers = bool(node.attr("align_corners")), False
        return grid


def _lanczos(radius: float) -> WeightFunction:
    def weight(x: Any) -> Any:
        near = np.where(np.abs(x) <= 1e-3, 1.0, x) * np.pi
        value = radius * np.sin(near) * np.sin(near / radius) / (near * near)
        return np.where(np.abs(x) > radius, 0.0, np.where(np.abs(x) <= 1e-3, 1.0, value))

    return weight


def _gaussian(x: Any) -> Any:
    return np.where(np.abs(x) >= 1.5, 0.0, np.exp(-x * x / (2 * 0.5 * 0.5)))


def _box(x: Any) -> Any:
    x = np.abs(x)
    return np.where(x < 0.5, 1.0, np.where(x == 0.5, 0.5, 0.0))


def _triangle(x: Any) -> Any:
    return np.maximum(1 - np.abs(x), 0)


def _keys_cubic(x: Any) -> Any:
    x = np.abs(x)
    inner = (1.5 * x - 2.5) * x * x + 1
    return np.where(x >= 2, 0.0, np.where(x >= 1, ((-0.5 * x + 2.5) * x - 4) * x + 2, inner))


def _mitchell_cubic(x: Any) -> Any:
    x = np.abs(x)
    outer = (((-7 / 18) * x + 2) * x - 10 / 3) * x + 16 / 9
    inner = ((7 / 6) * x - 2) * x * x + 8 / 9
    return np.where(x >= 2, 0.0, np.where(x >= 1, outer, inner))


# radius and weight of each kernel
_KERNELS: Final[dict[str, tuple[float, WeightFunction]]] = {
    "lanczos1": (1, _lanczos(1)),
    "lanczos3": (3, _lanczos(3)),
    "lanczos5": (5, _lanczos(5)),
    "gaussian": (1.5, _gaussian),
    "box": (0.5, _box),
    "triangle": (1, _triangle),
    "keyscubic": (2, _keys_cubic),
    "mitchellcubic": (2, _mitchell_cubic),
}


def span_weights(
    kernel: str, size: int, count: int, scale: Any, translation: Any, *, antialias: bool
) -> Interpolation:
    """The interpolation of each output row of a scaled and translated image."""
    if not scale > 0:
        raise OpError(f"scale must be positive, got {scale}")
    reserve_array((count, size), 4)
    radius, weight = _KERNELS[kernel]
    inverse = np.float32(1) / np.float32(scale)
    samples = (np.arange(count, dtype=np.float32) + np.float32(0.5)) * inverse
    samples = samples - inverse * np.float32(translation)
    stretch = max(inverse, np.float32(1)) if antialias else np.float32(1)
    reach = np.float32(radius) * stretch
    start = np.clip(np.ceil(samples - reach - np.float32(0.5)), 0, size - 1)
    stop = np.clip(np.floor(samples + reach - np.float32(0.5)), 0, size - 1)
    places = np.arange(size, dtype=np.float32)
    distances = (places + np.float32(0.5) - samples[:, None]) / stretch
    matrix = weight(distances).astype(np.float32)
    inside = (places >= start[:, None]) & (places <= stop[:, None])
    inside &= ((samples >= 0) & (samples <= size))[:, None]
    return nonzero_weights(_normalized(np.where(inside, matrix, np.float32(0)), 1))


class SpanResampling:
    """The attributes of ScaleAndTranslate, and its matrices for two sizes."""

    def __init__(self, node: Node) -> None:
        self.kernel = decode_text(node.attr("kernel_type"))
        self.antialias = bool(node.attr("antialias"))
        if self.kernel not in _KERNELS:
            raise OpError(f"Unrecognized kernel type: {self.kernel}")

    def matrices(
        self, sizes: Sequence[int], counts: Sequence[int], scale: Any, translation: Any
    ) -> list[Interpolation]:
        """The interpolations of rows and columns. Raises OpError for an invalid scale."""
        if scale.shape != (2,) or translation.shape != (2,):
            raise OpError("scale and translation must have two elements")
        return [
            span_weights(self.kernel, *numbers, antialias=self.antialias)
            for numbers in zip(sizes, counts, scale.tolist(), translation.tolist(), strict=True)
        ]


class ScaleAndTranslate(ResizeOp):
    """Images scaled and translated into an output of another size."""

    signature = (
        "images: T, size: const int32, scale: host float32, translation: host float32 "
        "-> resized_images: float32"
    )
    attrs = f"{_IMAGES}, kernel_type: string = 'lanczos3', antialias: bool = true"
    compilation = CompilerSupport(traceable=False)
    resampling = SpanResampling

    @staticmethod
    def kernel(
        xp: ModuleType, resampling: Any, /, x: Any, size: Any, scale: Any, translation: Any
    ) -> Any:
        counts = size_of_resized(x, size)
        rows, columns = resampling.matrices(x.shape[1:3], counts, scale, translation)
        return interpolated(xp, x.astype(xp.float32), rows, columns)

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        x, _, scale, translation = node.inputs
        wide = x if x.dtype == dy.dtype else g.Cast(x, DstT=dy.dtype)
        made = g.ScaleAndTranslateGrad(
            dy,
            wide,
            scale,
            translation,
            kernel_type=node.attr("kernel_type"),
            antialias=node.attr("antialias"),
        )
        return made if wide == x else g.Cast(made, DstT=x.dtype), None, None, None


class ScaleAndTranslateGrad(Op):
    """Gradient of ScaleAndTranslate."""

    signature = (
        "grads: T, original_image: T, scale: host float32, translation: host float32 -> output: T"
    )
    attrs = "T: {float32}, kernel_type: string = 'lanczos3', antialias: bool = true"
    compilation = CompilerSupport(traceable=False)
    resampling = SpanResampling

    @staticmethod
    def kernel(
        xp: ModuleType, resampling: SpanResampling, /, dy: Any, x: Any, scale: Any, translation: Any
    ) -> Any:
        check_image_rank(dy)
        check_image_rank(x)
        sizes, counts = x.shape[1:3], dy.shape[1:3]
        rows, columns = resampling.matrices(sizes, counts, scale, translation)
        return interpolated(xp, dy, rows.transposed, columns.transposed).astype(x.dtype)

    shape = staticmethod(lambda context: [context.inputs[1]])
