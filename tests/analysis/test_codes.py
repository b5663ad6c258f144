from __future__ import annotations

import re
from pathlib import Path

import pytest

from cfgraph.analysis.findings import LEVELS, catalog, find_code
from cfgraph.errors import UsageError


def test_the_catalogue_lists_the_codes_that_the_source_uses_and_no_other(root: Path) -> None:
    files = [*root.glob("cfgraph/**/*.py"), *root.glob("commands/*.py")]
    used = {code for file in files for code in re.findall(r"CFG\d{3}", file.read_text())}
    listed = set(catalog())
    assert used - listed == set(), "add them to cfgraph/analysis/codes.toml"
    assert listed - used == set()


def test_every_code_says_what_it_means_and_what_to_do() -> None:
    found = []
    for code, entry in catalog().items():
        if entry.level not in LEVELS:
            found.append(f"{code}: level {entry.level}")
        if not entry.title[0].islower() or entry.title.endswith("."):
            found.append(f"{code}: {entry.title}")
        for text in (entry.explanation, entry.fix):
            if not (text[0].isupper() or text[0] == "`") or not text.endswith("."):
                found.append(f"{code}: {text}")
    assert not found


def test_a_code_is_explained_in_any_case() -> None:
    assert find_code("cfg201") == find_code("CFG201")
    assert find_code("CFG201").title == "inputs from different frames"


@pytest.mark.parametrize(
    ("code", "hint"),
    [("CFG110X", "did you mean 'CFG110'"), ("CFG299", "'CFG2..'"), ("CFG999", "a code looks like")],
)
def test_an_unknown_code_is_answered_with_one_of_its_kind_that_is_close(
    code: str, hint: str
) -> None:
    with pytest.raises(UsageError, match=code) as caught:
        find_code(code)
    assert re.search(hint, caught.value.hint or "")
