"""Images are decoded as TensorFlow decodes them; JPEG within the tolerance of libjpeg."""

from __future__ import annotations

import sys
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfgraph import Builder, ExecutionError, Session, Unsupported
from tests.ops.image_recorder import bmp, chunk, encodings

ARCHIVE = np.load(Path(__file__).parents[2] / "fixtures" / "images.npz")
IMAGES = sorted({key.split("/")[0] for key in ARCHIVE.files} - {"encoded"})
JPEG = ARCHIVE["jpeg_rgb/data"].tobytes()
needs_pillow = pytest.mark.skipif(find_spec("PIL") is None, reason="needs the extra `image`")


def result(op: str, *inputs: Any, **attrs: Any) -> Any:
    build = Builder()
    constants = [
        build.const(np.array(value, object) if isinstance(value, bytes) else value)
        for value in inputs
    ]
    output = getattr(build, op)(*constants, **attrs)
    with Session(build.graph) as session:
        return session.run([output.name])[0]


def decoded(name: str, op: str, channels: str, dtype: str) -> Any:
    attrs = {} if op == "DecodeGif" else {"channels": int(channels)}
    if op in ("DecodeImage", "DecodePng"):
        attrs["dtype"] = dtype
    return result(op, ARCHIVE[f"{name}/data"].tobytes(), **attrs)


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_is_decoded_as_recorded(name: str) -> None:
    if not name.startswith("bmp"):
        pytest.importorskip("PIL", reason="needs the extra `image`")
    wrong = {}
    for key in ARCHIVE.files:
        image, *node = key.split("/")
        if image != name or len(node) < 3:
            continue
        want = ARCHIVE[key]
        try:
            have = decoded(name, *node)
        except ExecutionError as error:
            have = np.zeros(0, np.uint8)
            if want.size:
                wrong[key] = str(error)[:200]
                continue
        if have.shape != want.shape or have.dtype != want.dtype:
            wrong[key] = f"{have.dtype}{have.shape}, recorded {want.dtype}{want.shape}"
        elif (distance := np.abs(have.astype(float) - want.astype(float)).max(initial=0)) > 0:
            full = {"uint8": 1, "uint16": 257, "float32": 1 / 255}[want.dtype.name]
            if distance > full * (8 if "jpeg" in name else 0) + 1e-7:
                wrong[key] = f"differs by {distance}"
    assert wrong == {}


def test_an_image_without_pillow_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(Unsupported) as error:
        decoded("png_rgb", "DecodePng", "3", "uint8")
    assert "image" in (error.value.hint or "")


@needs_pillow
def test_an_image_is_encoded_as_recorded() -> None:
    wrong = []
    for name, image, options in encodings():
        op = name.split("/")[1]
        data, recorded = result(op, image, **options), ARCHIVE[name].tobytes()
        if op == "EncodePng":  # another zlib may find other, equally good bytes
            dtype = image.dtype.name
            pixels = result("DecodePng", data, dtype=dtype)
            again = result("DecodePng", recorded, dtype=dtype)
            if not (pixels.tolist() == again.tolist() == image.tolist()):
                wrong.append(name)
        elif data != recorded:
            wrong.append(name)
    assert wrong == []


def test_png_is_encoded_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    images = np.arange(2 * 3 * 4 * 3, dtype=np.uint8).reshape(2, 3, 4, 3)
    first, second = result("EncodePng", images).tolist()
    assert first.startswith(b"\x89PNG")
    assert first[16:26] == second[16:26] == bytes([0, 0, 0, 4, 0, 0, 0, 3, 8, 2])
    assert first != second


def test_an_encoder_without_pillow_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(Unsupported) as error:
        result("EncodeJpeg", np.zeros((2, 2, 3), np.uint8))
    assert "image" in (error.value.hint or "")


def test_the_shape_of_a_jpeg_needs_no_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert result("ExtractJpegShape", JPEG).tolist() == [16, 24, 3]
    with pytest.raises(ExecutionError, match="JPEG"):
        result("ExtractJpegShape", JPEG[:30])


def test_a_bmp_from_top_to_bottom_equals_one_from_bottom_to_top() -> None:
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    down = result("DecodeBmp", bmp(pixels, top_down=True))
    assert down.tolist() == result("DecodeBmp", bmp(pixels)).tolist()
    assert down.tolist() == pixels[..., ::-1].tolist()


@needs_pillow
@pytest.mark.parametrize("ratio", [1, 2, 4, 8])
def test_a_jpeg_is_reduced_by_a_ratio(ratio: int) -> None:
    reduced = result("DecodeJpeg", JPEG, ratio=ratio)
    assert reduced.shape == (16 // ratio, 24 // ratio, 3)
    whole = result("DecodeJpeg", JPEG).astype(float)
    blocks = whole.reshape(16 // ratio, ratio, 24 // ratio, ratio, 3).mean(axis=(1, 3))
    assert np.abs(reduced - blocks).max() < 12


@needs_pillow
def test_a_truncated_jpeg_is_decoded_on_request_alone() -> None:
    with pytest.raises(ExecutionError, match="truncated"):
        result("DecodeJpeg", JPEG[:-2])
    recovered = result("DecodeJpeg", JPEG[:-2], try_recover_truncated=True)
    assert recovered.tolist() == result("DecodeJpeg", JPEG).tolist()


@needs_pillow
@pytest.mark.parametrize("op", ["DecodePng", "DecodeJpeg"])
def test_an_animation_is_decoded_by_ops_with_frames_alone(op: str) -> None:
    data = ARCHIVE["gif_overlaps/data"].tobytes()
    with pytest.raises(ExecutionError, match="4 frames"):
        result(op, data)
    first = result("DecodeImage", data, expand_animations=False)
    assert first.tolist() == result("DecodeGif", data)[0].tolist()


@needs_pillow
def test_a_window_of_a_jpeg_lies_in_the_reduced_image() -> None:
    whole = result("DecodeJpeg", JPEG, ratio=2)
    window = result("DecodeAndCropJpeg", JPEG, np.array([1, 2, 3, 4], np.int32), ratio=2)
    assert window.tolist() == whole[1:4, 2:6].tolist()
    with pytest.raises(ExecutionError, match="crop window"):
        result("DecodeAndCropJpeg", JPEG, np.array([1, 2, 8, 4], np.int32), ratio=2)


@needs_pillow
@pytest.mark.parametrize("option", ["progressive", "optimize_size"])
def test_noise_is_encoded_as_a_jpeg_in_one_piece(option: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (300, 300, 3), np.uint8)
    attrs = {"quality": 100, "chroma_downsampling": False}
    data = result("EncodeJpeg", noise, **attrs, **{option: True})
    plain = result("EncodeJpeg", noise, **attrs)
    assert len(data) > noise.size * 0.9
    assert result("DecodeJpeg", data).tolist() == result("DecodeJpeg", plain).tolist()


@needs_pillow
@pytest.mark.parametrize(("width", "comment"), [(65501, 0), (4, 65505)])
def test_what_a_jpeg_cannot_contain_is_an_error(width: int, comment: int) -> None:
    with pytest.raises(ExecutionError, match="6550"):
        result("EncodeJpeg", np.zeros((1, width, 3), np.uint8), xmp_metadata=b"x" * comment)


@needs_pillow
def test_a_damaged_png_is_an_error_of_the_op() -> None:
    data = ARCHIVE["png_gray/data"].tobytes()
    short = data[:8] + chunk(b"IHDR", data[16:28]) + data[33:]
    large = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(3_000_000)))
    for damaged in (short, data[:33] + large + data[33:], data[:20]):
        with pytest.raises(ExecutionError, match="Invalid PNG data"):
            result("DecodePng", damaged)


@needs_pillow
def test_an_error_about_an_image_is_the_same_each_time() -> None:
    messages = set()
    for _ in range(2):
        with pytest.raises(ExecutionError) as error:
            result("DecodeImage", b"\xff\xd8\xff")
        messages.add(error.value.message)
    assert len(messages) == 1
    assert "0x" not in messages.pop()
