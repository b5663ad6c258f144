"""Convolution, pooling, resizing, and normalization of quantized images."""

from __future__ import annotations

from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.division import truncated_quotient
from cfgraph.ops.families.max_pooling import window_maximum
from cfgraph.ops.families.pooling import Pooling, window_counts
from cfgraph.ops.families.quantized_arithmetic import (
    QUANTIZED_TYPES,
    QuantizedOp,
    integer_product,
    with_range,
)
from cfgraph.ops.families.resizing import ResizeGrid, ResizeOp, size_of_resized
from cfgraph.ops.kernels.quantized_numbers import interval, product_interval
from cfgraph.ops.kernels.sliding_window import ImageLayout, sliding_window, windowed_shape
from cfgraph.ops.opdef.op import OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank

_IMAGE: Final = ImageLayout(4, 3)


def _square_stride(node: Node) -> int:
    """The stride of both dimensions. Raises OpError for others."""
    strides = [int(stride) for stride in node.attr("strides")]
    if len(strides) != 4 or strides != [1, strides[1], strides[1], 1] or strides[1] < 1:
        raise OpError(f"strides must be [1, n, n, 1], got {strides}")
    return strides[1]


class QuantizedConv2D(QuantizedOp):
    """Convolution of a quantized image with a quantized filter, as int32."""

    signature = (
        "input: Tinput, filter: Tfilter, min_input: float32, max_input: float32, "
        "min_filter: float32, max_filter: float32 "
        "-> output: out_type, min_output: float32, max_output: float32"
    )
    attrs = (
        f"Tinput: {QUANTIZED_TYPES}, Tfilter: {QUANTIZED_TYPES}, "
        f"out_type: {QUANTIZED_TYPES} = qint32, strides: list(int), "
        "padding: {'SAME', 'VALID'}, dilations: list(int) = [1, 1, 1, 1]"
    )
    kernel_types: ClassVar = {"Tinput": ["quint8"], "Tfilter": ["quint8"], "out_type": ["qint32"]}
    stride = _square_stride

    @staticmethod
    def kernel(xp: ModuleType, stride: int, padding: bytes, /, x: Any, w: Any, *bounds: Any) -> Any:
        if x.ndim != 4 or w.ndim != 4 or x.shape[3] != w.shape[2]:
            raise OpError(f"input {list(x.shape)} and filter {list(w.shape)} do not fit")
        source, weights = interval(x.dtype, *bounds[:2]), interval(w.dtype, *bounds[2:])
        patches = _patches(x, w.shape[:2], stride, source.offset, same=padding == b"SAME")
        shape = (*patches.shape[:3], w.shape[3])
        if 0 in shape:
            raise OpError(f"the output of shape {list(shape)} is empty")
        rows, columns = patches.reshape(-1, w[..., 0].size), w.reshape(-1, w.shape[3])
        products = integer_product(rows, columns, source.offset, weights.offset)
        return with_range(products.reshape(shape), product_interval(source, weights))

    @classmethod
    def first_shape(cls, context: InferenceContext) -> Shape:
        image, w = (require_rank(shape, 4) for shape in context.inputs[:2])
        window = tuple(w)
        require_rank(image, 4)[3:].merge(w[2:3])
        slide = sliding_window(context.node, _IMAGE)
        return windowed_shape(_IMAGE, slide, image, window, window[-1])


def _patches(x: Any, window: tuple[int, int], stride: int, offset: Any, *, same: bool) -> Any:
    """The patches below windows: batch, rows, columns, and the elements of a window.

    Unlike those of `Conv2D`, windows that do not cover the image are centered. An offset beyond a
    byte pads with its last byte; below zero, padding adds nothing.
    """
    padded = x if offset >= 0 else x.astype(np.int64)
    value = np.uint8(int(offset) & 255) if offset >= 0 else int(offset)
    for axis, extent in zip((1, 2), window, strict=True):
        size = x.shape[axis]
        count = -(-size // stride) if same else (size - extent + stride) // stride
        missing = (count - 1) * stride + extent - size
        before = int((missing if same else missing + 1) / 2)
        first, last = max(-before, 0), size - max(before - missing, 0)
        pads = [(0, 0)] * 4
        pads[axis] = (max(before, 0), max(missing - before, 0))
        covered = np.take(padded, np.arange(first, last), axis)
        padded = np.pad(covered, pads, constant_values=value)
    windows = np.lib.stride_tricks.sliding_window_view(padded, window, (1, 2))
    return windows[:, ::stride, ::stride].transpose(0, 1, 2, 4, 5, 3)


class _QuantizedPooling(Pooling, QuantizedOp, abstract=True):
    """A reduction over sliding windows of a quantized image."""

    signature = (
        "input: T, min_input: float32, max_input: float32 "
        "-> output: T, min_output: float32, max_output: float32"
    )
    attrs = (
        f"T: {QUANTIZED_TYPES}, ksize: list(int), strides: list(int), padding: {{'SAME', 'VALID'}}"
    )
    kernel_types: ClassVar = {"T": ["quint8"]}

    @classmethod
    def first_shape(cls, context: InferenceContext) -> Shape:
        return cls.pooled(context, context.inputs[0], cls.window(context.node))


class QuantizedMaxPool(_QuantizedPooling):
    """Maximum of each window of a quantized image."""

    @staticmethod
    def kernel(xp: ModuleType, window: Any, /, x: Any, low: Any, high: Any) -> Any:
        return with_range(window_maximum(np, window, x), interval(x.dtype, low, high))


class QuantizedAvgPool(_QuantizedPooling):
    """Mean of each window of a quantized image, rounded down."""

    operation = "AvgPooling"

    @staticmethod
    def kernel(xp: ModuleType, flat_window: Any, /, x: Any, low: Any, high: Any) -> Any:
        grid = flat_window.fit(x)
        padded = grid.pad(np, x)
        total = np.zeros((x.shape[0], *grid.out, x.shape[-1]), np.int32)
        for _, view in grid.views():
            total += padded[view]
        means = total // window_counts(grid, np.int32)
        return with_range(means.astype(x.dtype), interval(x.dtype, low, high))


class QuantizedResizeBilinear(QuantizedOp):
    """Quantized images resized by bilinear interpolation, integers in fixed-point numbers."""

    signature = (
        "images: T, size: host int32, min: float32, max: float32 "
        "-> resized_images: T, out_min: float32, out_max: float32"
    )
    attrs = (
        "T: {quint8, qint32, float32}, align_corners: bool = false, "
        "half_pixel_centers: bool = false"
    )
    grid = ResizeGrid

    @staticmethod
    def kernel(xp: ModuleType, grid: Any, T: DType, /, x: Any, size: Any, *bounds: Any) -> Any:
        shape = size_of_resized(x, size)
        source = interval(np.uint8, *bounds)
        if shape == x.shape[1:3]:
            return with_range(x, source)
        rows, columns = grid.between(x.shape[1], shape[0]), grid.between(x.shape[2], shape[1])
        blend = _blend_floats if T.name == "float32" else _blend_integers
        return with_range(blend(x, rows, columns), source)

    @classmethod
    def first_shape(cls, context: InferenceContext) -> Shape:
        return ResizeOp.shape(context)[0]


def _corners(x: Any, rows: Any, columns: Any) -> list[Any]:
    """The four pixels next to each pixel of the result: top left and right, bottom left, right."""
    return [np.take(np.take(x, row, 1), column, 2) for row in rows[:2] for column in columns[:2]]


def _blend_floats(x: Any, rows: Any, columns: Any) -> Any:
    """Interpolate floats."""
    top_left, top_right, bottom_left, bottom_right = _corners(x, rows, columns)
    along = columns[2][:, None]
    top = top_left + (top_right - top_left) * along
    bottom = bottom_left + (bottom_right - bottom_left) * along
    return top + (bottom - top) * rows[2][:, None, None]


def _blend_integers(x: Any, rows: Any, columns: Any) -> Any:
    """Interpolate integers: bytes with 7 bits of fraction, others, as float32, with 30.

    Divisions round toward zero.
    """
    bits, wide = (7, np.int16) if x.dtype == np.uint8 else (30, np.int64)
    one, scale = wide(1 << bits), np.float32(1 << bits)
    across, along = ((item[2] * scale).astype(wide) for item in (rows, columns))
    corners = _corners(x.astype(np.float32).astype(wide), rows, columns)
    top_left, top_right, bottom_left, bottom_right = corners
    top = top_left * one + (top_right - top_left) * along[:, None]
    bottom = bottom_left * one + (bottom_right - bottom_left) * along[:, None]
    blended = top + truncated_quotient(bottom - top, one) * across[:, None, None]
    return truncated_quotient(blended + one // wide(2), one).astype(x.dtype)
