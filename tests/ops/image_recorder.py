"""Recorder of decoded and encoded images of TensorFlow: `python -m tests.ops.image_recorder`."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ARCHIVE = Path(__file__).parents[2] / "fixtures" / "images.npz"


def encoded() -> Iterator[tuple[str, bytes]]:
    """Small images in all formats and modes."""
    from PIL import Image

    rng = np.random.default_rng(7)
    colors = Image.fromarray(rng.integers(0, 256, (6, 5, 4), np.uint8), "RGBA")
    smooth = np.add.outer(np.arange(16) * 9, np.arange(24) * 5)[..., None] + [0, 40, 9]
    photo = Image.fromarray(smooth.clip(0, 255).astype(np.uint8), "RGB")
    deep = Image.fromarray(rng.integers(0, 65536, (4, 3), np.uint16))
    images: list[tuple[str, str, Any, dict[str, Any]]] = [
        ("png_rgba", "PNG", colors, {}),
        ("png_rgb", "PNG", colors.convert("RGB"), {}),
        ("png_gray", "PNG", colors.convert("L"), {}),
        ("png_gray_alpha", "PNG", colors.convert("LA"), {}),
        ("png_palette", "PNG", colors.convert("P"), {}),
        ("png_16", "PNG", deep, {}),
        ("bmp_rgb", "BMP", colors.convert("RGB"), {}),
        ("bmp_gray", "BMP", colors.convert("L"), {}),
        (
            "gif",
            "GIF",
            photo.convert("P"),
            {"save_all": True, "append_images": [photo.rotate(180).convert("P")]},
        ),
        ("jpeg_rgb", "JPEG", photo, {"quality": 95}),
        ("jpeg_gray", "JPEG", photo.convert("L"), {}),
    ]
    for name, kind, image, options in images:
        buffer = io.BytesIO()
        image.save(buffer, kind, **options)
        yield name, buffer.getvalue()
    yield from pngs(rng)
    yield from bmps(rng)
    yield "gif_overlaps", gif(rng)
    buffer = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (9, 8, 4), np.uint8), "CMYK").save(buffer, "JPEG")
    yield "jpeg_cmyk", buffer.getvalue()


def pngs(rng: np.random.Generator) -> Iterator[tuple[str, bytes]]:
    """Images of all depths and color types, some with a transparent color, or interlaced."""
    kinds = [(0, 1, (1, 2, 4, 16)), (2, 3, (8, 16)), (3, 1, (1, 4)), (4, 2, (16,)), (6, 4, (16,))]
    for color_type, channels, depths in kinds:
        for depth in depths:
            pixels = rng.integers(0, 1 << depth, (5, 9, channels))
            chunks = [] if color_type != 3 else [(b"PLTE", rng.bytes(3 << depth))]
            name = f"png_{depth}_bits_of_{color_type}"
            yield name, png(pixels, depth, color_type, chunks)
            if color_type in (0, 2):
                color = pixels[2, 3].astype(">u2").tobytes()
                chunks = (
                    [(b"gAMA", struct.pack(">I", 45455))] if (depth, channels) == (8, 3) else []
                )
                chunks.append((b"tRNS", color))
            elif color_type == 3:
                chunks.append((b"tRNS", rng.bytes(1 << depth)))
            else:
                continue
            yield f"{name}_transparent", png(pixels, depth, color_type, chunks, interlaced=True)
    whole = png(rng.integers(0, 256, (3, 4, 3)), 8, 2, [])
    yield "png_without_end", whole[:-12]


def png(
    pixels: Any, depth: int, color_type: int, chunks: Any, *, interlaced: bool = False
) -> bytes:
    """A PNG file, in the seven passes of Adam7 if it is interlaced."""
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2)]
    starts = [*passes, (1, 0, 2, 1)] if interlaced else [(0, 0, 1, 1)]
    parts = [pixels[top::down, left::right] for top, left, down, right in starts]
    rows = [row.ravel() for part in parts if part.size for row in part]
    packed = zlib.compress(b"".join(b"\0" + packed_row(row, depth) for row in rows))
    size = struct.pack(">II", pixels.shape[1], pixels.shape[0])
    header = size + bytes([depth, color_type, 0, 0, interlaced])
    chunks = [(b"IHDR", header), *chunks, (b"IDAT", packed), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, data) for kind, data in chunks)


def chunk(kind: bytes, data: bytes) -> bytes:
    """A chunk of a PNG file."""
    checksum = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + checksum


def packed_row(row: Any, depth: int) -> bytes:
    """The bytes of samples of some bits."""
    if depth >= 8:
        return bytes(row.astype(f">u{depth // 8}").tobytes())
    bits = np.unpackbits(row.astype(np.uint8)[:, None], axis=1)[:, 8 - depth :]
    return np.packbits(bits).tobytes()


def bmps(rng: np.random.Generator) -> Iterator[tuple[str, bytes]]:
    """Images of one, three, and four bytes a pixel, whole or not; top-down ones end TensorFlow."""
    for channels in (1, 3, 4):
        yield f"bmp_{channels}", bmp(rng.integers(0, 256, (4, 5, channels), np.uint8))
    whole = bmp(rng.integers(0, 256, (4, 5, 3), np.uint8))
    yield "bmp_short", whole[:-1]
    yield "bmp_long", whole + b"\0"


def bmp(pixels: Any, *, top_down: bool = False) -> bytes:
    """A BMP file with these bytes, the last row first unless it is top-down."""
    height, width, channels = pixels.shape
    rows = [row.tobytes() for row in (pixels if top_down else pixels[::-1])]
    data = b"".join(row + b"\0" * (-len(row) % 4) for row in rows)
    signed = -height if top_down else height
    info = struct.pack("<IiiHHIIiiII", 40, width, signed, 1, 8 * channels, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(data), 0, 0, 54) + info + data


def gif(rng: np.random.Generator) -> bytes:
    """Frames that overlap, with a transparent color, their own colors, and each disposal."""
    frames = [(0, 0, 7, 9, 0, 0), (2, 1, 4, 5, 2, 0x83), (6, 5, 5, 6, 3, 0), (1, 0, 3, 3, 1, 0)]
    data = b"GIF89a" + struct.pack("<HHBBB", 9, 7, 0xF3, 0, 0) + rng.bytes(48)
    for left, top, height, width, disposal, flags in frames:
        data += b"\x21\xf9\x04" + struct.pack("<BHBB", disposal << 2 | 1, 5, 3, 0)
        data += b"," + struct.pack("<HHHHB", left, top, width, height, flags)
        data += rng.bytes(48) if flags else b""
        indices = rng.integers(0, 16, height * width)
        codes = [
            code for start in range(0, len(indices), 14) for code in (16, *indices[start:][:14])
        ]
        # codes of five bits, the lowest first: a clear code before the width would grow
        bits = np.unpackbits(np.array([*codes, 17], np.uint8)[:, None], axis=1, bitorder="little")
        packed = np.packbits(bits[:, :5], bitorder="little").tobytes()
        data += bytes([4, len(packed)]) + packed + b"\0"
    return data + b";"


def encodings() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Images to encode, and how."""
    photo = np.add.outer(np.arange(11) * 9, np.arange(14) * 5)[..., None] + [0, 40, 9, 70]
    for channels in (1, 2, 3, 4):
        pixels = photo[..., :channels].astype(np.uint8)
        yield f"encoded/EncodePng/{channels}", pixels, {}
        yield f"encoded/EncodePng/{channels}/16", pixels.astype(np.uint16) * 251, {}
    colors = photo[..., :3].astype(np.uint8)
    yield "encoded/EncodeJpeg/gray", colors[..., :1], {"format": "grayscale"}
    options: list[dict[str, Any]] = [
        {},
        {"quality": 0},
        {"progressive": True, "optimize_size": True},
        {"chroma_downsampling": False},
        {"density_unit": "cm", "x_density": 7, "y_density": 9},
        {"xmp_metadata": b"<x/>"},
    ]
    for index, chosen in enumerate(options):
        yield f"encoded/EncodeJpeg/{index}", colors, chosen


def record() -> None:
    """Decode all images with TensorFlow, and write the archive."""
    import tensorflow as tf

    arrays: dict[str, Any] = {}
    for name, data in encoded():
        arrays[f"{name}/data"] = np.frombuffer(data, np.uint8)
        kind = {"png": "DecodePng", "bmp": "DecodeBmp", "gif": "DecodeGif"}.get(name.split("_")[0])
        for op in (kind or "DecodeJpeg", "DecodeImage"):
            for channels in (0, 1, 3, 4) if op != "DecodeGif" else (0,):
                for dtype in ("uint8", "uint16", "float32"):
                    options = {} if op == "DecodeGif" else {"channels": channels}
                    if op == "DecodeImage" or (op == "DecodePng" and dtype != "float32"):
                        options["dtype"] = getattr(tf, dtype)
                    elif dtype != "uint8":
                        continue
                    key = f"{name}/{op}/{channels}/{dtype}"
                    try:
                        arrays[key] = getattr(tf.raw_ops, op)(contents=data, **options).numpy()
                    except tf.errors.OpError:
                        arrays[key] = np.zeros(0, np.uint8)
    for name, image, options in encodings():
        op = getattr(tf.raw_ops, name.split("/")[1])
        data = op(image=tf.constant(image), **options).numpy()
        arrays[name] = np.frombuffer(data, np.uint8)
    np.savez_compressed(ARCHIVE, **arrays)


if __name__ == "__main__":
    record()
