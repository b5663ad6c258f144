"""The experiments of the paper, as files of a folder and as a script."""

from __future__ import annotations

import contextlib
import io
import json
import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import cfgraph
from cfgraph.console.paper.reproduce import (
    EXPERIMENTS,
    Setting,
    TrainingProgram,
    training_sessions,
)
from tests.cli.conftest import Command


class Written(NamedTuple):
    """The folder of the experiments, and what writing it prints on stdout and on stderr."""

    folder: Path
    out: str
    err: str


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    from cfgraph.console.examples import write_examples

    path, out, err = tmp_path_factory.mktemp("the paper"), io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        write_examples(str(path), "paper")
    return Written(path, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def folder(written: Written) -> Path:
    return written.folder


def test_the_script_is_named_as_the_next_command(written: Written) -> None:
    script = str(written.folder / "reproduce.py")
    assert script in written.out.splitlines()
    assert shlex.split(written.err) == ["next:", "python", script, "--quick"]


def test_the_graphs_are_valid(folder: Path) -> None:
    for path in folder.glob("graphs/*"):
        findings = cfgraph.check(cfgraph.load(path)).findings
        assert not [finding for finding in findings if finding.level == "error"], path.name


@pytest.fixture
def script(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Run `python reproduce.py WORDS` in this process, and return what it prints."""

    def run(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["reproduce.py", *words])
        runpy.run_path(str(folder / "reproduce.py"), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_the_script_runs_an_experiment(script: Callable[..., str], tmp_path: Path) -> None:
    written = tmp_path / "values.json"
    printed = script("--quick", "--json", str(written), "loops")
    (curves,) = json.loads(written.read_text())
    assert curves["xs"] == [1, 2]
    free, barrier = curves["lines"]["no barrier"], curves["lines"]["barrier"]
    assert free[0] == pytest.approx(barrier[0])
    assert free[1] > 2 * barrier[1]
    assert "loops: iterations per second, virtual" in printed


def test_an_unknown_experiment_is_rejected(
    script: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        script("swaping")
    assert caught.value.code == 2
    assert "no experiment 'swaping'" in capsys.readouterr().err


def test_an_experiment_without_measurement_is_rejected(
    script: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        script("--measure", "loops")
    assert caught.value.code == 2
    assert "loops is not measured on one machine; omit --measure" in capsys.readouterr().err


def test_the_command_of_the_readme_runs(
    folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    text = (folder / "README.md").read_text()
    assert "| pipeline | `layered_N.pb` | training 8 LSTM layers" in text
    (line,) = re.findall("^    (cfgraph .*)$", text, re.MULTILINE)
    assert command(*shlex.split(line)[1:]).code == 0


def test_the_readme_names_all_experiments(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    assert re.findall(r"^\| (\w+) \| `", text, re.MULTILINE) == list(EXPERIMENTS)


def test_the_gpus_are_those_of_the_documentation(folder: Path, root: Path) -> None:
    documented = tomllib.loads((root / "docs" / "cluster.toml").read_text())
    assert tomllib.loads((folder / "gpus.toml").read_text()) == documented


def test_the_loop_and_the_program_learn_the_same(folder: Path) -> None:
    inside, outside = training_sessions(Setting(folder, quick=True))
    (total,) = inside.run(["total:0"], {"n:0": np.int32(400)})
    assert total == TrainingProgram(outside).run(400)
