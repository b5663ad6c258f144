from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

import cfgraph
from tests.api_page import ENTRY, as_markdown


def test_the_page_of_the_python_api_has_all_that_is_public(root: Path, update: bool) -> None:
    page = root / "docs" / "api.md"
    text = as_markdown(page.read_text(encoding="utf-8"))
    if update:
        page.write_text(text, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == text, "make generate"
    assert sorted(re.findall(ENTRY, text)) == sorted(cfgraph.__all__)


def test_the_page_does_not_tell_what_other_packages_were_imported(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (root / "docs" / "api.md").read_text(encoding="utf-8")
    # as Keras does
    monkeypatch.setattr(Mapping.get, "__doc__", "Retrieve a layout.")
    assert as_markdown(page) == page


def test_an_entry_says_how_to_call_and_what_for(root: Path) -> None:
    text = (root / "docs" / "api.md").read_text(encoding="utf-8")
    entry = text.partition("### load\n")[2].partition("###")[0]
    assert "load(path, *, op_defs=())" in entry
    assert "Read a graph from a file" in entry
    session = text.partition("### Session\n")[2].partition("###")[0]
    assert "- `run()`: " in session
