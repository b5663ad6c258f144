"""The line that names the case of a difference can be pasted, and repeats it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfgraph.cli.command_files import COMMANDS, CommandFiles

DRAWN = """
x = Placeholder() {dtype=float32, shape=[16,4]}
w = VarHandleOp() {dtype=float32, shape=[4], shared_name="w"}
read = ReadVariableOp(w) {dtype=float32}
size = Const() {dtype=int32, value=int32[1]:[4]}
noise = RandomUniform(size) {T=int32, dtype=float32, seed=1, seed2=2}
product = Mul(x, read)
y = AddV2(product, noise)
"""


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def pasted(text: str) -> list[str]:
    """The options of the line that names a case."""
    line = re.search(r"found in case \d+, with (.*)", text)
    assert line is not None, text
    return shlex.split(line[1])


def first_value(text: str) -> Any:
    found = re.search(r"A (float32\[.*?\].*), B", text)
    assert found is not None, text
    return found[1]


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two graphs that differ only where an input is large, and draw numbers."""
    a, b = tmp_path / "a.graph", tmp_path / "b.graph"
    a.write_text(DRAWN)
    b.write_text(DRAWN.replace("AddV2", "Sub"))
    return a, b


def test_a_case_of_a_file_repeats_the_difference(
    pair: tuple[Path, Path], command: Any, temporary: Path
) -> None:
    first = command("diff", *pair, "--run", "--seed", "7", "--cases", "1")
    options = pasted(first.out)
    assert [options[0], Path(options[1]).parent] == ["--feeds", temporary]
    again = command("diff", *pair, "--run", *options)
    assert (again.code, again.lines[:-1]) == (first.code, first.lines[:-1])
    archive = np.load(options[1])
    assert sorted(archive) == ["@seed", "@variable::w", "x:0"]
    assert archive["@seed"] == 7


def test_a_run_with_the_case_computes_what_was_compared(
    pair: tuple[Path, Path], command: Any, tmp_path: Path
) -> None:
    done = command("diff", *pair, "--run", "--json", "--full")
    (gap,) = done.json["result"]["runs"]["differences"]
    options = shlex.split(done.json["result"]["runs"]["case"])
    for path, side in zip(pair, "ab", strict=True):
        run = command("run", path, *options, "--fetch", "y", "--json", "--full")
        (fetched,) = run.json["result"]["values"]
        assert fetched["data"] == gap[side]["data"]


def test_a_case_of_small_inputs_is_in_the_line(command: Any, graphs: Path, tmp_path: Path) -> None:
    wrong, file = tmp_path / "wrong.pb", graphs / "deadness_mismatch.pb"
    command("cluster", file, "--deadness", "off", "-o", wrong)
    first = command("diff", file, wrong, "--run", "--cases", "8")
    options = pasted(first.out)
    assert set(options[::2]) == {"--feed"}
    again = command("diff", file, wrong, "--run", *options)
    assert again.code == 1
    assert again.lines[:-1] == first.lines[:-1]
    assert command("diff", file, wrong, "--run", *options, *options).code == 1


def test_a_case_of_a_verification_repeats_it(command: Any, graphs: Path, tmp_path: Path) -> None:
    graph = tmp_path / "g.graph"
    text = command("convert", graphs / "deadness_mismatch.pb", "--to", "graph").out
    graph.write_text(text.replace("shape=[2]", "shape=[64]"))
    line = "cluster", graph, "--deadness", "off", "-o", tmp_path / "o.pb"
    first = command(*line, "--verify")
    assert first.code == 1, first.err
    options = pasted(first.err)
    assert options[0] == "--feeds"
    again = command(*line, "--verify", *options)
    assert (again.code, first_lines(again.err)) == (1, first_lines(first.err))


def first_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if "dead in B" in line]


def test_every_command_that_verifies_takes_the_file() -> None:
    files = CommandFiles(COMMANDS)
    options = {
        name: {text for parameter in files[name].params for text in parameter.opts}
        for name in files
    }
    verifying = [name for name, known in options.items() if {"--verify", "--verify-each"} & known]
    verifying.remove("convert")  # which runs nothing
    assert len(verifying) > 6
    assert [name for name in verifying if "--feeds" not in options[name]] == []


def test_an_entry_that_no_case_has_is_an_error(
    pair: tuple[Path, Path], command: Any, tmp_path: Path
) -> None:
    np.savez(tmp_path / "case.npz", **{"@weights": np.zeros(2)})
    done = command("diff", *pair, "--run", "--feeds", tmp_path / "case.npz")
    assert done.code == 3
    assert "'@weights' is neither a tensor nor part of a case" in done.err


def test_values_of_the_graph_come_before_those_of_the_case(
    pair: tuple[Path, Path], command: Any, tmp_path: Path
) -> None:
    options = pasted(command("diff", *pair, "--run").out)
    graph = tmp_path / "set.graph"
    graph.write_text(
        DRAWN + "one = Const() {dtype=float32, value=float32[4]:[1,1,1,1]}\n"
        "init = AssignVariableOp(w, one) {dtype=float32}\n"
    )
    done = command("run", graph, *options, "--init", "init", "--fetch", "read", "--json")
    assert done.code == 0, done.out
    assert done.json["result"]["values"][0]["data"] == [1, 1, 1, 1]
