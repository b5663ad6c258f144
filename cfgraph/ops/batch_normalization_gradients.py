"""The gradient of batch normalization, and the gradient of that."""

from __future__ import annotations

from functools import reduce

from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials, alike, index, refuse


def normalized(g: Adjoint, node: Node, dy: Output | None, *others: Output | None) -> Partials:
    """Of batch normalization, by its output `y`.

    In training the moments come from the reserve outputs, as each device has them. Raises
    Unsupported where a gradient comes through the moments.
    """
    refuse(node, others, "its moments")
    assert dy is not None
    op = node.op.replace("FusedBatchNorm", "FusedBatchNormGrad")
    x, scale, _, *moments = node.inputs
    layout = node.attr("data_format")
    reserved = [node.output(port) for port in range(3, len(others) + 1)]
    if node.attr("is_training"):
        found = alike(g, op, node, dy, x, scale, *reserved).node
        dx = found.output(0)
    else:
        dy, x = (_channels(g, item, layout, last=True) for item in (dy, x))
        attrs = {"epsilon": node.attr("epsilon"), "is_training": False}
        attrs["data_format"] = b"NHWC" if len(layout) == 4 else b"NDHWC"
        back = getattr(g, op)(dy, x, scale, *moments, *reserved[2:], **attrs)
        found = back.node
        dx = _channels(g, found.output(0), layout, last=False)
    return dx, found.output(1), found.output(2), None, None


def _channels(g: Adjoint, x: Output, layout: bytes, *, last: bool) -> Output:
    """An image of this layout with its channels last, or back again."""
    if not layout.startswith(b"NC"):
        return x
    space = list(range(2, len(layout)))
    first = [0, len(layout) - 1, *range(1, len(layout) - 1)]
    return g.Transpose(x, index(g, [0, *space, 1] if last else first))


def gradient(g: Adjoint, node: Node, *arrived: Output | None) -> Partials:
    """Of the gradient of batch normalization, by those of image, scale and offset.

    In training the moments are taken from the image again, and what the reserve inputs say of them
    has no gradient: that by the image is all of it. dx = s r P(dy) and ds = sum(dy u), u being the
    normalized image, r the inverse deviation and P what `_Batch.projected` does.
    """
    refuse(node, arrived[3:], "its reserve outputs")
    dy, x, *_ = node.inputs
    batch = _Batch(g, node)
    image, along, offset = arrived[:3]
    by_dy, by_x, by_scale = list[Output](), list[Output](), None
    dy = batch.wide(dy)
    if image is not None:
        image = batch.wide(image)
        projected = batch.projected(image)
        by_dy.append(g.Mul(batch.slope, projected))
        product = g.Mul(dy, projected)
        by_scale = g.Mul(batch.sum(product), g.Reshape(batch.inverse, index(g, [-1])))
        by_x += batch.through_moments(image, dy, product)
    if along is not None:
        along = batch.column(along)
        by_dy.append(g.Mul(along, batch.unit))
        by_x.append(g.Mul(batch.inverse, batch.projected(g.Mul(along, dy))))
    if offset is not None:
        offset = batch.column(offset)
        by_dy.append(offset if by_dy else g.BroadcastTo(offset, g.shape(dy)))
    grads = [_total(g, parts, x) for parts in (by_dy, by_x)]
    return *grads, by_scale, *[None] * (len(node.inputs) - 3)


def _total(g: Adjoint, parts: list[Output], like: Output) -> Output | None:
    """The sum of what is there, in the type of an image."""
    if not parts:
        return None
    whole = reduce(g.AddV2, parts)
    return whole if whole.dtype is like.dtype else g.Cast(whole, DstT=like.dtype)


class _Batch:
    """The image that a node is the gradient of a normalization of, in float32."""

    def __init__(self, g: Adjoint, node: Node) -> None:
        layout = node.attr("data_format")
        rank, first = len(layout), layout.startswith(b"NC")
        self.g = g
        self.training: bool = node.attr("is_training")
        self._axes = index(g, [0, *range(2, rank)] if first else list(range(rank - 1)))
        self._column = index(g, [-1, *[1] * (rank - 2)]) if first else None
        _, x, scale, mean, variance, *_ = node.inputs
        x = self.wide(x)
        if self.training:
            centred = g.Sub(x, self.mean(x))
            spread = self.mean(g.Square(centred))
        else:
            centred, spread = g.Sub(x, self.column(mean)), self.column(variance)
        self.inverse = g.Rsqrt(g.AddV2(spread, node.attr("epsilon")))
        self.unit = g.Mul(centred, self.inverse)
        self.slope = g.Mul(self.column(scale), self.inverse)

    def wide(self, v: Output) -> Output:
        """A tensor in float32."""
        return v if v.dtype is dtypes.float32 else self.g.Cast(v, DstT=dtypes.float32)

    def column(self, v: Output) -> Output:
        """A number for each channel, to be broadcast."""
        v = self.wide(v)
        return v if self._column is None else self.g.Reshape(v, self._column)

    def mean(self, v: Output) -> Output:
        """The mean of each channel, to be broadcast."""
        return self.g.Mean(v, self._axes, keep_dims=True)

    def sum(self, v: Output) -> Output:
        """The sum of each channel."""
        return self.g.Sum(v, self._axes)

    def projected(self, v: Output) -> Output:
        """In training, what of an image is neither its mean nor along the normalized one."""
        g = self.g
        if not self.training:
            return v
        along = g.Mul(self.unit, self.mean(g.Mul(v, self.unit)))
        return g.Sub(g.Sub(v, self.mean(v)), along)

    def through_moments(self, image: Output, dy: Output, product: Output) -> list[Output]:
        """The gradients by the image that come from the moments in dx."""
        g = self.g
        if not self.training:
            return []
        one = g.Mul(self.mean(g.Mul(dy, self.unit)), image)
        other = g.Mul(self.mean(g.Mul(image, self.unit)), dy)
        through_unit = self.projected(g.AddV2(one, other))
        through_inverse = g.Mul(self.unit, self.mean(product))
        rate = g.Mul(self.slope, self.inverse)
        return [g.Neg(g.Mul(rate, g.AddV2(through_unit, through_inverse)))]
