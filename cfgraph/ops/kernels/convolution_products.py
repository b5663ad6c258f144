"""Convolutions and their transposes as matrix products, or per offset of a depthwise window."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ops.kernels.matrix_products import multiply
from cfgraph.ops.kernels.sliding_window import WindowGrid

# elements of a block of images, and of a block of patches
_BLOCK: Final = 1 << 16
_PATCH_BLOCK: Final = 3 << 16
# channels from which sums over windows, and over pixels, are faster by pixels than by rows
_WIDE: Final = 32
_WIDE_PIXEL: Final = 128
# channels from which XLA's convolution is faster than its product of windows; of its transpose
_XLA_CHANNELS: Final = 16
_XLA_FILTER_CHANNELS: Final = 32
# offsets in a window from which XLA takes long to compile, and to run, such a product
_XLA_OFFSETS: Final = 25
# offsets up to which such a product is as fast
_FEW_OFFSETS: Final = 3


def convolve(xp: ModuleType, fit: WindowGrid, x: Any, w: Any) -> Any:
    """Convolve an image (channels last) with a grouped filter."""
    depth, filters = w.shape[-2:]
    if _is_depthwise(x.shape[-1], depth, filters):
        return _convolve_depthwise(xp, fit, x, w)
    if depth == x.shape[-1] and x.size:
        if xp is not np and _is_faster_by_xla(xp, fit, x, w.dtype, _XLA_CHANNELS):
            return _convolve_by_xla(fit, x, w)
        if _has_large_patches(xp, fit, x, filters):
            return _convolve_in_blocks(fit, x, w)
        product = multiply(fit.rows(xp, x), w.reshape((-1, filters)))
        return product.reshape((x.shape[0], *fit.out, filters))
    product = _patches_by_group(xp, fit.patches(xp, x), depth) @ _filter_by_group(
        w, x.shape[-1] // max(depth, 1)
    )
    return xp.moveaxis(product, 0, 1).reshape((x.shape[0], *fit.out, filters))


def convolve_input(xp: ModuleType, fit: WindowGrid, channels: int, w: Any, dy: Any) -> Any:
    """Transpose of `convolve` with respect to the image."""
    depth, filters = w.shape[-2:]
    depthwise = _is_depthwise(channels, depth, filters)
    if (depthwise or depth == channels) and dy.size and math.prod(fit.window) > 1:
        mirrored = fit.mirrored()
        if mirrored is not None:
            turned = w[(slice(None, None, -1),) * len(fit.window)]
            return convolve(xp, mirrored, dy, turned if depthwise else turned.swapaxes(-2, -1))
    if depthwise:
        return _spread_depthwise(xp, fit, w, dy)
    if depth == channels and dy.size:
        product = multiply(dy.reshape((-1, filters)), w.reshape((-1, filters)).T)
        return fit.spread_rows(xp, product.reshape((*dy.shape[:-1], -1, channels)))
    groups = channels // max(depth, 1)
    product = _outputs_by_group(xp, dy, groups) @ xp.swapaxes(_filter_by_group(w, groups), 1, 2)
    window_size = math.prod(fit.window)
    patches = product.reshape((groups, -1 if dy.size else 0, window_size, depth))
    patches = xp.moveaxis(patches, 0, 2)
    return fit.spread(xp, patches.reshape((*dy.shape[:-1], window_size, channels)))


def convolve_filter(xp: ModuleType, fit: WindowGrid, x: Any, depth: int, dy: Any) -> Any:
    """Transpose of `convolve` with respect to the filter."""
    filters = dy.shape[-1]
    if _is_depthwise(x.shape[-1], depth, filters) and dy.size and 0 not in fit.window:
        return _correlate_depthwise(xp, fit, x, dy)
    if depth == x.shape[-1] and dy.size:
        if _is_faster_by_xla(xp, fit, x, dy.dtype, _XLA_FILTER_CHANNELS):
            return _convolve_filter_by_xla(fit, x, dy)
        if _has_large_patches(xp, fit, x, filters):
            blocks = _patch_blocks(fit, x)
            product = sum(rows.T @ dy[block].reshape((-1, filters)) for block, rows in blocks)
        else:
            product = fit.rows(xp, x).T @ dy.reshape((-1, filters))
        return product.reshape((*fit.window, depth, filters))
    groups = x.shape[-1] // depth
    patches = _patches_by_group(xp, fit.patches(xp, x), depth)
    product = xp.swapaxes(patches, 1, 2) @ _outputs_by_group(xp, dy, groups)
    window_size = math.prod(fit.window)
    split = product.reshape((groups, window_size, depth, filters // max(groups, 1)))
    return xp.moveaxis(split, 0, 2).reshape((*fit.window, depth, filters))


def _has_large_patches(xp: ModuleType, fit: WindowGrid, x: Any, filters: int) -> bool:
    """True for patches that leave the cache before they are multiplied by few weights.

    BLAS copies all of the weights for each block.
    """
    width = math.prod(fit.window) * x.shape[-1]
    patches = len(x) * math.prod(fit.out) * width
    is_large = patches > 2 * _PATCH_BLOCK and 0 < width * filters <= _PATCH_BLOCK
    return xp is np and is_large and not fit.is_pointwise


def _patch_blocks(fit: WindowGrid, x: Any) -> Iterator[tuple[tuple[slice, ...], Any]]:
    """Blocks of windows, and the patches there as rows of a matrix."""
    windows, width = fit.window_view(x), math.prod(fit.window) * x.shape[-1]
    for block in _blocks((len(x), *fit.out, width), _PATCH_BLOCK):
        yield block, windows[block].reshape((-1, width))


def _convolve_in_blocks(fit: WindowGrid, x: Any, w: Any) -> Any:
    filters = w.shape[-1]
    result = np.empty((len(x), *fit.out, filters), np.result_type(x, w))
    for block, patches in _patch_blocks(fit, x):
        out = result[block].reshape((-1, filters))
        np.matmul(patches, w.reshape((-1, filters)), out=out)
    return result


def _is_faster_by_xla(xp: ModuleType, fit: WindowGrid, x: Any, dtype: Any, channels: int) -> bool:
    """True for traced images that XLA's own convolution computes faster than a product of windows.

    XLA has a fast one for 2-dimensional images of float32.
    """
    offsets = math.prod(fit.window)
    return (
        xp.__name__ == "jax.numpy"
        and len(fit.window) == 2
        and x.dtype == dtype == np.float32
        and 0 not in fit.out
        and not fit.has_few_windows(x)
        and (offsets > _XLA_OFFSETS or (offsets > _FEW_OFFSETS and x.shape[-1] >= channels))
    )


def _convolve_by_xla(fit: WindowGrid, x: Any, w: Any) -> Any:
    """XLA's own convolution, which vectorizes over the last spatial dimension."""
    from jax import lax, numpy

    padding = fit.pads
    if fit.is_mostly_padding:  # computed with, which is slow where it is implicit
        x, padding = fit.pad(numpy, x), ((0, 0), (0, 0))
    order = (1, 0) if fit.sizes[1] == 1 else (0, 1)
    strides, dilations, pads = (
        [pair[d] for d in order] for pair in (fit.slide.strides, fit.slide.dilations, padding)
    )
    image = (0, 3, *(d + 1 for d in order))
    dimensions = lax.ConvDimensionNumbers(image, (3, 2, *order), image)
    return lax.conv_general_dilated(
        x, w, strides, pads, rhs_dilation=dilations, dimension_numbers=dimensions
    )


def _convolve_filter_by_xla(fit: WindowGrid, x: Any, dy: Any) -> Any:
    """The transpose of XLA's own convolution with respect to the filter."""
    import jax

    w = jax.ShapeDtypeStruct((*fit.window, x.shape[-1], dy.shape[-1]), dy.dtype)
    (dw,) = jax.linear_transpose(partial(_convolve_by_xla, fit, x), w)(dy)
    return dw


def _is_depthwise(channels: int, depth: int, filters: int) -> bool:
    return depth == 1 and channels == filters > 1


def _convolve_depthwise(xp: ModuleType, fit: WindowGrid, x: Any, w: Any) -> Any:
    """Sum, over the offsets of the window, of the image there times the filter there."""
    channels = x.shape[-1]
    if xp is np and x.size and 0 not in (*fit.window, *fit.out):
        windows, image, offsets, row = _depthwise_windows(fit, x, _WIDE_PIXEL)
        weights = w.reshape((*fit.window, 1, channels))
        if windows.shape[-1] != channels:
            weights = _repeated_weights(weights, fit.out[-1])
        weights = weights.reshape((*fit.window, -1))
        parts = windows, [*image, *offsets, row], weights, [*offsets, row]
        return np.einsum(*parts, [*image, row]).reshape((len(x), *fit.out, channels))
    padded, weights = fit.pad(xp, x), w.reshape((-1, 1, channels))
    products = (
        padded[view] * factor for (_, view), factor in zip(fit.views(), weights, strict=True)
    )
    return sum(products, start=next(products))


def _repeated_weights(weights: Any, count: int) -> Any:
    """Weights repeated along the last spatial dimension, so that NumPy multiplies whole rows."""
    repeated = np.empty((*weights.shape[:-2], count, weights.shape[-1]), weights.dtype)
    repeated[...] = weights
    return repeated


def _depthwise_windows(fit: WindowGrid, x: Any, wide: int) -> tuple[Any, list[int], list[int], int]:
    """Windows by the channels of a pixel if these are many, or else by rows.

    Also labels of their dimensions: of the image, of offsets, and of channels or rows.
    """
    is_wide, rank = x.shape[-1] >= wide, len(fit.window)
    first, last = rank + is_wide, 2 * rank + is_wide
    windows = fit.window_view(x) if is_wide else fit.row_view(x)
    return windows, list(range(first)), list(range(first, last)), last


def _blocks(shape: tuple[int, ...], elements: int) -> Iterator[tuple[slice, ...]]:
    """Whole images, or rows of one, that stay in the cache while a window moves over them."""
    images, rows, *row = shape
    size = max(1, elements // max(1, math.prod(row)))
    step, size = max(1, size // max(1, rows)), min(size, rows) or 1
    for first in range(0, images, step):
        for start in range(0, rows, size):
            yield slice(first, first + step), slice(start, start + size)


def _spread_depthwise(xp: ModuleType, fit: WindowGrid, w: Any, dy: Any) -> Any:
    weights = w.reshape((-1, 1, w.shape[-1]))
    if xp is np:
        weights = _repeated_weights(weights, fit.out[-1])
    parts = (dy * weight for weight in weights)
    return fit.spread_views(xp, parts, dy.shape[0], dy.shape[-1], dy.dtype)


def _correlate_depthwise(xp: ModuleType, fit: WindowGrid, x: Any, dy: Any) -> Any:
    channels = x.shape[-1]
    if xp is np:
        windows, image, offsets, row = _depthwise_windows(fit, x, _WIDE)
        rows = dy.reshape((*windows.shape[: len(image)], -1))
        total = np.zeros((*fit.window, rows.shape[-1]), dy.dtype)
        for block in _blocks(rows.shape, _BLOCK):
            parts = windows[block], [*image, *offsets, row], rows[block], [*image, row]
            total += np.einsum(*parts, [*offsets, row])
        if rows.shape[-1] != channels:
            total = np.add.reduce(total.reshape((*fit.window, -1, channels)), -2)
        return total.reshape((*fit.window, 1, channels))
    padded = fit.pad(xp, x)
    ones = xp.ones((1, dy.size // channels), dtype=dy.dtype)
    sums = [ones @ (padded[view] * dy).reshape((-1, channels)) for _, view in fit.views()]
    return xp.concatenate(sums).reshape((*fit.window, 1, channels))


def _patches_by_group(xp: ModuleType, patches: Any, depth: int) -> Any:
    """Patches as one matrix per group, of shape (windows, window size * depth)."""
    window_size, channels = patches.shape[-2:]
    groups, windows = channels // max(depth, 1), math.prod(patches.shape[:-2])
    split = patches.reshape((windows, window_size, groups, depth))
    return xp.moveaxis(split, 2, 0).reshape((groups, windows, window_size * depth))


def _filter_by_group(w: Any, groups: int) -> Any:
    """Filter as one matrix per group, of shape (window size * depth, filters per group)."""
    rows, filters = math.prod(w.shape[:-1]), w.shape[-1]
    return w.reshape((rows, groups, filters // max(groups, 1))).transpose((1, 0, 2))


def _outputs_by_group(xp: ModuleType, dy: Any, groups: int) -> Any:
    """Outputs as one matrix per group, of shape (windows, filters per group)."""
    windows = math.prod(dy.shape[:-1])
    return xp.moveaxis(dy.reshape((windows, groups, dy.shape[-1] // max(groups, 1))), 1, 0)
