"""Decoders of image files, which give the pixels that TensorFlow's libraries give.

BMP is read here. Of PNG, GIF, and JPEG, Pillow undoes the compression, and what follows is done
here: samples of 16 bits, colors to gray, transparency, frames on a canvas.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.errors import Unsupported, install_hint
from cfgraph.ops.opdef.op import OpError

# larger images are refused before they are decoded
_MAX_PIXELS: Final = 1 << 28
# what Pillow raises for damaged data
_PILLOW_ERRORS: Final = (OSError, SyntaxError, ValueError, TypeError, LookupError, struct.error)
_MAGIC: Final = {b"\x89PNG\r\n\x1a\n": "PNG", b"BM": "BMP", b"GIF8": "GIF", b"\xff\xd8\xff": "JPEG"}


def file_format(data: bytes) -> str:
    """PNG, BMP, GIF, or JPEG, by the first bytes."""
    for magic, name in _MAGIC.items():
        if data.startswith(magic):
            return name
    raise OpError("Unknown image file format. One of JPEG, PNG, GIF, BMP required.")


def pillow() -> Any:
    """The module of images of Pillow."""
    try:
        from PIL import Image
    except ImportError:
        message = "Pillow, which decodes and encodes images, is not installed"
        raise Unsupported(message, hint=install_hint("image"), code="CFG701") from None
    return Image


@contextmanager
def _opened(data: bytes, kind: str) -> Iterator[Any]:
    """An image of Pillow, whose errors are those of an op."""
    library = pillow()
    try:
        with library.open(BytesIO(data), formats=(kind,)) as image:
            _check_size(image.width, image.height)
            yield image
    except library.UnidentifiedImageError:
        raise OpError(f"Invalid {kind} data, the header is damaged") from None
    except (*_PILLOW_ERRORS, library.DecompressionBombError) as error:
        raise OpError(f"Invalid {kind} data: {error}") from None


def _check_size(width: int, height: int, frames: int = 1) -> None:
    if min(width, height) <= 0:
        raise OpError(f"Invalid size of an image: {width} x {height}")
    if width * height * frames > _MAX_PIXELS:
        raise OpError(f"the image has more than {_MAX_PIXELS} pixels")


# -- PNG --------------------------------------------------------------------------------------

_GRAY, _COLORS, _PALETTE, _GRAY_ALPHA, _COLORS_ALPHA = 0, 2, 3, 4, 6
_SRGB_GAMMA: Final = 0.45455
_INSIGNIFICANT: Final = 0.05
# how Pillow unpacks the high, and the low bytes of samples of 16 bits
_BYTES_OF_16: Final = {
    _COLORS: ("RGB;16B", "RGB;16L"),
    _COLORS_ALPHA: ("RGBA;16B", "RGBA;16L"),
}


def png_pixels(data: bytes, channels: int, *, deep: bool) -> Any:
    """Samples of 8 bits, or 16 (`deep`), with as many channels as the file has or as requested."""
    with _opened(data, "PNG") as image:
        if b"IEND" not in data:
            raise OpError("Invalid PNG data, the end is missing")
        depth, color_type = data[24], data[25]
        transparent = image.info.get("transparency")
        gamma = image.info.get("gamma", _SRGB_GAMMA if "srgb" in image.info else 1.0)
        if color_type == _PALETTE:
            samples = _palette(image, transparent)[np.asarray(image)]
            samples = samples[..., : 3 if transparent is None else 4]
            transparent = None
        else:
            samples = _png_samples(data, depth, color_type)
    want = channels or samples.shape[2]
    color = samples[..., :3] if samples.shape[2] > 2 else samples[..., :1]
    parts = [_gray(color, gamma)] if want < 3 else [color] * (3 if color.shape[2] == 1 else 1)
    if want % 2 == 0:
        parts.append(_alpha(samples, color, depth, transparent))
    result = np.concatenate(parts, axis=2)
    if result.dtype == np.uint16:
        return result if deep else (result >> 8).astype(np.uint8)
    return result * np.uint16(257) if deep else result


def _png_samples(data: bytes, depth: int, color_type: int) -> Any:
    """The samples of an image without a palette, in the depth of the file, or in 8 bits."""
    if depth == 16 and color_type in _BYTES_OF_16:
        high, low = (_unpacked(data, form) for form in _BYTES_OF_16[color_type])
        return high.astype(np.uint16) << 8 | low
    if depth == 16 and color_type == _GRAY_ALPHA:  # the four bytes of each pixel
        return np.ascontiguousarray(_unpacked(data, "RGBA")).view(">u2").astype(np.uint16)
    samples = _unpacked(data, None)
    samples = samples if samples.ndim == 3 else samples[..., None]
    if samples.dtype == bool:
        return samples * np.uint8(255)
    return samples if samples.dtype == np.uint8 else samples.astype(np.uint16)


def _unpacked(data: bytes, form: str | None) -> Any:
    """The samples of an image, unpacked by Pillow in its own form, or in another."""
    with _opened(data, "PNG") as image:
        if form:
            image.tile = [(*image.tile[0][:3], form)]
        return np.asarray(image)


def _palette(image: Any, transparent: bytes | int | None) -> Any:
    """Colors and alpha of all indices."""
    colors = np.array(image.getpalette(), np.uint8).reshape(-1, 3)
    table = np.zeros((256, 4), np.uint8)
    table[: len(colors), :3] = colors
    table[:, 3] = 255
    if isinstance(transparent, bytes):
        alpha = np.frombuffer(transparent, np.uint8)[:256]
        table[: len(alpha), 3] = alpha
    elif transparent is not None:
        table[transparent, 3] = 0
    return table


def _alpha(samples: Any, color: Any, depth: int, transparent: Any) -> Any:
    """The alpha of samples, of a transparent color, or an opaque one, in the depth of the file."""
    if samples.shape[2] in (2, 4):
        return samples[..., -1:]
    if transparent is None:
        return np.full_like(color[..., :1], (1 << depth) - 1)
    scale = 255 // ((1 << depth) - 1) if 1 < depth < 8 else 1
    is_transparent = (color == np.multiply(transparent, scale)).all(axis=2, keepdims=True)
    return np.where(is_transparent, 0, np.iinfo(samples.dtype).max).astype(samples.dtype)


def _gray(colors: Any, gamma: float) -> Any:
    """The luma of colors as libpng computes it, in 15 bits, of the light if a gamma is declared."""
    if colors.shape[2] == 1:
        return colors
    weights = np.array([9797, 19234, 3737], np.int64)
    half = 1 << 14
    if abs(gamma - 1) <= _INSIGNIFICANT:
        half = half if colors.dtype == np.uint16 else 0
        luma = (colors @ weights + half >> 15).astype(colors.dtype)
    elif colors.dtype == np.uint16:
        message = "gray of colors of 16 bits with a gamma is not supported"
        raise Unsupported(message, hint="request 3 channels", code="CFG701")
    else:
        levels = np.arange(256) / 255
        light, level = (
            np.floor(255 * levels**x + 0.5).astype(np.uint8) for x in (1 / gamma, gamma)
        )
        luma = level[light[colors] @ weights + half >> 15]
    is_gray = (colors == colors[..., :1]).all(axis=2)
    return np.where(is_gray, colors[..., 0], luma)[..., None]


# -- BMP --------------------------------------------------------------------------------------


def bmp_pixels(data: bytes, channels: int) -> Any:
    """The samples of an uncompressed image; indices of a palette are not replaced by colors."""
    if len(data) < 32:
        raise OpError(f"Incomplete bmp content, requires at least 32 bytes, got {len(data)}")
    start, width, height, bits = struct.unpack_from("<i4xii2xh", data, 10)
    own = bits // 8
    if own not in (1, 3, 4):
        raise OpError(f"Number of channels inherent in the image must be 1, 3 or 4, was {own}")
    if channels not in (0, 3, 4):
        raise OpError(f"channels must be 0, 3 or 4 for BMP, but got {channels}")
    _check_size(width, abs(height))
    row = (own * width + 3) // 4 * 4
    if start < 0 or len(data) != start + row * abs(height):
        expected = start + row * abs(height)
        raise OpError(f"Input size should be {expected} bytes, is {len(data)} bytes")
    rows = np.frombuffer(data, np.uint8, offset=start).reshape(abs(height), row)
    pixels = rows[:: 1 if height < 0 else -1, : own * width].reshape(abs(height), width, own)
    order = [0] * (channels or 1) if own == 1 else [2, 1, 0, 3][: min(own, channels or own)]
    result = pixels[..., order]
    if channels != 4 or own == 4:
        return result
    opaque = np.full_like(result[..., :1], 255)
    return np.concatenate([result[..., :3], opaque], axis=2)


# -- GIF --------------------------------------------------------------------------------------


class _GifFrame(NamedTuple):
    """A frame as the file has it: its window, flags, colors, transparent index, and codes."""

    left: int
    top: int
    width: int
    height: int
    flags: int
    colors: Any
    transparent: int
    codes: bytes

    def indices(self) -> Any:
        """The index of the color of each pixel."""
        grays = bytes(value for value in range(256) for _ in range(3))
        size = struct.pack("<HH", self.width, self.height)
        head = b"GIF89a" + size + b"\xf7\0\0" + grays + b",\0\0\0\0" + size
        with _opened(head + bytes([self.flags & 0x40]) + self.codes + b";", "GIF") as image:
            return np.asarray(image)


def gif_frames(data: bytes, *, only_first: bool) -> Any:
    """Frames in colors, each drawn over the last one, whatever its disposal says."""
    frames = list(_gif_frames(data))
    if not frames:
        raise OpError("Invalid GIF data, it has no frame")
    width, height = max(f.width for f in frames), max(f.height for f in frames)
    frames = frames[:1] if only_first else frames
    _check_size(width, height, len(frames))
    canvases = np.zeros((len(frames), height, width, 3), np.uint8)
    for number, frame in enumerate(frames):
        if number:
            canvases[number] = canvases[number - 1]
        _draw(frame, canvases[number])
    return canvases


def _draw(frame: _GifFrame, canvas: Any) -> None:
    """Draw a frame on a canvas."""
    window = canvas[frame.top : frame.top + frame.height, frame.left : frame.left + frame.width]
    indices = frame.indices()[: window.shape[0], : window.shape[1]]
    is_opaque = indices != frame.transparent
    if indices[is_opaque].max(initial=0) >= len(frame.colors):
        raise OpError(f"found a color index outside of the color map of {len(frame.colors)}")
    window[is_opaque] = frame.colors[indices[is_opaque]]


def _gif_frames(data: bytes) -> Iterator[_GifFrame]:
    """The frames of a file, as far as they are complete."""
    try:
        everywhere, position = _color_table(data, 13, data[10])
        transparent = -1
        while data[position] != ord(";"):
            kind, position = data[position], position + 1
            if kind == ord("!"):
                end = _end_of_blocks(data, position + 1)
                if data[position] == 0xF9 and data[position + 2] & 1:
                    transparent = data[position + 5]
                position = end
            elif kind == ord(","):
                left, top, width, height, flags = struct.unpack_from("<HHHHB", data, position)
                colors, start = _color_table(data, position + 9, flags)
                colors = colors if flags & 0x80 else everywhere
                position = _end_of_blocks(data, start + 1)
                codes = data[start:position]
                yield _GifFrame(left, top, width, height, flags, colors, transparent, codes)
                transparent = -1
            else:
                raise OpError(f"Invalid GIF data, a block of the type {kind}")
    except (IndexError, struct.error):
        return


def _color_table(data: bytes, position: int, flags: int) -> tuple[Any, int]:
    """The colors that follow a descriptor, none without its flag, and where they end."""
    count = 2 << (flags & 7) if flags & 0x80 else 0
    end = position + 3 * count
    if end > len(data):
        raise IndexError
    return np.frombuffer(data[position:end], np.uint8).reshape(-1, 3), end


def _end_of_blocks(data: bytes, position: int) -> int:
    """The position behind the blocks, each with its length, that end with an empty one."""
    while data[position]:
        position += data[position] + 1
    return position + 1


# -- JPEG -------------------------------------------------------------------------------------

_END_OF_IMAGE: Final = b"\xff\xd9"
_START_OF_SCAN: Final = 0xDA
_FRAME_MARKERS: Final = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}


class JpegOptions(NamedTuple):
    """Options of a decoder: `ratio` reduces the image, `recover` accepts truncated data."""

    ratio: int = 1
    recover: bool = False


DEFAULT_OPTIONS: Final = JpegOptions()


def jpeg_pixels(data: bytes, channels: int, options: JpegOptions) -> Any:
    """Colors or grays."""
    with _opened(data + _END_OF_IMAGE if options.recover else data, "JPEG") as image:
        want = channels or min(len(image.getbands()), 3)
        is_cmyk = image.mode == "CMYK"
        if is_cmyk and want != 3:
            raise OpError("Invalid JPEG data: no way from CMYK to gray")
        # libjpeg itself reduces the image, and leaves out its colors
        image.draft(
            "L" if want == 1 else None, (image.width / options.ratio, image.height / options.ratio)
        )
        is_inverted = is_cmyk and "adobe" not in image.info
        pixels = np.asarray(image if is_cmyk else image.convert("L" if want == 1 else "RGB"))
    if is_cmyk:
        return _rgb(pixels if is_inverted else 255 - pixels)
    return pixels if want == 3 else pixels[..., None]


def _rgb(ink: Any) -> Any:
    """Colors of how much ink is absent, of three colors and of black."""
    wide = ink.astype(np.int32)
    return (wide[..., :3] * wide[..., 3:] // 255).astype(np.uint8)


def jpeg_shape(data: bytes) -> tuple[int, ...]:
    """Height, width, and channels as the header has them."""
    position, size = 2, None
    try:
        while (marker := data[position + 1]) != _START_OF_SCAN:
            if data[position] != 0xFF or marker == _END_OF_IMAGE[1]:
                break
            if marker in _FRAME_MARKERS:
                size = struct.unpack_from(">HHB", data, position + 5)
            position += 2 + struct.unpack_from(">H", data, position + 2)[0]
        else:
            if size:
                return size
    except (IndexError, struct.error):
        pass
    raise OpError("Invalid JPEG data, no frame in it")
