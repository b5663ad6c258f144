"""Decoding of images, by Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.errors import Unsupported, install_hint
from cfgraph.ir.dtypes import DType
from cfgraph.ir.shapes import Shape
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext

# larger images are refused before they are decoded
_MAX_PIXELS: Final = 1 << 28
_PERMITTED: Final = {"PNG": (1, 3, 4), "BMP": (3, 4), "GIF": (3,), "JPEG": (1, 3)}
_MODES: Final = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_CHANNELS: Final = "channels: int = 0"
_JPEG: Final = (
    f"{_CHANNELS}, ratio: int = 1, fancy_upscaling: bool = true, "
    "try_recover_truncated: bool = false, acceptable_fraction: float = 1.0, "
    "dct_method: string = ''"
)


class ImageDecoder(Op, abstract=True):
    """An op that decodes one image, with as many channels as it has or as `channels` requests."""

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [Shape((None, None, context.attr("channels") or None))]


class DecodePng(ImageDecoder):
    """Image of encoded data, with as many channels as it has or as `channels` requests."""

    signature = "contents: string -> image: dtype"
    attrs = f"{_CHANNELS}, dtype: {{uint8, uint16}} = uint8"

    @staticmethod
    def kernel(xp: ModuleType, channels: int, dtype: DType, /, contents: Any) -> Any:
        return _decoded(contents, channels, dtype, expand=False)


class DecodeBmp(ImageDecoder):
    """Image of encoded data, with as many channels as it has."""

    signature = "contents: string -> image: uint8"
    attrs = _CHANNELS

    @staticmethod
    def kernel(xp: ModuleType, channels: int, /, contents: Any) -> Any:
        return _decoded(contents, channels, None, expand=False)


class DecodeJpeg(ImageDecoder):
    """Image of encoded data, within the tolerance of libjpeg."""

    signature = "contents: string -> image: uint8"
    attrs = _JPEG

    @staticmethod
    def kernel(xp: ModuleType, channels: int, ratio: int, /, contents: Any) -> Any:
        if ratio not in (1, 2, 4, 8):
            raise OpError(f"ratio must be 1, 2, 4, or 8, got {ratio}")
        if ratio != 1:
            raise Unsupported(f"DecodeJpeg with ratio {ratio} is not supported", code="CFG701")
        return _decoded(contents, channels, None, expand=False)


class DecodeAndCropJpeg(ImageDecoder):
    """Window (y, x, height, width) of an encoded image."""

    signature = "contents: string, crop_window: int32 -> image: uint8"
    attrs = _JPEG

    @staticmethod
    def kernel(xp: ModuleType, channels: int, ratio: int, /, contents: Any, window: Any) -> Any:
        image = DecodeJpeg.kernel(xp, channels, ratio, contents)
        if window.shape != (4,):
            raise OpError(f"crop_window must have 4 elements, has shape {list(window.shape)}")
        y, x, height, width = window.tolist()
        fits = y + height <= image.shape[0] and x + width <= image.shape[1]
        if min(y, x) < 0 or min(height, width) <= 0 or not fits:
            raise OpError(f"Invalid crop window {window.tolist()} for shape {list(image.shape)}")
        return image[y : y + height, x : x + width]


class DecodeGif(Op):
    """Frames of an encoded animation, in colors."""

    signature = "contents: string -> image: uint8"

    @staticmethod
    def kernel(xp: ModuleType, contents: Any) -> Any:
        frames = _decoded(contents, 3, None, expand=True)
        return frames if frames.ndim == 4 else frames[None]

    shape = staticmethod(lambda context: [Shape((None, None, None, 3))])


class DecodeImage(Op):
    """Image of encoded data of any format; floats are in [0, 1]."""

    signature = "contents: string -> image: dtype"
    attrs = (
        f"{_CHANNELS}, dtype: {{uint8, uint16, float32}} = uint8, expand_animations: bool = true"
    )

    @staticmethod
    def kernel(
        xp: ModuleType, channels: int, dtype: DType, expand_animations: bool, /, contents: Any
    ) -> Any:
        return _decoded(contents, channels, dtype, expand=expand_animations)


def _decoded(contents: Any, channels: int, dtype: DType | None, *, expand: bool) -> Any:
    """The pixels of encoded data; the frames of an animation, or the first one of them."""
    data: Any = np.asarray(contents, object)
    if data.ndim:
        raise OpError(f"contents must be scalar, got shape {list(data.shape)}")
    if channels not in (0, 1, 3, 4):
        raise OpError(f"channels must be 0, 1, 3, or 4, got {channels}")
    try:
        from PIL import Image, ImageSequence, UnidentifiedImageError
    except ImportError:
        message = "Pillow, which decodes images, is not installed"
        raise Unsupported(message, hint=install_hint("image"), code="CFG701") from None
    try:
        with Image.open(BytesIO(data[()]), formats=("PNG", "BMP", "GIF", "JPEG")) as image:
            if image.width * image.height * getattr(image, "n_frames", 1) > _MAX_PIXELS:
                raise OpError(f"the image has more than {_MAX_PIXELS} pixels")
            if channels and channels not in _PERMITTED[image.format or ""]:
                raise OpError(f"{image.format} does not support {channels} channels")
            if image.format == "GIF":
                channels = channels or 3
                frames = [_pixels(frame, channels) for frame in ImageSequence.Iterator(image)]
                pixels = np.stack(frames) if expand else frames[0]
            else:
                pixels = _pixels(image, channels, is_png=image.format == "PNG")
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise OpError(f"Unknown image file format, or invalid data: {error}") from None
    return _converted(pixels, dtype, 257 if image.format == "PNG" else 256)


def _pixels(image: Any, channels: int, *, is_png: bool = False) -> Any:
    """Height, width, and channels of an image."""
    if image.mode.startswith("I;16"):
        deep = np.asarray(image).astype(np.uint16)
        pixels = np.repeat(deep[..., None], max(channels, 1), axis=2)
        if channels == 4:
            pixels[..., 3] = 65535
        return pixels
    own = len(image.getbands()) if image.mode != "P" else 4 if "transparency" in image.info else 3
    count = channels or own
    if image.mode == "P":  # transparency by color has no direct way to other modes
        image = image.convert("RGBA")
    if is_png and count == 1 and own > 2:
        return _gray(np.asarray(image.convert("RGB")))
    pixels = np.asarray(image.convert(_MODES[count]), np.uint8)
    return pixels.reshape((*pixels.shape[:2], count))


def _gray(colors: Any) -> Any:
    """The luma of colors as libpng computes it: in 15 bits, rounded down."""
    weights = np.array([9798, 19235, 3735], np.int32)
    return (colors @ weights >> 15).astype(np.uint8)[..., None]


def _converted(pixels: Any, dtype: DType | None, factor: int) -> Any:
    """The pixels as numbers of a type; `factor` makes 16 bits of 8."""
    wanted = np.dtype(np.uint8) if dtype is None else dtype.numpy
    if wanted == pixels.dtype:
        return pixels
    if wanted == np.float32:
        return pixels.astype(np.float32) * np.float32(1 / np.iinfo(pixels.dtype).max)
    if wanted == np.uint16:
        return pixels.astype(np.uint16) * np.uint16(factor)
    return (pixels >> 8).astype(np.uint8)
