"""Files that name the repository or a release have the address of distribution/address.toml."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from cfgraph.version import __version__
from tests.address import Address, read_address, rules, written

CLONE = Address("https://github.com", "", released=False)
RELEASE = Address("https://example.org", "someone", released=True)


def test_the_files_have_the_address(root: Path, update: bool) -> None:
    texts = written(root, read_address(root))
    for file, text in texts.items() if update else ():
        (root / file).write_text(text, encoding="utf-8")
    current = {file: (root / file).read_text(encoding="utf-8") for file in texts}
    assert current == texts, "make generate"


def test_no_text_names_a_tag_or_an_owner_before_a_release(root: Path) -> None:
    if read_address(root).released:
        pytest.skip("there is a release")
    names = rf"\bv{re.escape(__version__)}|OWNER/cfgraph"
    tracked = subprocess.run(
        ["git", "grep", "-lE", names, "--", ".", ":!CHANGELOG.md"],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert set(tracked.stdout.split()) <= {"distribution/address.toml", "tests/test_address.py"}


def test_a_release_replaces_what_works_in_a_clone_and_is_replaced_by_it(
    root: Path, tmp_path: Path
) -> None:
    texts = written(root, RELEASE)
    assert f"someone/cfgraph@v{__version__}" in texts["docs/ci.md"]
    assert f"rev: v{__version__}" in texts["docs/install.md"]
    assert "uvx --from cfgraph-tools cfgraph show" in texts["README.md"]
    assert "no release yet" not in "".join(texts.values())
    assert " ./cfgraph" not in "".join(texts.values())
    assert (
        "url: https://example.org/someone/cfgraph/releases"
        in texts["distribution/conda/recipe.yaml"]
    )
    for file, text in texts.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    assert written(tmp_path, CLONE) == written(root, CLONE)


def test_an_owner_without_a_release_is_named_where_no_tag_is_needed(root: Path) -> None:
    texts = written(root, Address("https://example.org", "someone", released=False))
    assert "repository-code: https://example.org/someone/cfgraph" in texts["CITATION.cff"]
    assert "uses: ./cfgraph" in texts["docs/ci.md"]


def test_every_place_is_in_its_file_once(root: Path) -> None:
    texts = written(root, CLONE)
    places = [(rule.file, rule.pattern) for rule in rules(CLONE) if "uvx" not in rule.pattern]
    counts = {place: len(re.findall(place[1], texts[place[0]], re.MULTILINE)) for place in places}
    assert [place for place, count in counts.items() if count != 1] == []
