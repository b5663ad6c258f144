from __future__ import annotations

import re
from pathlib import Path

import cfgraph


def test_the_page_of_the_python_api_has_all_that_is_public(root: Path) -> None:
    page = (root / "docs" / "api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^::: cfgraph\.(\w+)$", page, flags=re.MULTILINE)
    assert sorted(listed) == sorted(cfgraph.__all__)
