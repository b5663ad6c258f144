"""Command lines and programs in the README run and print the documented output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cfgraph
from tests.shell import run, run_line
from website.recordings import FOLDER, SESSIONS, recording, texts

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


def test_the_first_lines_are_commands_that_work_in_a_clone(folder: Path) -> None:
    first = next(block for kind, block in BLOCKS if not kind)
    demo, trial = [line.split("#")[0].strip() for line in first.splitlines()]
    assert (demo, trial.partition("cfgraph show")[0]) == ("make demo", "uvx --from . ")
    assert run_line(trial.removeprefix("uvx --from . "), folder).returncode == 0


def test_the_program_is_the_heart_of_what_convert_writes(root: Path) -> None:
    (shown,) = (block for kind, block in BLOCKS if kind == "py")
    assert shown in run_line("cfgraph convert fixtures/graphs/counter.pb --to py", root).stdout


@pytest.mark.parametrize("name", SESSIONS)
def test_a_recorded_session_is_what_is_printed(name: str) -> None:
    written = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert texts(written) == texts(recording(name)), "python -m website.recordings"


def test_the_drawing_has_every_node_and_loads_nothing(root: Path) -> None:
    written = (FOLDER / "counter.svg").read_text(encoding="utf-8")
    graph = cfgraph.load(root / "fixtures" / "graphs" / "counter.pb")
    assert [node.name for node in graph if f">{node.name}</text>" not in written] == []
    pictures = [file.read_text(encoding="utf-8") for file in FOLDER.glob("*.svg")]
    assert not any(re.search(r"href=|url\(['\"]?http|@import", text) for text in pictures)


def test_the_first_screen_says_what_for_and_shows_a_page(root: Path) -> None:
    lines = README.splitlines()
    assert len(lines) <= 138
    screen = "\n".join(lines[:30])
    assert screen.index("make demo") < screen.index("<img") < screen.index("| question |")
    assert sum(line.count("?") for line in screen.splitlines() if line.startswith("| ")) == 6
    (picture,) = re.findall(r'<img src="(.*?)"', screen)
    assert (root / picture).stat().st_size < 1 << 18


def test_there_is_something_to_type() -> None:
    assert len(COMMANDS) > 5
    assert len(PROGRAMS) == 1


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
