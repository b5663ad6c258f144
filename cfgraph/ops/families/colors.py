"""Image colors: color spaces, contrast, hue, and saturation.

Gradients follow TensorFlow: among equal channels the first is treated as the largest and the last
as the smallest, and the saturation does not depend on a channel that is zero.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final

from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.kernels.array_namespace import in_float32
from cfgraph.ops.opdef.gradient_api import GradientBuilder, InputGradients, int32_constant
from cfgraph.ops.opdef.op import OpError, SameShape


def rgb_to_hsv_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of RGBToHSV."""
    return [_rgb_gradient(g, node.inputs[0], dz)]


def hsv_to_rgb_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of HSVToRGB."""
    return [_hsv_gradient(g, node.inputs[0], dz)]


def contrast_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of AdjustContrastv2: the same linear map of `dz`; the factor scales image - mean."""
    images, factor = node.inputs

    def factor_gradient() -> Output:
        mean = g.AdjustContrastv2(images, g.const(0, dtypes.float32))
        return _sum_like(g, g.Mul(dz, g.Sub(images, mean)))

    return lambda: g.AdjustContrastv2(dz, factor), factor_gradient


def hue_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of AdjustHue: through HSV, with the shifted hue."""
    rgb, delta = node.inputs
    h, s, v = _split_channels(g, g.RGBToHSV(rgb))
    turned = g.FloorMod(g.AddV2(h, _cast_like(g, delta, rgb)), 1)
    back = _hsv_gradient(g, _stack_channels(g, turned, s, v), dz)
    return lambda: _rgb_gradient(g, rgb, back), lambda: _sum_like(g, _split_channels(g, back)[0])


def saturation_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of AdjustSaturation: through HSV, with the scaled saturation."""
    rgb, scale = node.inputs
    h, s, v = _split_channels(g, g.RGBToHSV(rgb))
    rate = _cast_like(g, scale, rgb)
    scaled = g.Mul(s, rate)
    back = _hsv_gradient(g, _stack_channels(g, h, _clip_to_unit(g, scaled), v), dz)
    dh, ds, dv = _split_channels(g, back)
    ds = g.Mul(ds, _inside_unit(g, scaled))
    return (
        lambda: _rgb_gradient(g, rgb, _stack_channels(g, dh, g.Mul(ds, rate), dv)),
        lambda: _sum_like(g, g.Mul(ds, s)),
    )


def _rgb_gradient(g: GradientBuilder, rgb: Output, dz: Output) -> Output:
    """Gradient of RGB to HSV with respect to RGB.

    With the largest channel x and the spread d (largest minus smallest), the value is x, the
    saturation is d / x, and the hue has slope 1/6 in (next channel - the channel after it) / d.
    """
    largest, smallest = _largest_channel(g, rgb), _smallest_channel(g, rgb)
    edges = g.Sub(largest, smallest)
    turns = g.Sub(*(g.Roll(largest, int32_constant(g, by), int32_constant(g, -1)) for by in (1, 2)))
    value, spread, turn = (
        _sum_over_channels(g, rgb, weights) for weights in (largest, edges, turns)
    )
    dh, ds, dv = _split_channels(g, dz)
    by_hue = _quotient_gradient(g, turns, turn, edges, spread)
    lit = g.Cast(g.Greater(rgb, 0), DstT=rgb.dtype)
    by_saturation = g.Mul(_quotient_gradient(g, edges, spread, largest, value), lit)
    saturation_and_value = g.AddV2(g.Mul(ds, by_saturation), g.Mul(dv, largest))
    return g.AddV2(g.Mul(g.Mul(dh, 1 / 6), by_hue), saturation_and_value)


def _quotient_gradient(g: GradientBuilder, dx: Output, x: Output, dy: Output, y: Output) -> Output:
    """Derivative of x / y; 0 where y is 0."""
    return g.DivNoNan(g.Sub(dx, g.Mul(g.DivNoNan(x, y), dy)), y)


def _largest_channel(g: GradientBuilder, rgb: Output) -> Output:
    return _one_hot_channel(g, g.ArgMax(rgb, int32_constant(g, -1)), rgb)


def _smallest_channel(g: GradientBuilder, rgb: Output) -> Output:
    last = int32_constant(g, [-1])
    channel = g.ArgMin(g.ReverseV2(rgb, last), int32_constant(g, -1))
    return g.ReverseV2(_one_hot_channel(g, channel, rgb), last)


def _one_hot_channel(g: GradientBuilder, channel: Output, like: Output) -> Output:
    return g.OneHot(
        channel, int32_constant(g, 3), _constant_like(g, 1, like), _constant_like(g, 0, like)
    )


def _hsv_gradient(g: GradientBuilder, hsv: Output, dz: Output) -> Output:
    """Gradient of HSV to RGB, v (1 + s (pure - 1)) with the pure hue, with respect to HSV."""
    h, s, v = _split_channels(g, hsv)
    ways = _constant_like(g, [1, -1, -1], hsv)
    distance = g.Sub(g.Mul(h, 6), _constant_like(g, [3, 2, 4], hsv))
    ramp = g.AddV2(g.Mul(g.Abs(distance), ways), _constant_like(g, [-1, 2, 2], hsv))
    tint = g.Sub(_clip_to_unit(g, ramp), 1)
    slope = g.Mul(g.Mul(g.Sign(distance), g.Mul(ways, 6)), _inside_unit(g, ramp))
    dv = _sum_over_channels(g, dz, g.AddV2(g.Mul(s, tint), 1))
    dz = g.Mul(dz, v)
    return _stack_channels(
        g, _sum_over_channels(g, dz, g.Mul(s, slope)), _sum_over_channels(g, dz, tint), dv
    )


def _clip_to_unit(g: GradientBuilder, x: Output) -> Output:
    return g.Minimum(g.Maximum(x, 0), 1)


def _inside_unit(g: GradientBuilder, x: Output) -> Output:
    """Mask of elements in [0, 1], as numbers 1 and 0."""
    return g.Cast(g.Equal(x, _clip_to_unit(g, x)), DstT=x.dtype)


def _sum_over_channels(g: GradientBuilder, x: Output, weights: Output) -> Output:
    """Sum of a product over the channels, which become one channel."""
    return g.Sum(g.Mul(x, weights), int32_constant(g, [-1]), keep_dims=True)


def _split_channels(g: GradientBuilder, pixels: Output) -> list[Output]:
    """The three channels, each with a last dimension of size 1."""
    node = g.Split(int32_constant(g, -1), pixels, num_split=3).node
    return [node.output(port) for port in range(3)]


def _stack_channels(g: GradientBuilder, *channels: Output) -> Output:
    return g.ConcatV2(channels, int32_constant(g, -1))


def _constant_like(g: GradientBuilder, value: Any, like: Output) -> Output:
    assert like.dtype is not None
    return g.const(value, like.dtype)


def _cast_like(g: GradientBuilder, x: Output, like: Output) -> Output:
    return x if x.dtype is like.dtype else g.Cast(x, DstT=like.dtype)


def _sum_like(g: GradientBuilder, x: Output) -> Output:
    """Sum of all elements as float32, the dtype of the factors."""
    total = g.Sum(g.Reshape(x, int32_constant(g, [-1])), int32_constant(g, [0]))
    return total if total.dtype is dtypes.float32 else g.Cast(total, DstT=dtypes.float32)


_FLOATS = "T: {float16, bfloat16, float32, float64} = float32"


def check_color_channels(images: Any) -> None:
    """Check that the last dimension contains three channels."""
    if images.ndim < 1 or images.shape[-1] != 3:
        raise OpError(f"input must have 3 channels but instead has shape {list(images.shape)}")


def rgb_to_hsv(xp: ModuleType, rgb: Any) -> tuple[Any, Any, Any]:
    """Hue, saturation, and value (each in [0, 1]) of RGB images in [0, 1]."""
    red, green, blue = channel_planes(xp, rgb)
    value = xp.maximum(xp.maximum(red, green), blue)
    spread = value - xp.minimum(xp.minimum(red, green), blue)
    zeros, ones = xp.zeros_like(value), xp.ones_like(value)
    saturation = xp.where(value > 0, spread / xp.where(value > 0, value, ones), zeros)
    norm = 1 / (6 * xp.where(spread > 0, spread, ones))
    hue = xp.where(
        red == value,
        norm * (green - blue),
        xp.where(
            green == value,
            norm * (blue - red) + value.dtype.type(2 / 6),
            norm * (red - green) + value.dtype.type(4 / 6),
        ),
    )
    hue = xp.where(spread > 0, hue, zeros)
    return xp.where(hue < 0, hue + 1, hue), saturation, value


def channel_planes(xp: ModuleType, pixels: Any) -> Any:
    """The three channels, each contiguous: operations on neighbors in memory are much faster."""
    return xp.moveaxis(pixels, -1, 0).copy()


def interleaved(xp: ModuleType, planes: Any) -> Any:
    """Pixels of contiguous channels."""
    return xp.moveaxis(planes, 0, -1).copy()


def hsv_to_rgb(xp: ModuleType, hue: Any, saturation: Any, value: Any) -> Any:
    """RGB images of hue, saturation, and value, channels in the last dimension."""
    sixfold = hue * 6
    red = xp.abs(sixfold - 3) - 1
    green = 2 - xp.abs(sixfold - 2)
    blue = 2 - xp.abs(sixfold - 4)
    pure = xp.clip(xp.stack([red, green, blue]), 0, 1)
    pure -= 1
    pure *= saturation
    pure += 1
    pure *= value
    return interleaved(xp, pure)


class ColorOp(SameShape, abstract=True):
    """A function of the colors of an image."""

    attrs = _FLOATS
    adapter = in_float32


class RGBToHSV(ColorOp):
    """Conversion of RGB to hue, saturation, and value, all in [0, 1]."""

    gradient = staticmethod(rgb_to_hsv_gradient)
    signature = "images: T -> output: T"

    @staticmethod
    def kernel(xp: ModuleType, images: Any) -> Any:
        check_color_channels(images)
        if images.size == 0:
            return images
        return interleaved(xp, xp.stack(rgb_to_hsv(xp, images)))


class HSVToRGB(ColorOp):
    """Conversion of hue, saturation, and value to RGB, all in [0, 1]."""

    gradient = staticmethod(hsv_to_rgb_gradient)
    signature = "images: T -> output: T"

    @staticmethod
    def kernel(xp: ModuleType, images: Any) -> Any:
        check_color_channels(images)
        return hsv_to_rgb(xp, *channel_planes(xp, images))


# pixels whose float32 sum is exact enough
_SUMMED: Final = 1 << 12


class AdjustContrastv2(ColorOp):
    """Contrast adjustment: (image - mean) * factor + mean, with one mean per channel."""

    gradient = staticmethod(contrast_gradient)
    signature = "images: T, contrast_factor: float32 -> output: T"
    attrs = "T: {float16, float32} = float32"

    @staticmethod
    def kernel(xp: ModuleType, images: Any, factor: Any) -> Any:
        if images.ndim < 3:
            raise OpError(f"input must be at least 3-D, got shape {list(images.shape)}")
        check_color_scalar(factor, "contrast_factor")
        if images.size == 0:
            return images
        *batch, height, width, channels = images.shape
        means = _channel_means(xp, images.reshape((*batch, height * width, channels)))
        # short rows are slow: repeat the means to a row of pixels
        means = xp.tile(means.astype(images.dtype), width)
        rows = images.reshape((*batch, height, width * channels))
        return ((rows - means) * factor + means).reshape(images.shape)


def _channel_means(xp: ModuleType, pixels: Any) -> Any:
    """Means over pixels, [..., 1, channels], which products with ones sum fast, but inexactly."""
    *batch, count, channels = pixels.shape
    blocks, ones = count // _SUMMED, xp.ones((1, _SUMMED), pixels.dtype)
    whole = pixels[..., : blocks * _SUMMED, :].reshape((*batch, blocks, _SUMMED, channels))
    rest = pixels[..., blocks * _SUMMED :, :]
    sums = xp.sum((ones @ whole)[..., 0, :], axis=-2, keepdims=True, dtype=xp.float64)
    return (sums + ones[:, : rest.shape[-2]] @ rest) / count


class AdjustHue(ColorOp):
    """Hue rotation: delta in units of a full turn is added to the hue of each pixel."""

    gradient = staticmethod(hue_gradient)
    signature = "images: T, delta: float32 -> output: T"
    attrs = "T: {float16, float32} = float32"

    @staticmethod
    def kernel(xp: ModuleType, images: Any, delta: Any) -> Any:
        check_rgb_image(images)
        check_color_scalar(delta, "delta")
        if images.size == 0:
            return images
        hue, saturation, value = rgb_to_hsv(xp, images)
        turned = hue + delta
        return hsv_to_rgb(xp, turned - xp.floor(turned), saturation, value)


class AdjustSaturation(ColorOp):
    """Saturation of each pixel multiplied by `scale` and clipped to [0, 1]."""

    gradient = staticmethod(saturation_gradient)
    signature = "images: T, scale: float32 -> output: T"
    attrs = "T: {float16, float32} = float32"

    @staticmethod
    def kernel(xp: ModuleType, images: Any, scale: Any) -> Any:
        check_rgb_image(images)
        check_color_scalar(scale, "scale")
        if images.size == 0:
            return images
        hue, saturation, value = rgb_to_hsv(xp, images)
        return hsv_to_rgb(xp, hue, xp.clip(saturation * scale, 0, 1), value)


def check_rgb_image(images: Any) -> None:
    """Check that the input is an image of rank 3 or more with three channels."""
    if images.ndim < 3:
        raise OpError(f"input must be at least 3-D, got shape {list(images.shape)}")
    check_color_channels(images)


def check_color_scalar(value: Any, name: str) -> None:
    """Check that an input is a scalar."""
    if value.ndim:
        raise OpError(f"{name} must be scalar: {list(value.shape)}")
