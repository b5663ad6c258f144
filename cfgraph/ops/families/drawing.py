"""Bounding boxes drawn on images."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cfgraph.ops.kernels.array_namespace import on_host
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import no_gradient
from cfgraph.ops.opdef.op import OpError, SameShape

# red, green, blue, and opacity of the boxes in turn, where no colors are named
_COLORS: Final = (
    (1, 1, 0, 1),
    (0, 0, 1, 1),
    (1, 0, 0, 1),
    (0, 1, 0, 1),
    (0.5, 0, 0.5, 1),
    (0.5, 0.5, 0, 1),
    (0.5, 0, 0, 1),
    (0, 0, 0.5, 1),
    (0, 1, 1, 1),
    (1, 0, 1, 1),
)


def draw_boxes(images: Any, boxes: Any, colors: Any = None) -> Any:
    """Images with an outline per box. Raises OpError for shapes that do not fit."""
    if images.ndim != 4 or images.shape[3] not in (1, 3, 4):
        message = f"images must be 4-D with 1, 3, or 4 channels, got shape {list(images.shape)}"
        raise OpError(message)
    if boxes.ndim != 3 or boxes.shape[2] != 4 or len(boxes) != len(images):
        raise OpError(f"boxes must have shape [{len(images)}, n, 4], got {list(boxes.shape)}")
    depth = images.shape[3]
    table = _color_table(colors, depth).astype(images.dtype)
    result = images.copy()
    last = np.array(images.shape[1:3], np.float32) - 1
    scaled = boxes.reshape(*boxes.shape[:2], 2, 2) * last
    finite = np.isfinite(scaled).all(axis=(2, 3))
    corners = np.trunc(np.where(finite[..., None, None], scaled, 0)).astype(np.int64)
    for image, ends, drawn in zip(result, corners.tolist(), finite.tolist(), strict=True):
        for place, (low, high) in enumerate(ends):
            if drawn[place]:
                _outline(image, low, high, table[place % len(table)])
    return result


def _color_table(colors: Any, depth: int) -> Any:
    """A row of channel values per color."""
    if colors is None or not colors.size:
        table = np.array(_COLORS, np.float32)
        if depth == 1:
            table[:, 0] = 1
        return table[:, :depth]
    if colors.ndim != 2 or colors.shape[1] < depth:
        raise OpError(f"colors must be 2-D with {depth} channels, got shape {list(colors.shape)}")
    return colors[:, :depth]


def _outline(image: Any, low: list[int], high: list[int], color: Any) -> None:
    """Draw the sides of a box that lie inside an image."""
    (top, left), (bottom, right) = low, high
    height, width = image.shape[:2]
    if top > bottom or left > right or top >= height or left >= width or bottom < 0 or right < 0:
        return
    rows = slice(max(top, 0), min(bottom, height - 1) + 1)
    columns = slice(max(left, 0), min(right, width - 1) + 1)
    if top >= 0:
        image[top, columns] = color
    if bottom < height:
        image[bottom, columns] = color
    if left >= 0:
        image[rows, left] = color
    if right < width:
        image[rows, right] = color


class DrawBoundingBoxes(SameShape):
    """Images with boxes drawn in ten colors."""

    signature = "images: T, boxes: float32 -> output: T"
    attrs = "T: {float32, float16} = float32"
    compilation = CompilerSupport(traceable=False)
    gradient = staticmethod(no_gradient)
    function, adapter = staticmethod(draw_boxes), on_host


class DrawBoundingBoxesV2(SameShape):
    """Images with boxes drawn in the colors of a table."""

    signature = "images: T, boxes: float32, colors: float32 -> output: T"
    attrs = "T: {float32, float16} = float32"
    compilation = CompilerSupport(traceable=False)
    function, adapter = staticmethod(draw_boxes), on_host
