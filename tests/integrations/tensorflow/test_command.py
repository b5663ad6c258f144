"""The options `--with` and `--report`, with a stand-in for TensorFlow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import cfgraph
from cfgraph.cli.json_output import schema
from cfgraph.comparison.differences import RunDiff
from cfgraph.integrations.tensorflow.diff_modes import ModeOptions
from cfgraph.integrations.tensorflow.mode_oracle import ModeOracle
from cfgraph.integrations.tensorflow.processes import PROGRAM, ModePool

STAND_IN = replace(PROGRAM, module="tests.integrations.tensorflow.misbehaving_worker")


def saved(path: Path, name: str) -> Path:
    text = f"versions producer=1\n{name} = Const() {{dtype=float32, value=float32[]:4}}\n"
    cfgraph.save(cfgraph.loads(text.encode()), path)
    return path


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModeOptions, "pool", lambda self: ModePool(STAND_IN, memory=1 << 30))


def test_a_mode_that_is_not_compared_is_in_the_document(
    planted: None, command: Any, tmp_path: Path
) -> None:
    graph = saved(tmp_path / "g.pb", "one_mode")
    done = command("diff", graph, "--run", "--with", "tensorflow", "--json")
    assert done.code == 1
    jsonschema.validate(done.json, schema("diff"), jsonschema.Draft202012Validator)
    modes = {item["mode"]: item for item in done.json["result"]["modes"]}
    assert not modes["tensorflow:graph"]["runs"]["equal"]
    assert modes["tensorflow:lite"]["runs"] is None
    assert "UnimplementedError" in modes["tensorflow:lite"]["unsupported"]


def test_a_long_reason_is_wrapped_on_a_terminal(
    planted: None, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    graph = saved(tmp_path / "g.pb", "one_mode")
    done = command(
        "diff", graph, "--run", "--with", "tensorflow", "--color", "never", terminal=True
    )
    lines = [line for line in done.lines if not line.startswith("  at ")]
    print(done.out)
    assert max(map(len, lines)) <= 80


def test_modes_of_which_none_is_compared_are_unsupported(
    planted: None, command: Any, tmp_path: Path
) -> None:
    graph = saved(tmp_path / "g.pb", "no_kernel")
    done = command("diff", graph, "--run", "--with", "tensorflow")
    assert done.code == 4
    assert "TensorFlow (lite) cannot run the graph" in done.err


def test_a_reduction_needs_a_file_or_a_report(command: Any, tmp_path: Path) -> None:
    done = command("reduce", "mode", saved(tmp_path / "g.pb", "y"), "--with", "tensorflow:graph")
    assert done.code == 2
    assert "-o FILE, or the folder of a report with --report DIR" in done.err


def test_a_report_of_no_graph_makes_no_folder(command: Any, tmp_path: Path) -> None:
    folder = tmp_path / "report"
    options = ["--with", "tensorflow:graph", "--report", folder]
    assert command("reduce", "mode", tmp_path / "no.pb", *options).code == 3
    assert not folder.exists()


def test_a_difference_that_is_not_reproduced_is_not_reported(
    planted: None, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModeOracle, "compare", lambda *_, **__: RunDiff(()))
    graph = saved(tmp_path / "g.pb", "y")
    folder = tmp_path / "report"
    options = ["--with", "tensorflow:autojit", "--report", folder]
    done = command("reduce", "mode", graph, *options)
    assert done.code == 0
    assert "not reproduced" in done.err
    assert [path.name for path in folder.iterdir()] == ["graph.pb"]


def test_a_value_can_be_fed_for_the_handle_of_a_variable(
    planted: None, command: Any, tmp_path: Path
) -> None:
    graph = tmp_path / "captured.graph"
    graph.write_text(
        "v = Placeholder() {dtype=resource, shape=[]}\nr = ReadVariableOp(v) {dtype=float32}\n"
    )
    done = command("diff", graph, "--run", "--with", "tensorflow:jit", "--feed", "v=2.0")
    assert done.code == 1, "the stand-in returns another value than it received"
    assert "A float32[] 2.0, B float32[] 3.0" in done.out
    assert "--feed v=2.0" in done.out
