"""Command lines and programs in the README run and print the documented output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.shell import run, run_line

README = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
LINES = [
    line for kind, block in BLOCKS if not kind for line in block.splitlines() if "cfgraph" in line
]
COMMANDS = [line for line in LINES if line.startswith("cfgraph")]
PROGRAMS = [block for kind, block in BLOCKS if kind == "python"]


@pytest.fixture
def folder(root: Path, tmp_path: Path) -> Path:
    (tmp_path / "fixtures").symlink_to(root / "fixtures")
    return tmp_path


def test_the_first_lines_are_the_two_commands() -> None:
    assert [line.split("#")[0].strip() for line in BLOCKS[0][1].splitlines()] == [
        "make demo",
        "make test",
    ]


def test_the_first_screen_says_what_for() -> None:
    lines = README.splitlines()
    assert len(lines) < 150
    screen = "\n".join(lines[:30])
    assert sum(line.count("?") for line in lines[:15]) == 5
    assert "![" in screen.split("```")[0]


def test_there_is_something_to_type() -> None:
    assert len(COMMANDS) > 5
    assert len(PROGRAMS) == 2


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_readme_succeeds(line: str, folder: Path) -> None:
    done = run_line(line, folder)
    assert done.returncode == 0, done.stderr
    assert [file.name for file in folder.iterdir()] == ["fixtures"]
    comment = line.partition("#")[2].strip()
    if comment.isdigit():
        assert comment in done.stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_of_the_readme_prints_what_it_says(program: str, folder: Path) -> None:
    said = re.findall(r"print\(.*\)  # (.*)", program)
    done = run(["python", "-c", program], folder)
    assert (done.stdout.splitlines(), done.returncode) == (said, 0), done.stderr


def test_every_graph_to_try_is_described(fixtures: Path) -> None:
    table = (fixtures / "graphs" / "README.md").read_text()
    assert {file.name for file in (fixtures / "graphs").glob("*.pb")} == set(
        re.findall(r"^\| `(\S+\.pb)`", table, flags=re.MULTILINE)
    )
