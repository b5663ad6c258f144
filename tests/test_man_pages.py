from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cfgraph.cli.command_files import COMMANDS, CommandFiles
from tests.man_pages import man_pages

FOLDER = Path("docs") / "man"


@pytest.fixture(scope="module")
def pages(root: Path) -> dict[str, str]:
    return man_pages(root)


def test_the_man_pages_are_those_of_the_commands(
    root: Path, pages: dict[str, str], update: bool
) -> None:
    folder = root / FOLDER
    if update:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, text in pages.items():
            (folder / name).write_text(text)
    written = {file.name: file.read_text() for file in folder.iterdir()}
    assert written == pages, "pytest --update tests/test_man_pages.py"


def test_every_option_has_an_entry(pages: dict[str, str]) -> None:
    for name, command in CommandFiles(COMMANDS).items():
        page = pages[f"cfgraph-{name.replace(' ', '-')}.1"].replace("\\-", "-")
        visible = [param for param in command.params if not getattr(param, "hidden", False)]
        names = [name for param in visible for name in param.opts if name.startswith("-")]
        assert [name for name in names if f"\\fB{name}\\fR" not in page] == []


def _formatted(file: Path, width: int) -> str:
    """A page as `man` shows it, without overstriking. Warnings of groff are failures."""
    done = subprocess.run(
        ["groff", "-mandoc", "-Tascii", "-P-cbou", "-ww", "-z", str(file)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    done = subprocess.run(
        ["groff", "-mandoc", "-Tascii", "-P-cbou", f"-rLL={width}n", str(file)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


@pytest.mark.skipif(not shutil.which("groff"), reason="groff formats man pages")
@pytest.mark.parametrize("name", ["cfgraph.1", "cfgraph-run.1", "cfgraph-check.1"])
def test_a_page_is_formatted_within_its_width(root: Path, name: str) -> None:
    text = _formatted(root / FOLDER / name, 80)
    # examples are not broken
    body, _, _ = text.partition("\nEXAMPLES")
    assert max(map(len, body.splitlines())) <= 80
    for title in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"):
        assert f"\n{title}\n" in text


@pytest.mark.skipif(not shutil.which("groff"), reason="groff formats man pages")
def test_texts_keep_their_characters(root: Path) -> None:
    text = _formatted(root / FOLDER / "cfgraph-run.1", 200)
    assert "cfgraph run mismatch.graph --feed p=true --feed 'v=[1, 2]' --json" in text
    assert "VALUE: 3.5, [[1,2],[3,4]], @x.npy" in text
