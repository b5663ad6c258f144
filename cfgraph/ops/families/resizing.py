"""Image resizing by nearest neighbor or bilinear interpolation, and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.limits import reserve_array
from cfgraph.ops.kernels.array_namespace import holds, is_gpu_namespace
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    int32_constant,
    same_attrs,
)
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext

_CORNERS = "align_corners: bool = false, half_pixel_centers: bool = false"
_IMAGES = "T: {int8, uint8, int16, uint16, int32, int64, float16, float32, float64, bfloat16}, "


class Interpolation(NamedTuple):
    """An interpolation matrix, [output rows, input rows], and the terms that are summed in it."""

    matrix: Any
    outputs: Any
    inputs: Any
    weights: Any

    @property
    def transposed(self) -> Interpolation:
        """The interpolation of gradients."""
        return Interpolation(self.matrix.T, self.inputs, self.outputs, self.weights)

    def sums(self, x: Any) -> Any:
        """The weighted sums of rows, term by term: a pixel that is not finite remains alone."""
        result = np.zeros((len(self.matrix), *x.shape[1:]), x.dtype)
        weights = self.weights.reshape(-1, *[1] * (x.ndim - 1))
        np.add.at(result, self.outputs, x[self.inputs] * weights)
        return result


def interpolation(inputs: Any, weights: Any, size: int, dtype: Any = np.float32) -> Interpolation:
    """The interpolation from input rows to output rows, each with one or more weights."""
    outputs = np.broadcast_to(np.arange(inputs.shape[-1]), inputs.shape).ravel()
    matrix = np.zeros((inputs.shape[-1], size), dtype)
    inputs, weights = inputs.ravel(), weights.ravel()
    np.add.at(matrix, (outputs, inputs), weights)
    return Interpolation(matrix, outputs, inputs, weights)


def nonzero_weights(matrix: Any) -> Interpolation:
    """The interpolation of a matrix, in which weights of zero are no terms."""
    outputs, inputs = np.nonzero(matrix)
    return Interpolation(matrix, outputs, inputs, matrix[outputs, inputs])


class ResizeGrid:
    """The mapping from output rows (or columns) to input rows (or columns)."""

    def __init__(self, node: Node) -> None:
        self.corners = bool(node.attr("align_corners"))
        self.centers = bool(node.attr("half_pixel_centers"))
        if self.corners and self.centers:
            raise OpError("If half_pixel_centers is True, align_corners must be False.")

    def scale(self, size: int, count: int) -> Any:
        """Input rows per output row."""
        if self.corners and count > 1:
            return np.float32(size - 1) / np.float32(count - 1)
        return np.float32(size) / np.float32(count)

    def nearest(self, size: int, count: int) -> Any:
        """The nearest input row of each output row."""
        rows = np.arange(count, dtype=np.float32)
        positions = (rows + np.float32(0.5) if self.centers else rows) * self.scale(size, count)
        if self.corners:
            positions = positions.astype(np.float64) + 0.5
        return np.clip(np.floor(positions).astype(np.int64), 0, size - 1)

    @lru_cache(maxsize=64)  # noqa: B019 - grids are small
    def between(self, size: int, count: int) -> tuple[Any, Any, Any]:
        """The input rows below and above each output row, and the weight of the upper one."""
        rows, half = np.arange(count, dtype=np.float32), np.float32(0.5)
        scale = self.scale(size, count)
        positions = (rows + half) * scale - half if self.centers else rows * scale
        floor = np.floor(positions)
        low = np.maximum(floor, 0).astype(np.int64)
        high = np.minimum(np.ceil(positions), size - 1).astype(np.int64)
        return low, high, (positions - floor).astype(np.float32)

    @lru_cache(maxsize=64)  # noqa: B019
    def weights(self, size: int, count: int) -> Interpolation:
        """The linear interpolation of each output row."""
        reserve_array((count, size), 4)
        low, high, fraction = self.between(size, count)
        return interpolation(np.stack([low, high]), np.stack([1 - fraction, fraction]), size)

    def choices(self, size: int, count: int, dtype: Any) -> Interpolation:
        """The nearest input row of each output row, with a weight of 1."""
        reserve_array((count, size), 8)
        return interpolation(self.nearest(size, count), np.ones(count, dtype), size, dtype)


def check_image_rank(x: Any) -> None:
    """Raise OpError unless `x` is a batch of images, [batch, height, width, channels]."""
    if x.ndim != 4:
        raise OpError(f"input must be 4-dimensional{list(x.shape)}")


def check_image_batch(x: Any) -> None:
    """Raise OpError unless `x` is a batch of nonempty images."""
    check_image_rank(x)
    if 0 in x.shape[1:3]:
        raise OpError("input image must be of non-zero size")


def check_image_size(size: Any) -> tuple[int, int]:
    """Height and width as integers. Raises OpError for an invalid size."""
    if size.shape != (2,):
        raise OpError(f"shape_t must have two elements{list(size.shape)}")
    if size[0] <= 0 or size[1] <= 0:
        raise OpError("output dimensions must be positive")
    return int(size[0]), int(size[1])


def size_of_resized(images: Any, size: Any) -> tuple[int, int]:
    """Height and width of the resized images, after checks of images and size."""
    check_image_batch(images)
    if not images.shape[3]:
        raise OpError("image must have at least one channel")
    return size_of_images(images, size)


def size_of_images(images: Any, size: Any) -> tuple[int, int]:
    """Height and width of images made from others, which may be empty.

    Raises OpError for an invalid rank or size, ExecutionError for a result beyond the memory limit.
    """
    check_image_rank(images)
    height, width = check_image_size(size)
    count, channels = max(images.shape[0], 1), max(images.shape[3], 1)
    reserve_array((count, height, width, channels), images.dtype.itemsize)
    return height, width


class ResizeOp(Op, abstract=True):
    """Resizing of a batch of images to the size in the second input."""

    grid: ClassVar[Callable[..., ResizeGrid]] = ResizeGrid

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        image, size = context.inputs[0], context.shape_value(1)
        if size.rank != 2:
            size = Shape((None, None))
        image = image.merge(Shape((None,) * 4))
        return [image[:1] + size + image[3:]]


def height_and_width(g: GradientBuilder, x: Output) -> Output:
    """The height and width of a batch of images, as an int32 vector."""
    known = g.known_shape(x)[1:3]
    if known.is_full:
        return int32_constant(g, list(known))
    return g.Slice(g.shape(x), int32_constant(g, [1]), int32_constant(g, [2]))


class ResizeNearestNeighbor(ResizeOp):
    """Images resized by nearest-neighbor interpolation."""

    signature = "images: T, size: const int32 -> resized_images: T"
    attrs = _IMAGES + _CORNERS

    @staticmethod
    def kernel(xp: ModuleType, grid: ResizeGrid, /, x: Any, size: Any) -> Any:
        height, width = size_of_resized(x, size)
        rows = xp.asarray(grid.nearest(x.shape[1], height))
        columns = xp.asarray(grid.nearest(x.shape[2], width))
        return x[:, rows[:, None], columns]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        size = height_and_width(g, node.inputs[0])
        return same_attrs(g, "ResizeNearestNeighborGrad", node, dy, size), None


class ResizeBilinear(ResizeOp):
    """Images resized by bilinear interpolation in float32."""

    signature = "images: T, size: const int32 -> resized_images: float32"
    attrs = _IMAGES + _CORNERS

    @staticmethod
    def kernel(xp: ModuleType, grid: ResizeGrid, /, x: Any, size: Any) -> Any:
        height, width = size_of_resized(x, size)
        x = x.astype(xp.float32)
        if x.shape[1:3] == (height, width):
            return x
        left, right, x_fraction = (xp.asarray(v) for v in grid.between(x.shape[2], width))
        x_fraction = x_fraction[:, None]
        top, bottom, y_fraction = (xp.asarray(v) for v in grid.between(x.shape[1], height))
        stretched = _between(xp, x, left, right, x_fraction, 2)
        return _between(xp, stretched, top, bottom, y_fraction[:, None, None], 1)

    gradient = staticmethod(
        lambda g, node, dy: (same_attrs(g, "ResizeBilinearGrad", node, dy, node.inputs[0]), None)
    )


def _between(xp: ModuleType, x: Any, low: Any, high: Any, fraction: Any, axis: int) -> Any:
    """The values between the elements `low` and `high` of an axis."""
    start, end = x.take(low, axis), x.take(high, axis)
    if xp is not np:
        return start + (end - start) * fraction
    end -= start
    end *= fraction
    end += start
    return end


def interpolated(
    xp: ModuleType, images: Any, vertical: Interpolation, horizontal: Interpolation
) -> Any:
    """Interpolate the rows and the columns of images.

    A product of matrices would spread a pixel that is not finite: 0 times infinity is NaN.
    """
    is_checked = images.dtype.kind == "f" and not is_gpu_namespace(xp)
    if is_checked and not holds(xp, xp.isfinite(images).all()):
        down = np.moveaxis(vertical.sums(np.moveaxis(images, 1, 0)), 0, 1)
        return np.moveaxis(horizontal.sums(np.moveaxis(down, 2, 0)), 0, 2)
    rows, columns = xp.asarray(vertical.matrix), xp.asarray(horizontal.matrix)
    batch, height, width, channels = images.shape
    down = rows @ images.reshape((batch, height, width * channels))
    return columns @ down.reshape((batch, len(rows), width, channels))


class ResizeBilinearGrad(Op):
    """Gradient of ResizeBilinear."""

    signature = "grads: float32, original_image: T -> output: T"
    attrs = "T: {float32, bfloat16, float16, float64}, " + _CORNERS
    grid = ResizeGrid

    @staticmethod
    def kernel(xp: ModuleType, grid: ResizeGrid, /, dy: Any, x: Any) -> Any:
        check_image_batch(dy)
        check_image_batch(x)
        rows = grid.weights(x.shape[1], dy.shape[1]).transposed
        columns = grid.weights(x.shape[2], dy.shape[2]).transposed
        return interpolated(xp, dy, rows, columns).astype(x.dtype)

    shape = staticmethod(lambda context: [context.inputs[1]])

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dx: Output) -> InputGradients:
        return same_attrs(g, "ResizeBilinear", node, dx, height_and_width(g, node.inputs[0])), None


class ResizeNearestNeighborGrad(ResizeOp):
    """Gradient of ResizeNearestNeighbor."""

    signature = "grads: T, size: const int32 -> output: T"
    attrs = "T: {uint8, int8, int32, float16, float32, float64, bfloat16}, " + _CORNERS
    compilation = replace(ResizeOp.compilation, compiled=False)

    @staticmethod
    def kernel(xp: ModuleType, grid: ResizeGrid, /, dy: Any, size: Any) -> Any:
        height, width = size_of_images(dy, size)
        dtype = xp.float32 if dy.dtype.itemsize == 2 else dy.dtype
        rows = grid.choices(height, dy.shape[1], dtype).transposed
        columns = grid.choices(width, dy.shape[2], dtype).transposed
        return interpolated(xp, dy.astype(dtype), rows, columns).astype(dy.dtype)

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dx: Output) -> InputGradients:
        size = height_and_width(g, node.inputs[0])
        return same_attrs(g, "ResizeNearestNeighbor", node, dx, size), None
