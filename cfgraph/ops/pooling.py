"""What the pooling ops share: the window of a node, and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Op, OpError
from cfgraph.ops.window import Axes, Fit, Slide, axes, output_shape, slide


class Pooling(Op, abstract=True):
    """An op that summarises what each window sees, channel by channel."""

    rank: ClassVar[int] = 4

    @classmethod
    def layout(cls, node: Node) -> Axes:
        """Where the image keeps its channels."""
        has_format = "data_format" in cls.parsed().attrs
        return axes(node) if has_format else Axes(cls.rank, cls.rank - 1)

    @classmethod
    def window(cls, node: Node, sizes: Any = None, strides: Any = None) -> Window:
        """The window, from attributes or, where they are given, from inputs."""
        layout = cls.layout(node)
        sizes = node.attr("ksize") if sizes is None else sizes
        steps = node.attr("strides") if strides is None else strides
        sizes, steps = [int(n) for n in sizes], [int(n) for n in steps]
        if len(sizes) != layout.rank or len(steps) != layout.rank:
            message = f"ksize and strides must hold {layout.rank} numbers: {sizes}, {steps}"
            raise OpError(message)
        if sizes[0] != 1 or steps[0] != 1:
            message = "Pooling is not yet supported on the batch dimension."
            raise OpError(message)
        if min(sizes) < 1:
            message = f"ksize must be positive, got {sizes}"
            raise OpError(message)
        return Window(
            layout,
            slide(node, layout, [s if d in layout.spatial else 1 for d, s in enumerate(steps)]),
            tuple(sizes[d] for d in layout.spatial),
            sizes[layout.channel],
            steps[layout.channel],
        )

    @classmethod
    def pooled(cls, context: InferenceContext, image: Shape, window: Window) -> Shape:
        """The static shape of one value a window."""
        if image.dims is None or len(image.dims) != window.layout.rank:
            return UNKNOWN_SHAPE
        channels = image.dims[window.layout.channel]
        if channels is not None:
            channels //= window.depth
        return output_shape(window.layout, window.slide, image, window.sizes, channels)


class Window:
    """A pooling window: how it moves, its spatial size, and how many channels it takes in."""

    def __init__(
        self, layout: Axes, move: Slide, sizes: tuple[int, ...], depth: int, depth_stride: int
    ) -> None:
        self.layout, self.slide, self.sizes, self.depth = layout, move, sizes, depth
        self.depth_stride = depth_stride

    def fit(self, image: Any) -> Fit:
        """The windows over an image whose channels are last. Raises OpError where it cannot be."""
        if image.ndim != self.layout.rank:
            message = f"the image must be {self.layout.rank}-dimensional: {list(image.shape)}"
            raise OpError(message)
        return self.slide.fit(image.shape[1:-1], self.sizes)

    def check_flat(self, what: str) -> None:
        """Refuse a window over several channels."""
        if self.depth != 1 or self.depth_stride != 1:
            message = f"{what} is not yet supported on the depth dimension."
            raise OpError(message)

    def check_depth(self, channels: int) -> None:
        """Refuse a window over channels that does not cut them evenly."""
        if max(self.sizes) > 1:
            message = (
                "MaxPooling supports exactly one of pooling across depth "
                "or pooling across width/height."
            )
            raise OpError(message)
        if self.depth != self.depth_stride or channels % self.depth:
            message = (
                "Depthwise max pooling requires the depth window to equal the depth stride "
                f"and to divide the depth: window {self.depth}, stride {self.depth_stride}, "
                f"depth {channels}"
            )
            raise OpError(message)


def check_same(name: str, array: Any, want: Sequence[int]) -> None:
    """Refuse an array of another shape."""
    if tuple(array.shape) != tuple(want):
        message = f"{name} has shape {list(array.shape)}, {list(want)} is wanted"
        raise OpError(message)


def first(xp: ModuleType, fit: Fit, x: Any) -> tuple[Any, Any]:
    """The greatest value of each window, and the first place that holds it.

    A NaN is neither greater nor less: it stays where it is the first of its window.
    """
    padded = fit.pad(xp, x)
    inside = fit.pad(xp, xp.ones((1, *fit.sizes, 1), dtype=bool), value=False)
    best = xp.zeros((x.shape[0], *fit.out, x.shape[-1]), dtype=x.dtype)
    where = xp.full(best.shape, -1, dtype="int32")
    for place, (_, view) in enumerate(fit.views()):
        value = padded[view]
        better = ((value > best) | (where < 0)) & inside[view]
        best, where = xp.where(better, value, best), xp.where(better, place, where)
    return best, where
