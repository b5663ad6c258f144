"""The page on architecture names rooms, modules, and objects that exist."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = "docs/architecture.md"


def test_every_path_of_the_page_exists(root: Path) -> None:
    text = (root / PAGE).read_text(encoding="utf-8")
    paths = re.findall(r"`((?:cfgraph|commands|tests|fixtures|schemas)/[\w/.]*)`", text)
    drawn = [f"cfgraph/{path}" for path in re.findall(r" (runtime/[\w/]+\.py)\b", text)]
    assert len(paths) > 60
    assert len(drawn) > 5
    assert [path for path in paths + drawn if not (root / path).exists()] == []


def test_every_room_is_on_the_page(root: Path) -> None:
    text = (root / PAGE).read_text(encoding="utf-8")
    rooms = [path.parent for path in root.glob("cfgraph/*/__init__.py")]
    for folder in ("runtime", "backends", "integrations"):
        rooms += [path.parent for path in root.glob(f"cfgraph/{folder}/*/__init__.py")]
    named = (f"`{room.relative_to(root).as_posix()}/`" for room in rooms if room.name != "schemas")
    assert [name for name in named if name not in text] == []


def test_every_object_of_the_page_is_defined(root: Path) -> None:
    """Words with a capital or an underscore in code marks are names of the product."""
    text = (root / PAGE).read_text(encoding="utf-8")
    names = set(re.findall(r"`([A-Za-z]+[A-Z_]\w*)`", text))
    names |= set(re.findall(r"^(?:   │  )?([A-Z]\w+[A-Z]\w+|\w+_\w+)\b", text, flags=re.MULTILINE))
    sources = "\n".join(path.read_text(encoding="utf-8") for path in root.glob("cfgraph/**/*.py"))
    defined = {*re.findall(r"^ *(?:def|class) (\w+)", sources, flags=re.MULTILINE)}
    defined |= {*re.findall(r"^ *(\w+)\b(?: ?:| =)", sources, flags=re.MULTILINE)}
    assert len(names) > 15
    assert names - defined == set()
