"""Decoding of images, by Pillow; BMP without it."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir.dtypes import DType, float32, uint8, uint16
from cfgraph.ir.graph import Node
from cfgraph.ir.names import decode_text
from cfgraph.ir.shapes import Shape
from cfgraph.ops.kernels.image_files import (
    DEFAULT_OPTIONS,
    JpegOptions,
    bmp_pixels,
    file_format,
    gif_frames,
    jpeg_pixels,
    jpeg_shape,
    png_pixels,
)
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext

_CHANNELS: Final = "channels: int = 0"
_JPEG: Final = (
    f"{_CHANNELS}, ratio: int = 1, fancy_upscaling: bool = true, "
    "try_recover_truncated: bool = false, acceptable_fraction: float = 1.0, "
    "dct_method: string = ''"
)


def _bytes(contents: Any) -> bytes:
    """The encoded data of an input."""
    data: Any = np.asarray(contents, object)
    if data.ndim:
        raise OpError(f"contents must be scalar, got shape {list(data.shape)}")
    return data[()]  # type: ignore[no-any-return]


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
        return _still(_bytes(contents), channels, dtype)


class DecodeBmp(ImageDecoder):
    """Image of encoded data, with as many channels as it has."""

    signature = "contents: string -> image: uint8"
    attrs = _CHANNELS

    @staticmethod
    def kernel(xp: ModuleType, channels: int, /, contents: Any) -> Any:
        data = _bytes(contents)
        if file_format(data) != "BMP":
            raise OpError("Trying to decode another format than BMP with DecodeBmp")
        return bmp_pixels(data, channels)


class _JpegDecoder(ImageDecoder, abstract=True):
    """An op that decodes images within the tolerance of libjpeg."""

    attrs = _JPEG

    @classmethod
    def jpeg_options(cls, node: Node) -> JpegOptions:
        """The attributes that say how to decode."""
        ratio = node.attr("ratio")
        if ratio not in (1, 2, 4, 8):
            raise OpError(f"ratio must be 1, 2, 4, or 8, got {ratio}")
        method = decode_text(node.attr("dct_method"))
        if method not in ("", "INTEGER_FAST", "INTEGER_ACCURATE"):
            raise OpError(f"dct_method must be INTEGER_FAST or INTEGER_ACCURATE, got {method!r}")
        return JpegOptions(ratio, recover=node.attr("try_recover_truncated"))


class DecodeJpeg(_JpegDecoder):
    """Image of encoded data, with as many channels as it has or as `channels` requests."""

    signature = "contents: string -> image: uint8"

    @staticmethod
    def kernel(xp: ModuleType, channels: int, jpeg_options: JpegOptions, /, contents: Any) -> Any:
        return _still(_bytes(contents), channels, uint8, jpeg_options)


class DecodeAndCropJpeg(_JpegDecoder):
    """Window (y, x, height, width) of an encoded image."""

    signature = "contents: string, crop_window: int32 -> image: uint8"

    @staticmethod
    def kernel(
        xp: ModuleType, channels: int, jpeg_options: JpegOptions, /, contents: Any, window: Any
    ) -> Any:
        data = _bytes(contents)
        if file_format(data) != "JPEG":
            raise OpError("DecodeAndCropJpeg operation can run on JPEG only")
        image = _still(data, channels, uint8, jpeg_options)
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
        data = _bytes(contents)
        if file_format(data) == "GIF":
            return gif_frames(data, only_first=False)
        return _still(data, 3, uint8)[None]

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
        data = _bytes(contents)
        kind = file_format(data)
        if kind == "BMP":
            return _converted(bmp_pixels(data, channels), dtype)
        if kind == "GIF":
            return _animation(data, channels, dtype, only_first=not expand_animations)
        return _still(data, channels, dtype)


class ExtractJpegShape(Op):
    """Height, width, and channels of an encoded image."""

    signature = "contents: string -> image_shape: output_type"
    attrs = "output_type: {int32, int64} = int32"

    @staticmethod
    def kernel(xp: ModuleType, output_type: DType, /, contents: Any) -> Any:
        return np.array(jpeg_shape(_bytes(contents)), output_type.numpy)

    shape = staticmethod(lambda context: [Shape((3,))])


def _still(data: bytes, channels: int, dtype: DType, options: JpegOptions = DEFAULT_OPTIONS) -> Any:
    """The pixels of one image as numbers of a type."""
    if channels not in (0, 1, 3, 4):
        raise OpError(f"channels must be 0, 1, 3, or 4, got {channels}")
    kind = file_format(data)
    if kind == "PNG":
        return _converted(png_pixels(data, channels, deep=dtype is not uint8), dtype)
    if kind == "GIF":
        frames = _animation(data, channels, dtype, only_first=False)
        if len(frames) > 1:
            raise OpError(f"Got {len(frames)} frames, which DecodeGif and DecodeImage decode alone")
        return frames[0]
    if kind == "BMP":
        raise OpError("Trying to decode BMP format with another op; use DecodeBmp or DecodeImage")
    if channels == 4:
        raise OpError("JPEG does not support 4 channels")
    return _converted(jpeg_pixels(data, channels, options), dtype)


def _animation(data: bytes, channels: int, dtype: DType, *, only_first: bool) -> Any:
    """The frames of an animation, or the pixels of its first one, as numbers of a type."""
    if channels not in (0, 3):
        raise OpError(f"GIF has 3 channels, {channels} are requested")
    frames = _converted(gif_frames(data, only_first=only_first), dtype)
    return frames[0] if only_first else frames


def _converted(pixels: Any, dtype: DType) -> Any:
    """The pixels as numbers of a type."""
    if dtype is float32:
        return pixels.astype(np.float32) * np.float32(1 / np.iinfo(pixels.dtype).max)
    if dtype is uint16 and pixels.dtype == np.uint8:
        return pixels.astype(np.uint16) * np.uint16(256)
    return pixels
