"""Crops of images: boxes resized to one size, glimpses, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.ir.dtypes import DType, float16, float32, float64
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.names import decode_text
from cfgraph.ir.shapes import Shape
from cfgraph.limits import reserve_array
from cfgraph.ops.families.resizing import check_image_batch, check_image_rank, check_image_size
from cfgraph.ops.kernels import philox
from cfgraph.ops.kernels.array_namespace import accumulated_at, on_host
from cfgraph.ops.kernels.philox import PhiloxStream
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients
from cfgraph.ops.opdef.op import Kernel, Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank

_IMAGE = "T: {uint8, uint16, int8, int16, int32, int64, float16, float32, float64}"
# a window of at most so many elements keeps its noise, which all windows of a shape have
_FEW_DRAWN: Final = 1 << 12
_METHOD = "method: {'bilinear', 'nearest'} = 'bilinear'"


class SampleLine(NamedTuple):
    """Positions in one dimension of an image, a row per box."""

    inside: Any
    low: Any
    high: Any
    fraction: Any

    @classmethod
    def from_boxes(cls, xp: ModuleType, start: Any, stop: Any, size: int, count: int) -> SampleLine:
        """The positions of `count` samples between normalized bounds."""
        last = np.float32(size - 1)
        start, stop = start[:, None], stop[:, None]
        if count > 1:
            scale = (stop - start) * last / np.float32(count - 1)
            positions = start * last + xp.arange(count, dtype=np.float32) * scale
        else:
            positions = np.float32(0.5) * (start + stop) * last + xp.zeros((1, count), np.float32)
        inside = (positions >= 0) & (positions <= last)
        positions = xp.where(inside, positions, np.float32(0))
        low = xp.floor(positions)
        return cls(
            inside, low.astype(np.int64), xp.ceil(positions).astype(np.int64), positions - low
        )

    def nearest(self, xp: ModuleType) -> Any:
        """The nearest rows, halves rounded up."""
        return xp.where(self.fraction >= 0.5, self.high, self.low)


class CropGrid(NamedTuple):
    """Positions of the pixels of all crops."""

    image: Any  # of each box, ready to index
    y: SampleLine
    x: SampleLine

    @classmethod
    def from_boxes(
        cls, xp: ModuleType, shape: Sequence[int], boxes: Any, image: Any, size: tuple[int, int]
    ) -> CropGrid:
        """The grid of boxes. Raises OpError for boxes of invalid shape or image."""
        if boxes.ndim != 2 or boxes.shape[1] != 4 or image.shape != boxes.shape[:1]:
            raise OpError(
                f"boxes of shape {list(boxes.shape)} and box_ind of shape {list(image.shape)} do "
                f"not fit each other"
            )
        if not bool(xp.isfinite(boxes).all()):
            raise OpError("Boxes contains at least one element that is not finite")
        if bool(((image < 0) | (image >= shape[0])).any()):
            raise OpError(f"box_index has values outside [0, {shape[0]})")
        y = SampleLine.from_boxes(xp, boxes[:, 0], boxes[:, 2], shape[1], size[0])
        x = SampleLine.from_boxes(xp, boxes[:, 1], boxes[:, 3], shape[2], size[1])
        return cls(image[:, None, None], y, x)

    @property
    def inside(self) -> Any:
        """True for the pixels that lie inside their image."""
        return self.y.inside[:, :, None] & self.x.inside[:, None, :]

    def corners(self, image: Any) -> tuple[Any, Any, Any, Any]:
        """The pixels around each position: top left, top right, bottom left, bottom right."""
        return tuple(
            image[self.image, rows[:, :, None], columns[:, None, :]].astype(np.float32)
            for rows in (self.y.low, self.y.high)
            for columns in (self.x.low, self.x.high)
        )

    def fractions(self) -> tuple[Any, Any]:
        """The weights of the lower row and of the right column."""
        return self.y.fraction[:, :, None, None], self.x.fraction[:, None, :, None]


def _is_bilinear(node: Node) -> bool:
    return decode_text(node.attr("method")) == "bilinear"


class CropAndResize(Op):
    """Boxes of images, resized to one size by bilinear or nearest-neighbor interpolation."""

    signature = "image: T, boxes: float32, box_ind: int32, crop_size: const int32 -> crops: float32"
    attrs = f"{_IMAGE}, {_METHOD}, extrapolation_value: float = 0.0"
    compilation = CompilerSupport(traceable=False)
    bilinear = _is_bilinear

    @staticmethod
    def kernel(xp: ModuleType, bilinear: Any, extrapolation_value: float, /, *inputs: Any) -> Any:
        image, boxes, index, size = inputs
        check_image_batch(image)
        height, width = check_image_size(size)
        reserve_array((len(boxes), height, width, max(image.shape[3], 1)), 4)
        grid = CropGrid.from_boxes(xp, image.shape, boxes, index, (height, width))
        if bilinear:
            top_left, top_right, left, right = grid.corners(image)
            down, across = grid.fractions()
            top = top_left + (top_right - top_left) * across
            result = top + (left + (right - left) * across - top) * down
        else:
            rows, columns = grid.y.nearest(xp)[:, :, None], grid.x.nearest(xp)[:, None, :]
            result = image[grid.image, rows, columns].astype(np.float32)
        return xp.where(grid.inside[..., None], result, np.float32(extrapolation_value))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        image, boxes = require_rank(context.inputs[0], 4), require_rank(context.inputs[1], 2)
        boxes[1:].merge(Shape((4,)))
        count = boxes[:1].merge(require_rank(context.inputs[2], 1))
        size = context.shape_value(3)
        return [count + (size if size.rank == 2 else Shape((None, None))) + image[3:]]

    @staticmethod
    def gradient(g: GradientBuilder, node: Node, dy: Output) -> InputGradients:
        image, boxes, index, _ = node.inputs

        def image_gradient() -> Output | None:
            if image.dtype not in (float16, float32, float64):
                return None
            return g.CropAndResizeGradImage(
                dy, boxes, index, g.shape(image), T=image.dtype, method=node.attr("method")
            )

        return image_gradient, lambda: g.CropAndResizeGradBoxes(dy, image, boxes, index), None, None


class CropAndResizeGradImage(Op):
    """Gradient of CropAndResize by the images."""

    signature = (
        "grads: float32, boxes: float32, box_ind: int32, image_size: const int32 -> output: T"
    )
    attrs = f"T: {{float32, float16, float64}}, {_METHOD}"
    compilation = CompilerSupport(traceable=False)
    bilinear = _is_bilinear

    @staticmethod
    def kernel(
        xp: ModuleType, bilinear: Any, T: DType, /, dy: Any, boxes: Any, index: Any, size: Any
    ) -> Any:
        if size.shape != (4,) or (size < 0).any() or 0 in size[1:3].tolist():
            raise OpError(f"image_size must hold 4 positive sizes, got {size.tolist()}")
        shape = tuple(size.tolist())
        reserve_array(shape, 8)
        grid = CropGrid.from_boxes(xp, shape, boxes, index, dy.shape[1:3])
        wide = xp.where(grid.inside[..., None], dy, np.float32(0))
        result = xp.zeros(shape, np.float64)
        if not bilinear:
            rows, columns = grid.y.nearest(xp)[:, :, None], grid.x.nearest(xp)[:, None, :]
            return accumulated_at(xp, result, (grid.image, rows, columns), wide, "add").astype(
                T.numpy
            )
        down, across = grid.fractions()
        for rows, up in ((grid.y.low, 1 - down), (grid.y.high, down)):
            for columns, side in ((grid.x.low, 1 - across), (grid.x.high, across)):
                at = (grid.image, rows[:, :, None], columns[:, None, :])
                result = accumulated_at(xp, result, at, wide * up * side, "add")
        return result.astype(T.numpy)

    shape = staticmethod(lambda context: [context.shape_value(3).merge(Shape((None,) * 4))])


class CropAndResizeGradBoxes(Op):
    """Gradient of bilinear CropAndResize by the boxes."""

    signature = "grads: float32, image: T, boxes: float32, box_ind: int32 -> output: float32"
    attrs = f"{_IMAGE}, method: {{'bilinear'}} = 'bilinear'"
    compilation = CompilerSupport(traceable=False)

    @staticmethod
    def kernel(xp: ModuleType, dy: Any, image: Any, boxes: Any, index: Any) -> Any:
        check_image_batch(image)
        height, width = dy.shape[1:3]
        if not (height and width):
            raise OpError("grads dimensions must be positive")
        grid = CropGrid.from_boxes(xp, image.shape, boxes, index, (height, width))
        top_left, top_right, left, right = grid.corners(image)
        down, across = grid.fractions()
        dy = xp.where(grid.inside[..., None], dy, np.float32(0))
        by_row = ((1 - across) * (left - top_left) + across * (right - top_right)) * dy
        by_column = ((1 - down) * (top_right - top_left) + down * (right - left)) * dy
        columns = []
        for part, axis, count in ((by_row, 1, height), (by_column, 2, width)):
            extent = np.float32(image.shape[axis] - 1)
            ratio = xp.linspace(0, 1, count) if count > 1 else xp.full(1, 0.5)
            weights = (ratio * extent).astype(np.float32)
            sums = part.sum(axis=(3 - axis, 3))
            columns.append(((extent - weights) * sums).sum(1))
            columns.append((weights * sums).sum(1))
        return xp.stack([columns[i] for i in (0, 2, 1, 3)], axis=1).astype(np.float32)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [require_rank(context.inputs[2], 2).merge(Shape((None, 4)))]


class ExtractGlimpseV2(Op):
    """Windows of images at offsets per image; noise where a window leaves its image."""

    signature = "input: float32, size: const int32, offsets: host float32 -> glimpse: float32"
    attrs = (
        "centered: bool = true, normalized: bool = true, uniform_noise: bool = true, "
        "noise: string = 'uniform'"
    )
    compilation = CompilerSupport(traceable=False)
    always_centered = False  # offsets that are not centered are those of the window's corner

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        noise = decode_text(node.attr("noise"))
        if node.attr("uniform_noise") and noise != "uniform":
            raise OpError("The uniform_noise and noise should not be specified at the same time")
        centered, normalized = bool(node.attr("centered")), bool(node.attr("normalized"))

        def extract(x: Any, size: Any, offsets: Any) -> Any:
            check_image_rank(x)
            if size.shape != (2,) or (size < 0).any():
                raise OpError(f"size must be two numbers from 0 on, got {size.tolist()}")
            height, width = size.tolist()
            if offsets.shape != (len(x), 2):
                raise OpError(f"offsets must have shape [{len(x)}, 2], got {list(offsets.shape)}")
            reserve_array((len(x), height, width, x.shape[3]), 4)
            window = np.array([height, width], np.float32)
            sizes = np.array(x.shape[1:3], np.float32)
            starts = offsets * sizes if normalized else offsets
            if centered:
                starts = cls.uncentered(starts, sizes, window, normalized=normalized)
            elif cls.always_centered:
                starts = starts - window / np.float32(2)
            corners = np.trunc(starts).astype(np.int64).tolist()
            glimpses = [
                _glimpse(image, start, (height, width), noise)
                for image, start in zip(x, corners, strict=True)
            ]
            return (
                np.stack(glimpses)
                if glimpses
                else np.zeros((0, height, width, x.shape[3]), x.dtype)
            )

        return on_host(extract, node, xp)

    @classmethod
    def uncentered(cls, offsets: Any, sizes: Any, window: Any, *, normalized: bool) -> Any:
        """The corner of a window from an offset from the center of its image."""
        if normalized or cls.always_centered:
            return offsets / np.float32(2) + sizes / np.float32(2) - window / np.float32(2)
        return offsets + sizes / np.float32(2)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        image, offsets = require_rank(context.inputs[0], 4), require_rank(context.inputs[2], 2)
        offsets[1:].merge(Shape((2,)))
        size = context.shape_value(1)
        size = size if size.rank == 2 else Shape((None, None))
        return [image[:1].merge(offsets[:1]) + size + image[3:]]


class ExtractGlimpse(ExtractGlimpseV2):
    """Windows of images; offsets are those of the center of the window."""

    always_centered = True


def _glimpse(image: Any, start: Sequence[int], size: tuple[int, int], noise: str) -> Any:
    """One window; the numbers of the noise depend on its shape only."""
    shape = (*size, image.shape[2])
    (top, left), (height, width) = start, size
    low = max(top, 0), max(left, 0)
    high = min(top + height, image.shape[0]), min(left + width, image.shape[1])
    source = image[low[0] : max(high[0], low[0]), low[1] : max(high[1], low[1])]
    if source.shape == shape:
        return source
    result = _window_noise(image, shape, noise)
    if source.size:
        rows, columns = low[0] - top, low[1] - left
        result[rows : rows + source.shape[0], columns : columns + source.shape[1]] = source
    return result


def _window_noise(image: Any, shape: tuple[int, ...], noise: str) -> Any:
    """The noise of a window of an image, to write to."""
    if noise == "zero":
        return np.zeros(shape, image.dtype)
    few = math.prod(shape) <= _FEW_DRAWN
    drawn = (_few_drawn if few else _drawn)(shape, noise)
    if noise == "uniform" and image.size:
        least = image.min()
        return drawn * (image.max() - least) + least
    return drawn.copy()


def _drawn(shape: tuple[int, ...], noise: str) -> Any:
    """The numbers of the noise of windows of a shape."""
    draw = philox.draw_uniform if noise == "uniform" else philox.draw_normal
    return draw(PhiloxStream(0, 0, 0), math.prod(shape), np.dtype(np.float32)).reshape(shape)


_few_drawn = lru_cache(maxsize=16)(_drawn)
