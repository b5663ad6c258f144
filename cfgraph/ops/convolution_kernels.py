"""What a convolution and its two gradients compute, in any number of dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import ModuleType
from typing import Any, ClassVar

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.adjoint import Adjoint, Partials, alike
from cfgraph.ops.dims import want_rank
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.matrix_convolution import (
    check_depths,
    check_gradient,
    check_ranks,
    convolve,
    convolve_filter,
    convolve_input,
)
from cfgraph.ops.op import Dims, Kernel, Op, OpError
from cfgraph.ops.precision import widened
from cfgraph.ops.window import Axes, Slide, axes, output_shape, slide


class Convolution(Op, abstract=True):
    """The frame of a convolution: the input channels fall into groups, each with its filters."""

    rank: ClassVar[int] = 4
    depthwise: ClassVar[bool] = False
    # the op itself is the stem, its gradients the stem with BackpropInput or BackpropFilter
    stem: ClassVar[str] = "Conv2D"
    version: ClassVar[str] = ""

    @classmethod
    def forward(cls, g: Adjoint, node: Node, x: Output, w: Output) -> Output:
        """The convolution that a node is, or is a gradient of."""
        return alike(g, cls.stem, node, x, w)

    @classmethod
    def by_image(cls, g: Adjoint, node: Node, x: Output, w: Output, dy: Output) -> Output:
        """Its gradient with respect to the image."""
        return alike(g, f"{cls.stem}BackpropInput{cls.version}", node, g.shape(x), w, dy)

    @classmethod
    def by_filter(cls, g: Adjoint, node: Node, x: Output, w: Output, dy: Output) -> Output:
        """Its gradient with respect to the filter."""
        return alike(g, f"{cls.stem}BackpropFilter{cls.version}", node, x, g.shape(w), dy)

    @classmethod
    def layout(cls, node: Node) -> Axes:
        """Where the image keeps its channels."""
        has_format = "data_format" in cls.parsed().attrs
        return axes(node) if has_format else Axes(cls.rank, cls.rank - 1)

    @classmethod
    def move(cls, node: Node) -> Slide:
        """How the filter moves over the image."""
        return slide(node, cls.layout(node), dilations=node.attr("dilations"))

    @classmethod
    def grouped(cls, w: Any) -> Any:
        """The filter with the depth of one group before its outputs."""
        return w.reshape((*w.shape[:-2], 1, w.shape[-2] * w.shape[-1])) if cls.depthwise else w

    @classmethod
    def flops(cls, inputs: Sequence[Dims], outputs: Sequence[Dims]) -> float:
        # an image or its gradient, and a filter, which is the smallest: all ways do the same work
        tensors = [dims for dims in (*inputs, *outputs) if len(dims) == cls.rank]
        window = min(tensors, key=prod, default=())
        return 2.0 * max(map(prod, tensors), default=0) * prod(window[:-1])


class ConvolutionForward(Convolution, abstract=True):
    """Slide a filter over an image."""

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        layout, move = cls.layout(node), cls.move(node)

        def convolution(x: Any, w: Any) -> Any:
            check_ranks(layout.rank, x, w)
            x, w = layout.channels_last(xp, x), cls.grouped(w)
            check_depths(x.shape[-1], w)
            return layout.restore(xp, convolve(xp, move.fit(x.shape[1:-1], w.shape[:-2]), x, w))

        return widened(convolution, node.attr("T"))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        image, w = context.inputs
        layout, move = cls.layout(context.node), cls.move(context.node)
        image, w = want_rank(image, layout.rank), want_rank(w, layout.rank)
        window = tuple(w)
        channels = window[-1]
        if cls.depthwise:
            channels = None if None in window[-2:] else window[-1] * window[-2]  # type: ignore[operator]
        return [output_shape(layout, move, image, window, channels)]

    @classmethod
    def gradient(cls, g: Adjoint, node: Node, dy: Output) -> Partials:
        x, w = node.inputs
        return lambda: cls.by_image(g, node, x, w, dy), lambda: cls.by_filter(g, node, x, w, dy)


class ConvolutionInput(Convolution, abstract=True):
    """The gradient of a convolution with respect to its image."""

    sizes_given: ClassVar[bool] = True
    host_inputs: ClassVar[tuple[int, ...]] = (0,)
    constant_inputs: ClassVar[tuple[int, ...]] = (0,)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        layout, move = cls.layout(node), cls.move(node)

        def transposed(sizes: Any, w: Any, dy: Any) -> Any:
            check_ranks(layout.rank, dy, w)
            shape = cls.image_shape(layout, sizes, w, dy)
            w, dy = cls.grouped(w), layout.channels_last(xp, dy)
            depth = shape[layout.channel]
            check_depths(depth, w)
            fit = move.fit([shape[d] for d in layout.spatial], w.shape[:-2])
            check_gradient(dy, (shape[0], *fit.out, w.shape[-1]))
            return layout.restore(xp, convolve_input(xp, fit, depth, w, dy))

        return widened(transposed, node.attr("T"))

    @classmethod
    def image_shape(cls, layout: Axes, sizes: Any, w: Any, dy: Any) -> tuple[int, ...]:
        """The whole shape of the image."""
        if not cls.sizes_given:
            return tuple(sizes.shape)
        if sizes.ndim == 1 and sizes.size == len(layout.spatial):
            return layout.place([int(n) for n in sizes], dy.shape[0], w.shape[-2])
        if sizes.shape != (layout.rank,):
            message = f"input_sizes must hold {layout.rank} sizes, got shape {list(sizes.shape)}"
            raise OpError(message)
        return tuple(int(n) for n in sizes)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        if not cls.sizes_given:
            return [context.inputs[0]]
        known = context.shape_value(0)
        if known.rank == cls.rank:
            return [known]
        return [Shape([None] * cls.rank)]

    @classmethod
    def gradient(cls, g: Adjoint, node: Node, dx: Output) -> Partials:
        _, w, dy = node.inputs
        return None, lambda: cls.by_filter(g, node, dx, w, dy), lambda: cls.forward(g, node, dx, w)


class ConvolutionFilter(Convolution, abstract=True):
    """The gradient of a convolution with respect to its filter."""

    sizes_given: ClassVar[bool] = True
    host_inputs: ClassVar[tuple[int, ...]] = (1,)
    constant_inputs: ClassVar[tuple[int, ...]] = (1,)

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        layout, move = cls.layout(node), cls.move(node)

        def correlated(x: Any, sizes: Any, dy: Any) -> Any:
            check_ranks(layout.rank, x, dy)
            shape = tuple(int(n) for n in sizes) if cls.sizes_given else tuple(sizes.shape)
            if len(shape) != layout.rank:
                message = f"filter_sizes must hold {layout.rank} sizes, got {len(shape)}"
                raise OpError(message)
            x, dy = layout.channels_last(xp, x), layout.channels_last(xp, dy)
            fit = move.fit(x.shape[1:-1], shape[:-2])
            depth, filters = shape[-2:]
            if cls.depthwise:
                depth, filters = 1, depth * filters
            if depth == 0 or x.shape[-1] % depth:
                message = (
                    "input depth must be evenly divisible by filter depth: "
                    f"{x.shape[-1]} vs {depth}"
                )
                raise OpError(message)
            check_gradient(dy, (x.shape[0], *fit.out, filters))
            return convolve_filter(xp, fit, x, depth, dy).reshape(shape)

        return widened(correlated, node.attr("T"))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        if not cls.sizes_given:
            return [context.inputs[1]]
        known = context.shape_value(1)
        return [known if known.rank == cls.rank else Shape([None] * cls.rank)]

    @classmethod
    def gradient(cls, g: Adjoint, node: Node, dw: Output) -> Partials:
        x, _, dy = node.inputs
        return lambda: cls.by_image(g, node, x, dw, dy), None, lambda: cls.forward(g, node, x, dw)
