"""Recorder of images as TensorFlow decodes them: `python -m tests.ops.image_recorder`."""

from __future__ import annotations

import io
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
    np.savez_compressed(ARCHIVE, **arrays)


if __name__ == "__main__":
    record()
