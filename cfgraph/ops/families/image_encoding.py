"""Encoding of images: PNG as libpng writes it, and JPEG by Pillow."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from io import BytesIO
from threading import Lock
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.names import decode_text
from cfgraph.ir.shapes import SCALAR_SHAPE, Shape
from cfgraph.ops.kernels.image_files import pillow
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext

# -- PNG --------------------------------------------------------------------------------------

_COLOR_TYPES: Final = {1: 0, 2: 4, 3: 2, 4: 6}
_MAX_CHUNK: Final = 8192


class EncodePng(Op):
    """Encoded data of each image of a batch."""

    signature = "image: T -> contents: string"
    attrs = "compression: int = -1, T: {uint8, uint16} = uint8"

    @staticmethod
    def kernel(xp: ModuleType, compression: int, /, image: Any) -> Any:
        if not -1 <= compression <= 9:
            raise OpError(f"compression should be in [-1, 9], got {compression}")
        if image.ndim < 3:
            raise OpError(f"image must have at least 3 dimensions, has shape {list(image.shape)}")
        *batch, height, width, channels = image.shape
        if channels not in _COLOR_TYPES:
            raise OpError(f"image must have 1, 2, 3, or 4 channels, has {channels}")
        if not height or not width:
            raise OpError(f"an image of shape {list(image.shape)} is empty")
        images = image.reshape(-1, height, width, channels)
        texts = np.empty(len(images), object)
        texts[:] = [_png(pixels, compression) for pixels in images]
        return texts.reshape(batch)[()]

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        image = context.inputs[0]
        return [image[:-3]]


def _png(pixels: Any, compression: int) -> bytes:
    height, width, channels = pixels.shape
    depth = 8 * pixels.itemsize
    header = struct.pack(">IIBBBBB", width, height, depth, _COLOR_TYPES[channels], 0, 0, 0)
    rows = pixels.astype(f">u{pixels.itemsize}").reshape(height, -1).view(np.uint8)
    packed = _packed(_filtered(rows, channels * pixels.itemsize), compression)
    starts = range(0, len(packed), _MAX_CHUNK)
    chunks = [(b"IDAT", packed[start : start + _MAX_CHUNK]) for start in starts]
    chunks = [(b"IHDR", header), *chunks, (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _packed(data: bytes, compression: int) -> bytes:
    """Compressed data, with the smallest windows that libpng would choose and declare."""
    size = len(data)
    bits = max(9, min(15, (size + 261).bit_length()))
    packer = zlib.compressobj(compression, zlib.DEFLATED, bits, 8, zlib.Z_FILTERED)
    packed = packer.compress(data) + packer.flush()
    if size > 16384:
        return packed
    method, flags = max(0, (size - 1).bit_length() - 8) << 4 | 8, packed[1] & 0xE0
    return bytes([method, flags + -(method * 256 + flags) % 31]) + packed[2:]


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + checksum


def _filtered(rows: Any, step: int) -> bytes:
    """Each row behind the number of the filter that leaves the smallest differences."""
    above = np.vstack([np.zeros_like(rows[:1]), rows[:-1]])
    left, corner = (np.pad(x, [(0, 0), (step, 0)])[:, : rows.shape[1]] for x in (rows, above))
    mean = ((left.astype(np.uint16) + above) >> 1).astype(np.uint8)
    predictions = [np.zeros_like(rows), left, above, mean, _paeth(left, above, corner)]
    differences = np.stack([rows - predicted for predicted in predictions])
    sizes = np.minimum(differences, -differences).sum(axis=2, dtype=np.int64)
    best = sizes.argmin(axis=0)
    chosen = differences[best, np.arange(len(rows))]
    return np.hstack([best[:, None].astype(np.uint8), chosen]).tobytes()


def _paeth(left: Any, above: Any, corner: Any) -> Any:
    """Of the neighbors of each byte, that nearest to left + above - corner."""
    a, b, c = (x.astype(np.int16) for x in (left, above, corner))
    to_a, to_b, to_c = abs(b - c), abs(a - c), abs(a + b - 2 * c)
    is_a = (to_a <= to_b) & (to_a <= to_c)
    return np.where(is_a, left, np.where(to_b <= to_c, above, corner))


# -- JPEG -------------------------------------------------------------------------------------

_MODES: Final = {1: "L", 3: "RGB"}
_DENSITY_UNITS: Final = {"in": 1, "cm": 2}
# of libjpeg
_MAX_SIDE: Final = 65500
_MAX_XMP: Final = 65504
_BUFFER_LOCK: Final = Lock()


class JpegHeader(NamedTuple):
    """The form of an encoded image, and the data that it contains besides its pixels."""

    channels: int
    progressive: bool
    optimize: bool
    subsampling: str
    density: bytes
    xmp: bytes


class _JpegEncoder(Op, abstract=True):
    """An op that encodes one image."""

    shape = staticmethod(lambda context: [SCALAR_SHAPE])


class EncodeJpeg(_JpegEncoder):
    """Encoded data of an image, of a quality of 0 to 100."""

    signature = "image: uint8 -> contents: string"
    attrs = (
        "format: {'', 'grayscale', 'rgb'} = '', quality: int = 95, progressive: bool = false, "
        "optimize_size: bool = false, chroma_downsampling: bool = true, "
        "density_unit: {'in', 'cm'} = 'in', x_density: int = 300, y_density: int = 300, "
        "xmp_metadata: string = ''"
    )

    @staticmethod
    def kernel(xp: ModuleType, quality: int, header: JpegHeader, /, image: Any) -> Any:
        return _jpeg(image, quality, header)

    @classmethod
    def header(cls, node: Node) -> JpegHeader:
        """The attributes, but for the quality."""
        return JpegHeader(
            channels={"": 0, "grayscale": 1, "rgb": 3}[decode_text(node.attr("format"))],
            progressive=node.attr("progressive"),
            optimize=node.attr("optimize_size"),
            subsampling="4:2:0" if node.attr("chroma_downsampling") else "4:4:4",
            density=struct.pack(
                ">BHH",
                _DENSITY_UNITS[decode_text(node.attr("density_unit"))],
                node.attr("x_density") & 0xFFFF,
                node.attr("y_density") & 0xFFFF,
            ),
            xmp=node.attr("xmp_metadata"),
        )


class EncodeJpegVariableQuality(_JpegEncoder):
    """Encoded data of an image, of a quality that is an input."""

    signature = "images: uint8, quality: int32 -> contents: string"

    @staticmethod
    def kernel(xp: ModuleType, image: Any, quality: Any) -> Any:
        if quality.ndim:
            raise OpError(f"quality must be scalar, got shape {list(quality.shape)}")
        density = struct.pack(">BHH", 1, 300, 300)
        header = JpegHeader(0, False, False, "4:2:0", density, b"")
        return _jpeg(image, int(quality), header)


def _jpeg(image: Any, quality: int, header: JpegHeader) -> bytes:
    if not 0 <= quality <= 100:
        raise OpError(f"quality must be in [0, 100], got {quality}")
    if image.ndim != 3:
        raise OpError(f"image must be 3-dimensional, has shape {list(image.shape)}")
    height, width, channels = image.shape
    if channels not in _MODES or header.channels not in (0, channels):
        expected = header.channels or "1 or 3"
        raise OpError(f"image must have {expected} channels, has {channels}")
    if not 0 < height <= _MAX_SIDE or not 0 < width <= _MAX_SIDE:
        raise OpError(f"JPEG has no images of {height} x {width} pixels")
    if len(header.xmp) > _MAX_XMP:
        raise OpError(f"xmp_metadata has {len(header.xmp)} bytes, more than {_MAX_XMP}")
    pixels = np.ascontiguousarray(image if channels == 3 else image[..., 0])
    options: dict[str, Any] = {"xmp": header.xmp} if header.xmp else {}
    buffer = BytesIO()
    is_whole = header.progressive or header.optimize
    with _buffer_of(4 * pixels.nbytes) if is_whole else nullcontext():
        pillow().fromarray(pixels).save(
            buffer,
            "JPEG",
            quality=max(quality, 1),
            progressive=header.progressive,
            optimize=header.optimize,
            subsampling=header.subsampling if channels == 3 else "4:4:4",
            **options,
        )
    data = buffer.getvalue()
    # behind the start, the marker, the length, "JFIF", a zero, and the version
    return data[:13] + header.density + data[18:]


@contextmanager
def _buffer_of(size: int) -> Iterator[None]:
    """Let Pillow encode into a buffer of a size at least: what it reserves is too small for noise.

    An optimized or progressive image has to fit into it as a whole.
    """
    pillow()
    from PIL import ImageFile

    with _BUFFER_LOCK:
        usual = ImageFile.MAXBLOCK
        ImageFile.MAXBLOCK = max(usual, size)
        try:
            yield
        finally:
            ImageFile.MAXBLOCK = usual
