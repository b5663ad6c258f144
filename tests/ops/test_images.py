"""Images are decoded as TensorFlow decodes them; JPEG within the tolerance of libjpeg."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfgraph import Builder, ExecutionError, Session, Unsupported

ARCHIVE = np.load(Path(__file__).parents[2] / "fixtures" / "images.npz")
IMAGES = sorted({key.split("/")[0] for key in ARCHIVE.files})


def decoded(name: str, op: str, channels: str, dtype: str) -> Any:
    attrs = {} if op == "DecodeGif" else {"channels": int(channels)}
    if op in ("DecodeImage", "DecodePng"):
        attrs["dtype"] = dtype
    build = Builder()
    data = build.const(np.array(ARCHIVE[f"{name}/data"].tobytes(), object))
    image = getattr(build, op)(data, **attrs)
    with Session(build.graph) as session:
        return session.run([image.name])[0]


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_is_decoded_as_recorded(name: str) -> None:
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
