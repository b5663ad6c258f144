"""Commands and figures in docs/pictures.md."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

import cfgraph


@pytest.fixture
def blocks(root: Path) -> list[tuple[str, str]]:
    """The blocks of the page, each with its language."""
    return re.findall(r"^```(\w*)\n(.*?)^```", (root / "docs/pictures.md").read_text(), re.M | re.S)


@pytest.mark.slow
def test_what_the_page_on_pictures_says_to_type_works(
    blocks: list[tuple[str, str]],
    root: Path,
    command: Any,
    graphs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(graphs / "lstm_grad.pb", tmp_path)
    (large,) = (text for language, text in blocks if language == "python")
    exec(compile(large, "docs/pictures.md", "exec"), {})
    text = (root / "docs/pictures.md").read_text()
    count = f"{len(cfgraph.load('large.pb')):,} nodes; the page opens"
    assert count in " ".join(text.split())
    expected = "".join(text for language, text in blocks if not language).replace("\\\n", " ")
    lines = [line for line in expected.splitlines() if line.startswith("cfgraph ")]
    assert len(lines) == 4
    for line in lines:
        done = command(*shlex.split(line)[1:])
        assert done.code == 0, done.err
    pages = set(re.findall(r"'(\w+\.html)#", expected))
    assert pages == {file.name for file in tmp_path.glob("*.html")}


def test_the_pictures_are_there_and_small(root: Path) -> None:
    text = (root / "docs/pictures.md").read_text()
    named = set(re.findall(r"\((pictures-\w+\.png)\)", text))
    assert named == {file.name for file in (root / "docs").glob("pictures-*.png")}
    for name in named:
        data = (root / "docs" / name).read_bytes()
        assert data.startswith(b"\x89PNG")
        assert len(data) < 200_000
