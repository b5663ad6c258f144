"""A convolution as one product of matrices a group of channels, and its two transposes."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

from cfgraph.ops.op import OpError
from cfgraph.ops.window import Fit


def convolve(xp: ModuleType, fit: Fit, x: Any, w: Any) -> Any:
    """The image, channels last, convolved with a grouped filter."""
    depth, filters = w.shape[-2:]
    product = _by_group(xp, fit.patches(xp, x), depth) @ _filter_by_group(
        w, x.shape[-1] // max(depth, 1)
    )
    return xp.moveaxis(product, 0, 1).reshape((x.shape[0], *fit.out, filters))


def convolve_input(xp: ModuleType, fit: Fit, channels: int, w: Any, dy: Any) -> Any:
    """The transpose of `convolve` in its image."""
    depth = w.shape[-2]
    groups = channels // max(depth, 1)
    product = _outputs_by_group(xp, dy, groups) @ xp.swapaxes(_filter_by_group(w, groups), 1, 2)
    places = math.prod(fit.window)
    patches = product.reshape((groups, -1 if dy.size else 0, places, depth))
    patches = xp.moveaxis(patches, 0, 2)
    return fit.spread(xp, patches.reshape((*dy.shape[:-1], places, channels)))


def convolve_filter(xp: ModuleType, fit: Fit, x: Any, depth: int, dy: Any) -> Any:
    """The transpose of `convolve` in its filter."""
    groups = x.shape[-1] // depth
    patches = _by_group(xp, fit.patches(xp, x), depth)
    product = xp.swapaxes(patches, 1, 2) @ _outputs_by_group(xp, dy, groups)
    filters = dy.shape[-1]
    places = math.prod(fit.window)
    split = product.reshape((groups, places, depth, filters // max(groups, 1)))
    return xp.moveaxis(split, 0, 2).reshape((*fit.window, depth, filters))


def _by_group(xp: ModuleType, patches: Any, depth: int) -> Any:
    """The patches as one matrix a group: windows by places and depth."""
    places, channels = patches.shape[-2:]
    groups, windows = channels // max(depth, 1), math.prod(patches.shape[:-2])
    split = patches.reshape((windows, places, groups, depth))
    return xp.moveaxis(split, 2, 0).reshape((groups, windows, places * depth))


def _filter_by_group(w: Any, groups: int) -> Any:
    """The filter as one matrix a group: places and depth by outputs."""
    rows, filters = math.prod(w.shape[:-1]), w.shape[-1]
    return w.reshape((rows, groups, filters // max(groups, 1))).transpose((1, 0, 2))


def _outputs_by_group(xp: ModuleType, dy: Any, groups: int) -> Any:
    """The outputs as one matrix a group: windows by outputs."""
    windows = math.prod(dy.shape[:-1])
    return xp.moveaxis(dy.reshape((windows, groups, dy.shape[-1] // max(groups, 1))), 1, 0)


def check_ranks(rank: int, *arrays: Any) -> None:
    """Refuse arrays of another rank."""
    for array in arrays:
        if array.ndim != rank:
            message = f"inputs must be {rank}-dimensional: {list(array.shape)}"
            raise OpError(message)


def check_depths(channels: int, w: Any) -> None:
    """Refuse a filter whose depth or number does not divide into the image's channels."""
    depth, filters = w.shape[-2:]
    if w.size == 0:
        message = "filter must not have zero elements (i.e. all dimensions must be non-zero)"
        raise OpError(message)
    if channels % depth:
        message = f"input depth must be evenly divisible by filter depth: {channels} vs {depth}"
        raise OpError(message)
    if channels and filters % (channels // depth):
        message = (
            "output depth must be evenly divisible by number of groups: "
            f"{filters} vs {channels // depth}"
        )
        raise OpError(message)


def check_gradient(dy: Any, want: tuple[int, ...]) -> None:
    """Refuse an output gradient of another shape than the output's (channels last)."""
    if tuple(dy.shape) != want:
        message = f"out_backprop has shape {list(dy.shape)}, the output has {list(want)}"
        raise OpError(message)
