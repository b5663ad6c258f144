"""The gradients of the colours of images, pixel by pixel.

As in TensorFlow, of channels that are alike the first counts as the largest and the last as the
smallest, and the saturation does not depend on a channel that is zero.
"""

from __future__ import annotations

from typing import Any

from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials, index


def to_hsv(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Of RGBToHSV."""
    return [_by_rgb(g, node.inputs[0], dz)]


def to_rgb(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Of HSVToRGB."""
    return [_by_hsv(g, node.inputs[0], dz)]


def contrast(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Of AdjustContrastv2, which is its own transpose; the factor scales distances from a mean."""
    images, factor = node.inputs

    def by_factor() -> Output:
        mean = g.AdjustContrastv2(images, g.const(0, dtypes.float32))
        return _sum(g, g.Mul(dz, g.Sub(images, mean)))

    return lambda: g.AdjustContrastv2(dz, factor), by_factor


def hue(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Of AdjustHue: back through the colours that it turns."""
    rgb, delta = node.inputs
    h, s, v = _channels(g, g.RGBToHSV(rgb))
    turned = g.FloorMod(g.AddV2(h, _like(g, delta, rgb)), 1)
    back = _by_hsv(g, _pixels(g, turned, s, v), dz)
    return lambda: _by_rgb(g, rgb, back), lambda: _sum(g, _channels(g, back)[0])


def saturation(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Of AdjustSaturation: back through the colours that it scales."""
    rgb, scale = node.inputs
    h, s, v = _channels(g, g.RGBToHSV(rgb))
    rate = _like(g, scale, rgb)
    scaled = g.Mul(s, rate)
    back = _by_hsv(g, _pixels(g, h, _clipped(g, scaled), v), dz)
    dh, ds, dv = _channels(g, back)
    ds = g.Mul(ds, _inside(g, scaled))
    return (
        lambda: _by_rgb(g, rgb, _pixels(g, dh, g.Mul(ds, rate), dv)),
        lambda: _sum(g, g.Mul(ds, s)),
    )


def _by_rgb(g: Adjoint, rgb: Output, dz: Output) -> Output:
    """Back from hue, saturation and value.

    With the largest channel x and the spread d, the value is x, the saturation d / x, and the hue
    grows by a sixth with what the next channel is above the one after that, over d.
    """
    largest, smallest = _largest(g, rgb), _smallest(g, rgb)
    edges = g.Sub(largest, smallest)
    turns = g.Sub(*(g.Roll(largest, index(g, by), index(g, -1)) for by in (1, 2)))
    value, spread, turn = (_along(g, rgb, way) for way in (largest, edges, turns))
    dh, ds, dv = _channels(g, dz)
    by_hue = _quotient(g, turns, turn, edges, spread)
    lit = g.Cast(g.Greater(rgb, 0), DstT=rgb.dtype)
    by_saturation = g.Mul(_quotient(g, edges, spread, largest, value), lit)
    rest = g.AddV2(g.Mul(ds, by_saturation), g.Mul(dv, largest))
    return g.AddV2(g.Mul(g.Mul(dh, 1 / 6), by_hue), rest)


def _quotient(g: Adjoint, dx: Output, x: Output, dy: Output, y: Output) -> Output:
    """The derivative of x / y, which is 0 where y is."""
    return g.DivNoNan(g.Sub(dx, g.Mul(g.DivNoNan(x, y), dy)), y)


def _largest(g: Adjoint, rgb: Output) -> Output:
    return _one_hot(g, g.ArgMax(rgb, index(g, -1)), rgb)


def _smallest(g: Adjoint, rgb: Output) -> Output:
    last = index(g, [-1])
    place = g.ArgMin(g.ReverseV2(rgb, last), index(g, -1))
    return g.ReverseV2(_one_hot(g, place, rgb), last)


def _one_hot(g: Adjoint, place: Output, like: Output) -> Output:
    return g.OneHot(place, index(g, 3), _const(g, 1, like), _const(g, 0, like))


def _by_hsv(g: Adjoint, hsv: Output, dz: Output) -> Output:
    """Back from red, green and blue: v (1 + s (pure - 1)), where `pure` is what the hue says."""
    h, s, v = _channels(g, hsv)
    ways = _const(g, [1, -1, -1], hsv)
    distance = g.Sub(g.Mul(h, 6), _const(g, [3, 2, 4], hsv))
    ramp = g.AddV2(g.Mul(g.Abs(distance), ways), _const(g, [-1, 2, 2], hsv))
    tint = g.Sub(_clipped(g, ramp), 1)
    slope = g.Mul(g.Mul(g.Sign(distance), g.Mul(ways, 6)), _inside(g, ramp))
    dv = _along(g, dz, g.AddV2(g.Mul(s, tint), 1))
    dz = g.Mul(dz, v)
    return _pixels(g, _along(g, dz, g.Mul(s, slope)), _along(g, dz, tint), dv)


def _clipped(g: Adjoint, x: Output) -> Output:
    return g.Minimum(g.Maximum(x, 0), 1)


def _inside(g: Adjoint, x: Output) -> Output:
    """One where x is neither below 0 nor above 1, else zero."""
    return g.Cast(g.Equal(x, _clipped(g, x)), DstT=x.dtype)


def _along(g: Adjoint, x: Output, way: Output) -> Output:
    """The sum over the channels of a product, as one channel."""
    return g.Sum(g.Mul(x, way), index(g, [-1]), keep_dims=True)


def _channels(g: Adjoint, pixels: Output) -> list[Output]:
    """The three channels, each with a last dimension of one."""
    node = g.Split(index(g, -1), pixels, num_split=3).node
    return [node.output(port) for port in range(3)]


def _pixels(g: Adjoint, *channels: Output) -> Output:
    return g.ConcatV2(channels, index(g, -1))


def _const(g: Adjoint, value: Any, like: Output) -> Output:
    assert like.dtype is not None
    return g.const(value, like.dtype)


def _like(g: Adjoint, x: Output, like: Output) -> Output:
    return x if x.dtype is like.dtype else g.Cast(x, DstT=like.dtype)


def _sum(g: Adjoint, x: Output) -> Output:
    """The sum of all, in the type of a factor."""
    total = g.Sum(g.Reshape(x, index(g, [-1])), index(g, [0]))
    return total if total.dtype is dtypes.float32 else g.Cast(total, DstT=dtypes.float32)
