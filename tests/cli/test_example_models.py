"""Exported models that parse tf.Examples, and decode images, run from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.mark.parametrize("signature", ["", "images"])
def test_a_model_runs_on_encoded_examples(
    command: Any, fixtures: Path, tmp_path: Path, signature: str
) -> None:
    folder = fixtures / "parse_example"
    feed = f"examples=@{folder / 'ex.npy'}"
    if signature == "images":
        pytest.importorskip("PIL", reason="needs the extra `image`")
        feed = f"image_bytes=@{folder / 'png.npy'}"
    chosen = ("--signature", signature) if signature else ()
    done = command("run", folder / "sm", *chosen, "--feed", feed, "--json")
    assert done.code == 0
    truth = json.loads((folder / "truth.json").read_text())
    want = truth["images"] if signature == "images" else truth["classify"]["scores"]
    values = json.loads(done.out)["result"]["values"]
    have = next(value["data"] for value in values if value["output"] == "scores")
    np.testing.assert_allclose(have, want, 1e-6)


def test_a_message_without_its_last_bytes_gets_a_hint(command: Any, fixtures: Path) -> None:
    folder = fixtures / "parse_example"
    (message, *_) = np.load(folder / "ex.npy").ravel().tolist()
    text = json.dumps([message[:-2].decode("latin-1")])
    done = command("run", folder / "sm", "--feed", f"examples={text}")
    assert (done.code, "NumPy drops zero bytes" in done.err) == (5, True), done.err
