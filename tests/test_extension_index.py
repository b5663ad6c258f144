"""The generated index of what backends and integrations provide."""

from __future__ import annotations

from collections import defaultdict
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import cfgraph
from cfgraph.extension_index import EXTENSIONS
from cfgraph.extensions import extension

INDEX = Path(cfgraph.__file__).parent / "extension_index.py"
BANDS = ("backends", "integrations")
HEADER = '''\
"""Extensions of backends and integrations by kind and name; `make generate` writes this file."""

from typing import Final

EXTENSIONS: Final[dict[str, dict[str, str]]] = {
'''


def generated_index() -> str:
    """Return the text of the index, from the `PROVIDES` of all packages."""
    kinds: dict[str, dict[str, str]] = defaultdict(dict)
    for band in BANDS:
        for found in iter_modules(import_module(f"cfgraph.{band}").__path__):
            package = import_module(f"cfgraph.{band}.{found.name}")
            for (kind, name), target in getattr(package, "PROVIDES", {}).items():
                assert name not in kinds[kind], (kind, name)
                kinds[kind][name] = f"{package.__name__}.{target}"
    return HEADER + "".join(_entry(kind, kinds[kind]) for kind in sorted(kinds)) + "}\n"


def _entry(kind: str, targets: dict[str, str]) -> str:
    rows = [f'        "{name}": "{targets[name]}",\n' for name in sorted(targets)]
    return f'    "{kind}": {{\n{"".join(rows)}    }},\n'


def test_the_index_lists_what_each_package_provides(update: bool) -> None:
    text = generated_index()
    if update:
        INDEX.write_text(text, encoding="utf-8")
    assert INDEX.read_text(encoding="utf-8") == text, "make generate"


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in EXTENSIONS.items() for name in names]
)
def test_every_extension_can_be_imported(kind: str, name: str) -> None:
    assert callable(extension(kind, name))
