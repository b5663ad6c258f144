from __future__ import annotations

from pathlib import Path

import cfgraph
from tests.api_page import LISTED, as_markdown


def test_the_page_of_the_python_api_has_all_that_is_public() -> None:
    assert set(cfgraph.__all__) == LISTED


def test_the_page_of_the_python_api_says_what_the_docstrings_say(root: Path, update: bool) -> None:
    page = root / "docs" / "api.md"
    if update:
        page.write_text(as_markdown())
    assert page.read_text() == as_markdown(), "pytest --update tests/test_api_page.py"
