"""The experiments of the paper, as a command of a checkout."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cfgraph
from cfgraph.cli.command_line import run as run_command
from examples.paper.__main__ import main
from examples.paper.experiments import EXPERIMENTS, TrainingProgram, training_sessions
from examples.paper.graphs import GRAPHS

README = Path(__file__).parents[2] / "examples" / "paper" / "README.md"


@pytest.fixture
def script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Run `python -m examples.paper WORDS` in this process, and return what it prints."""

    def run(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["paper", *words])
        main()
        return capsys.readouterr().out

    return run


def test_the_graphs_are_valid_and_a_command_of_the_readme_runs_one(
    script: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = README.read_text().replace("\\\n", "")
    (line,) = re.findall("^    cfgraph (.*)$", text, re.MULTILINE)
    words = [word.replace("examples/paper", str(README.parent)) for word in shlex.split(line)]
    monkeypatch.chdir(tmp_path)
    paths = script("--graphs", words[1].partition("/")[0]).splitlines()
    assert len(paths) == len(GRAPHS)
    for path in paths:
        findings = cfgraph.check(cfgraph.load(path)).findings
        assert not [finding for finding in findings if finding.level == "error"], path
    assert run_command(words) == 0


def test_the_script_runs_an_experiment(script: Callable[..., str], tmp_path: Path) -> None:
    written = tmp_path / "values.json"
    printed = script("--quick", "--json", str(written), "loops")
    (curves,) = json.loads(written.read_text())
    assert curves["xs"] == [1, 2]
    free, barrier = curves["lines"]["no barrier"], curves["lines"]["barrier"]
    assert free[0] == pytest.approx(barrier[0])
    assert free[1] > 2 * barrier[1]
    assert "loops: iterations per second, virtual" in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["swaping"], "no experiment 'swaping'"),
        (["--measure", "loops"], "loops is not measured on one machine; omit --measure"),
        (["--graphs", "never", "loops"], "--graphs writes all graphs, and runs nothing"),
        (["--graphs", "never", "--quick"], "--graphs writes all graphs, and runs nothing"),
    ],
)
def test_an_experiment_that_does_not_exist_is_rejected(
    words: list[str], message: str, script: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        script(*words)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_the_readme_names_all_experiments_and_graphs() -> None:
    rows = re.findall(r"^\| (\w+) \| (`.*`) \|", README.read_text(), re.MULTILINE)
    assert [experiment for experiment, _ in rows] == list(EXPERIMENTS)
    names = {name for _, graphs in rows for name in re.findall("`(.*?)`", graphs)}
    assert names == {re.sub(r"_\d+", "_N", name) for name in GRAPHS}


def test_the_loop_and_the_program_learn_the_same() -> None:
    inside, outside = training_sessions()
    (total,) = inside.run(["total:0"], {"n:0": np.int32(400)})
    assert total == TrainingProgram(outside).run(400)
