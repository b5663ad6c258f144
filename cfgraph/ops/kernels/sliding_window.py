"""Sliding windows over an image: positions, patches, and the transpose of patch extraction."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from operator import add, mul
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.names import decode_text
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, ShapeError
from cfgraph.limits import reserve
from cfgraph.ops.opdef.op import OpError

# images and windows of which XLA gathers patches sooner than it convolves
_FEW_WINDOWS: Final = 16
# elements of more patches than these, 256 MiB of float32, are not gathered
_MAX_GATHERED: Final = 1 << 26

Pads = tuple[tuple[int, int], ...]


class ImageLayout(NamedTuple):
    """Position of the channels in a data format; the dimensions after the batch are spatial."""

    rank: int
    channel: int

    @property
    def spatial(self) -> tuple[int, ...]:
        """The spatial dimensions, in order."""
        return tuple(d for d in range(1, self.rank) if d != self.channel)

    def channels_last(self, xp: ModuleType, x: Any) -> Any:
        """Move the channels to the last dimension."""
        return x if self.channel == self.rank - 1 else xp.moveaxis(x, self.channel, -1)

    def restore(self, xp: ModuleType, x: Any) -> Any:
        """Move the channels from the last dimension back to their position."""
        return x if self.channel == self.rank - 1 else xp.moveaxis(x, -1, self.channel)

    def shape_of(self, sizes: Sequence[Any], batch: Any, channels: Any) -> tuple[Any, ...]:
        """Assemble a shape in this format."""
        whole = list(sizes)
        whole.insert(self.channel - 1, channels)
        return (batch, *whole)


def image_layout(node: Node) -> ImageLayout:
    """The axes of a node's `data_format`."""
    text = decode_text(node.attr("data_format"))
    return ImageLayout(len(text), text.index("C"))


class SlidingWindow(NamedTuple):
    """Movement of a window, with one entry per spatial dimension."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: str
    explicit: Pads

    def fit(self, sizes: tuple[int, ...], window: tuple[int, ...]) -> WindowGrid:
        """The grid of windows over an image.

        Raises OpError if no window fits, ExecutionError if the padded image, whose padding and
        dilations come from a file, or a window has more elements than memory has bytes.
        """
        grid = _grid(self, sizes, window)
        reserve(grid.elements, "a padded image or its window")
        return grid

    def extents(self, window: Sequence[int]) -> tuple[int, ...]:
        """The sizes of the dilated window."""
        return tuple((k - 1) * d + 1 for k, d in zip(window, self.dilations, strict=True))

    def output_size_and_padding(
        self, d: int, size: int, extent: int
    ) -> tuple[int, tuple[int, int]]:
        """The output size in one dimension for a dilated window, and the padding at both ends."""
        stride = self.strides[d]
        if self.padding == "SAME":
            count = -(-size // stride)
            missing = max((count - 1) * stride + extent - size, 0)
            return count, (missing // 2, missing - missing // 2)
        pad = self.explicit[d] if self.padding == "EXPLICIT" else (0, 0)
        return int((size + sum(pad) - extent + stride) / stride), pad

    def static_output_size(self, d: int, size: int | None, window: int | None) -> int | None:
        """The output size in one dimension, or None if it depends on an unknown size."""
        if self.padding == "SAME" and size is not None:
            return -(-size // self.strides[d])
        if size is None or window is None:
            return None
        extent = (window - 1) * self.dilations[d] + 1
        if size + sum(self.explicit[d]) < extent:
            raise ShapeError(f"a window of {extent} does not fit into an image of {size}")
        count, _ = self.output_size_and_padding(d, size, extent)
        return count


@lru_cache(maxsize=256)
def _grid(slide: SlidingWindow, sizes: tuple[int, ...], window: tuple[int, ...]) -> WindowGrid:
    out, pads = [], []
    for d, (size, extent) in enumerate(zip(sizes, slide.extents(window), strict=True)):
        count, pad = slide.output_size_and_padding(d, size, extent)
        if count < 0:
            raise OpError(
                f"Computed output size would be negative: {count} "
                f"[input_size: {size}, effective_filter_size: {extent}, "
                f"stride: {slide.strides[d]}]"
            )
        out.append(count)
        pads.append(pad)
    return WindowGrid(slide, tuple(window), tuple(sizes), tuple(out), tuple(pads))


@dataclass(frozen=True)
class WindowGrid:
    """Windows of one size over an image with channels last."""

    slide: SlidingWindow
    window: tuple[int, ...]
    sizes: tuple[int, ...]
    out: tuple[int, ...]
    pads: Pads

    @cached_property
    def is_padded(self) -> bool:
        """True if the image has padding."""
        return any(map(any, self.pads))

    def pad(self, xp: ModuleType, x: Any, value: Any = 0) -> Any:
        """Add the padding of the image."""
        if not self.is_padded:
            return x
        if xp is np:  # np.pad is 10 times slower on small images
            shape = self._padded_shape(x.shape[0], x.shape[-1])
            padded = np.full(shape, value, x.dtype) if value else np.zeros(shape, x.dtype)
            padded[self._interior] = x
            return padded
        rest = ((0, 0),) * (x.ndim - 1 - len(self.pads))
        return xp.pad(x, ((0, 0), *self.pads, *rest), constant_values=value)

    def _padded_shape(self, batch: int, channels: int) -> tuple[int, ...]:
        return (batch, *self._padded_sizes, channels)

    @cached_property
    def _padded_sizes(self) -> tuple[int, ...]:
        return tuple(size + sum(pad) for size, pad in zip(self.sizes, self.pads, strict=True))

    @cached_property
    def elements(self) -> int:
        """The elements of a padded channel of an image, or of a window if it has more."""
        return max(math.prod(self._padded_sizes), math.prod(self.window))

    @cached_property
    def is_mostly_padding(self) -> bool:
        """True if at least half of the padded image is padding."""
        return math.prod(self._padded_sizes) >= 2 * math.prod(self.sizes)

    @cached_property
    def _interior(self) -> tuple[slice, ...]:
        inner = (slice(a, a + n) for (a, _), n in zip(self.pads, self.sizes, strict=True))
        return (slice(None), *inner)

    def views(self) -> tuple[tuple[tuple[int, ...], tuple[slice, ...]], ...]:
        """Each offset in the window, and the slice of the padded image that it covers."""
        return self._views

    @cached_property
    def _views(self) -> tuple[tuple[tuple[int, ...], tuple[slice, ...]], ...]:
        steps = list(zip(self.slide.dilations, self.out, self.slide.strides, strict=True))
        return tuple(
            (
                offset,
                (
                    slice(None),
                    *(
                        slice(p * d, p * d + (n - 1) * s + 1 if n else p * d, s)
                        for p, (d, n, s) in zip(offset, steps, strict=True)
                    ),
                ),
            )
            for offset in itertools.product(*map(range, self.window))
        )

    @cached_property
    def is_pointwise(self) -> bool:
        """True for windows of one element, which need no padding."""
        return not self.is_padded and set(self.window) == {1}

    @cached_property
    def has_unit_strides(self) -> bool:
        """True for windows that move by one element."""
        return set(self.slide.strides) == {1}

    def patches(self, xp: ModuleType, x: Any) -> Any:
        """Extract patches: batch, windows, offsets in the window, channels."""
        padded = self.pad(xp, x)
        if not self.out or 0 in self.window:
            return xp.zeros((x.shape[0], *self.out, 0, x.shape[-1]), dtype=x.dtype)
        if xp.__name__ == "jax.numpy" and x.size and self.has_few_windows(x):
            pixels = padded.reshape((x.shape[0], math.prod(self._padded_sizes), x.shape[-1]))
            return xp.take(pixels, self._covered, axis=1, mode="clip")
        return xp.stack([padded[view] for _, view in self.views()], axis=-2)

    def has_few_windows(self, x: Any) -> bool:
        """True for so few windows, or such small images, that XLA convolves them slowly.

        If a window has more elements than an image, XLA exchanges the two, and computes that in a
        plain loop, which needs no memory for patches.
        """
        windows, offsets = x.shape[0] * math.prod(self.out), math.prod(self.window)
        is_wide = offsets > math.prod(self.sizes)
        is_small = windows * offsets * x.shape[-1] <= _MAX_GATHERED
        return windows <= _FEW_WINDOWS or (is_wide and is_small)

    @cached_property
    def _covered(self) -> Any:
        """Positions of pixels in a padded image: windows, offsets in the window."""
        sizes = self._padded_sizes
        pixels = np.arange(math.prod(sizes)).reshape((1, *sizes))
        return np.stack([pixels[view][0] for _, view in self.views()], axis=-1)

    def rows(self, xp: ModuleType, x: Any) -> Any:
        """The patches of a nonempty image as rows of a matrix."""
        if self.is_pointwise:
            image = x if self.has_unit_strides else x[self.views()[0][1]]
            return image.reshape((-1, x.shape[-1]))
        if xp is not np or 0 in self.out or 0 in self.window:
            width = x.shape[-1] * math.prod(self.window)
            windows = x.shape[0] * math.prod(self.out)
            return self.patches(xp, x).reshape((windows, width))
        windows = self.window_view(x)
        return windows.reshape((-1, x.shape[-1] * math.prod(self.window)))

    def window_view(self, x: Any) -> Any:
        """A view of the windows of a NumPy image: batch, windows, offsets, channels."""
        padded = _in_order(self.pad(np, x))
        batch, pixel, channel = padded.strides[0], padded.strides[-2], padded.strides[-1]
        strides = (batch, *[step * pixel for step in self._steps], channel)
        shape = (x.shape[0], *self.out, *self.window, x.shape[-1])
        return np.ndarray(shape, padded.dtype, padded, 0, strides)

    def row_view(self, x: Any) -> Any:
        """The windows of a NumPy image by whole rows: batch, other windows, offsets, row.

        A row has the elements of all windows along the last dimension at one offset there. They are
        copied unless the windows move by one.
        """
        image = _in_order(self.pad(np, x))
        *outer, pixel, channel = image.strides
        offset, step = (n[-1] * pixel for n in (self.slide.dilations, self.slide.strides))
        if step != pixel:
            sizes = (*image.shape[:-2], self.window[-1], self.out[-1], x.shape[-1])
            rows = np.ndarray(sizes, image.dtype, image, 0, (*outer, offset, step, channel))
            image = _in_order(rows)
            *outer, offset, _, channel = image.strides
        batch, *outer = outer
        steps = *map(mul, self.slide.strides, outer), *map(mul, self.slide.dilations, outer)
        shape = (len(x), *self.out[:-1], *self.window, self.out[-1] * x.shape[-1])
        return np.ndarray(shape, image.dtype, image, 0, (batch, *steps, offset, channel))

    @cached_property
    def _steps(self) -> tuple[int, ...]:
        """Pixels between neighboring windows, and between offsets in one, per dimension."""
        sizes = self._padded_sizes
        pixels = [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]
        factors = (*self.slide.strides, *self.slide.dilations)
        return tuple(map(mul, factors, [*pixels, *pixels]))

    def spread(self, xp: ModuleType, patches: Any) -> Any:
        """Add patches into an image: the transpose of `patches`."""
        parts = (patches[..., index, :] for index in range(len(self.views())))
        return self.spread_views(xp, parts, patches.shape[0], patches.shape[-1], patches.dtype)

    def spread_views(
        self, xp: ModuleType, parts: Iterable[Any], batch: int, channels: int, dtype: Any
    ) -> Any:
        """Add one array per offset in the window into an image: the transpose of `views`.

        Traced code adds padded arrays in one pass instead of one per offset.
        """
        if xp.__name__ == "jax.numpy" and 0 not in (*self.out, *self.window):
            return reduce(add, map(self._padded_part, self.views(), parts))
        padded = xp.zeros(self._padded_shape(batch, channels), dtype=dtype)
        for (_, view), part in zip(self.views(), parts, strict=False):
            padded = add_at(padded, view, part)
        return self.crop(padded)

    def _padded_part(self, view: tuple[tuple[int, ...], tuple[slice, ...]], part: Any) -> Any:
        """A traced array at the positions of a view of the image, with zeros between them."""
        from jax import lax

        padding = [(0, 0, 0)]
        for where, count, size, (before, _) in zip(
            view[1][1:], self.out, self.sizes, self.pads, strict=True
        ):
            first = where.start - before
            last = first + (count - 1) * where.step
            padding.append((first, size - 1 - last, where.step - 1))
        return lax.pad(part, np.zeros((), part.dtype), [*padding, (0, 0, 0)])

    def spread_rows(self, xp: ModuleType, patches: Any) -> Any:
        """As `spread`, for windows that may be of one element."""
        if self.is_pointwise and self.has_unit_strides:
            return patches.reshape((patches.shape[0], *self.sizes, patches.shape[-1]))
        return self.spread(xp, patches)

    def mirrored(self) -> WindowGrid | None:
        """The windows over the outputs that cover each element of the image.

        None for strides, and for padding that is wider than the window.
        """
        slide = self._mirrored_slide
        return None if slide is None else slide.fit(self.out, self.window)

    @cached_property
    def _mirrored_slide(self) -> SlidingWindow | None:
        reach = [extent - 1 for extent in self.slide.extents(self.window)]
        pads = tuple(
            (size - before, size - after)
            for size, (before, after) in zip(reach, self.pads, strict=True)
        )
        if not self.has_unit_strides or any(min(pad) < 0 for pad in pads):
            return None
        return self.slide._replace(padding="EXPLICIT", explicit=pads)

    def crop(self, padded: Any) -> Any:
        """Remove the padding of the image."""
        return padded[self._interior] if self.is_padded else padded


def _in_order(x: Any) -> Any:
    """A contiguous array whose strides follow from its shape.

    A dimension of size 1 may have any stride, as one that indexing has added has 0.
    """
    whole = np.ascontiguousarray(x)
    return np.ndarray(whole.shape, whole.dtype, whole)


def add_at(target: Any, where: Any, value: Any) -> Any:
    """Add a value to a region of an array, in place if the array is mutable."""
    if hasattr(target, "at"):
        return target.at[where].add(value)
    target[where] += value
    return target


def sliding_window(
    node: Node, layout: ImageLayout, strides: Any = None, dilations: Any = None
) -> SlidingWindow:
    """Read the window movement of a node from its attributes."""
    steps = node.attr("strides") if strides is None else strides
    dilations = dilations or (1,) * layout.rank
    padding = decode_text(node.attr("padding"))
    flat = node.attr("explicit_paddings") if padding == "EXPLICIT" else (0,) * 2 * layout.rank
    _require_size("strides", steps, layout.rank)
    _require_size("dilations", dilations, layout.rank)
    _require_size("explicit_paddings", flat, 2 * layout.rank)
    for name, sizes in (("strides", steps), ("dilations", dilations)):
        if any(size < 1 for size in sizes):
            raise OpError(f"{name} must be positive, got {list(sizes)}")
        _require_neutral(name, sizes, 1, layout)
    _require_neutral(
        "padding", [max(flat[2 * d : 2 * d + 2]) for d in range(layout.rank)], 0, layout
    )
    return SlidingWindow(
        tuple(int(steps[d]) for d in layout.spatial),
        tuple(dilations[d] for d in layout.spatial),
        padding,
        tuple((flat[2 * d], flat[2 * d + 1]) for d in layout.spatial),
    )


def _require_neutral(name: str, sizes: Sequence[int], neutral: int, layout: ImageLayout) -> None:
    """Raise OpError for a number of the batch or depth dimension that changes these."""
    if any(size != neutral for d, size in enumerate(sizes) if d not in layout.spatial):
        message = f"{name} in the batch and depth dimensions are not supported, got {list(sizes)}"
        raise OpError(message)


def _require_size(name: str, sizes: Sequence[int], expected: int) -> None:
    if len(sizes) != expected:
        raise OpError(f"{name} has {len(sizes)} numbers, expected {expected}")


def windowed_shape(
    layout: ImageLayout, slide: SlidingWindow, image: Shape, window: Any, channels: Any
) -> Shape:
    """The static shape of an output with one value per window."""
    dims = image.dims
    if dims is None:
        dims = (None,) * layout.rank
    if len(dims) != layout.rank:
        return UNKNOWN_SHAPE
    sizes = [
        slide.static_output_size(d, dims[axis], window[d]) for d, axis in enumerate(layout.spatial)
    ]
    return Shape(layout.shape_of(sizes, dims[0], channels))
