"""The colours of images: spaces, contrast, hue and saturation."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node
from cfgraph.ops import colour_gradients
from cfgraph.ops.op import Kernel, OpError
from cfgraph.ops.pointwise import SameShape
from cfgraph.ops.precision import widened

_FLOATS = "T: {float16, bfloat16, float32, float64} = float32"


def check_channels(images: Any) -> None:
    """Refuse what has not three channels."""
    if images.ndim < 1 or images.shape[-1] != 3:
        message = f"input must have 3 channels but instead has shape {list(images.shape)}"
        raise OpError(message)


def to_hsv(xp: ModuleType, rgb: Any) -> tuple[Any, Any, Any]:
    """Hue, saturation and value."""
    red, green, blue = rgb[..., 0], rgb[..., 1], rgb[..., 2]
    value = xp.max(rgb, axis=-1)
    spread = value - xp.min(rgb, axis=-1)
    none, one = xp.zeros_like(value), xp.ones_like(value)
    saturation = xp.where(value > 0, spread / xp.where(value > 0, value, one), none)
    norm = 1 / (6 * xp.where(spread > 0, spread, one))
    hue = xp.where(
        red == value,
        norm * (green - blue),
        xp.where(
            green == value,
            norm * (blue - red) + value.dtype.type(2 / 6),
            norm * (red - green) + value.dtype.type(4 / 6),
        ),
    )
    hue = xp.where(spread > 0, hue, none)
    return xp.where(hue < 0, hue + 1, hue), saturation, value


def to_rgb(xp: ModuleType, hue: Any, saturation: Any, value: Any) -> Any:
    """Red, green and blue in the last dimension."""
    sixfold = hue * 6
    red = xp.abs(sixfold - 3) - 1
    green = 2 - xp.abs(sixfold - 2)
    blue = 2 - xp.abs(sixfold - 4)
    pure = xp.clip(xp.stack([red, green, blue], axis=-1), 0, 1)
    return (1 + saturation[..., None] * (pure - 1)) * value[..., None]


class Coloured(SameShape, abstract=True):
    """A function of each pixel."""

    attrs = _FLOATS

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        return widened(super().bind(node, xp), node.attr("T"))


class RGBToHSV(Coloured):
    """Hue, saturation and value of red, green and blue."""

    gradient = staticmethod(colour_gradients.to_hsv)

    signature = "images: T -> output: T"

    @staticmethod
    def kernel(xp: ModuleType, images: Any) -> Any:
        check_channels(images)
        if images.size == 0:
            return images
        return xp.stack(to_hsv(xp, images), axis=-1)


class HSVToRGB(Coloured):
    """Red, green and blue of hue, saturation and value."""

    gradient = staticmethod(colour_gradients.to_rgb)

    signature = "images: T -> output: T"

    @staticmethod
    def kernel(xp: ModuleType, images: Any) -> Any:
        check_channels(images)
        return to_rgb(xp, images[..., 0], images[..., 1], images[..., 2])


class AdjustContrastv2(Coloured):
    """Each channel's distance from its mean over the image, scaled."""

    gradient = staticmethod(colour_gradients.contrast)

    signature = "images: T, contrast_factor: float32 -> output: T"
    attrs = "T: {float16, float32} = float32"

    @staticmethod
    def kernel(xp: ModuleType, images: Any, factor: Any) -> Any:
        if images.ndim < 3:
            message = f"input must be at least 3-D, got shape {list(images.shape)}"
            raise OpError(message)
        check_scalar(factor, "contrast_factor")
        if images.size == 0:
            return images
        mean = xp.mean(images, axis=(-3, -2), keepdims=True, dtype=images.dtype)
        return (images - mean) * factor + mean


class AdjustHue(Coloured):
    """The hue of each pixel, turned."""

    gradient = staticmethod(colour_gradients.hue)

    signature = "images: T, delta: float32 -> output: T"
    attrs = "T: {float16, float32} = float32"

    @staticmethod
    def kernel(xp: ModuleType, images: Any, delta: Any) -> Any:
        check_pixels(images)
        check_scalar(delta, "delta")
        if images.size == 0:
            return images
        hue, saturation, value = to_hsv(xp, images)
        return to_rgb(xp, (hue + delta) % 1, saturation, value)


class AdjustSaturation(Coloured):
    """The saturation of each pixel, scaled."""

    gradient = staticmethod(colour_gradients.saturation)

    signature = "images: T, scale: float32 -> output: T"
    attrs = "T: {float16, float32} = float32"

    @staticmethod
    def kernel(xp: ModuleType, images: Any, scale: Any) -> Any:
        check_pixels(images)
        check_scalar(scale, "scale")
        if images.size == 0:
            return images
        hue, saturation, value = to_hsv(xp, images)
        return to_rgb(xp, hue, xp.clip(saturation * scale, 0, 1), value)


def check_pixels(images: Any) -> None:
    """Refuse what is no image of three channels."""
    if images.ndim < 3:
        message = f"input must be at least 3-D, got shape {list(images.shape)}"
        raise OpError(message)
    check_channels(images)


def check_scalar(value: Any, name: str) -> None:
    """Refuse what is no scalar."""
    if value.ndim:
        message = f"{name} must be scalar: {list(value.shape)}"
        raise OpError(message)
