"""`cfgraph pipeline` and `cfgraph.Pipeline`: the same graphs as single commands, and errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.console.transforms.pass_pipeline import PASS_NAMES

TEXT = "lower, grad{ys=loss xs=W}, partition{devices=cpu:0,gpu:0}"


def test_a_pipeline_writes_what_its_commands_write(command: Any, graphs: Path) -> None:
    lowered = command("lower", graphs / "lstm.pb")
    added = command("grad", "-", "--ys", "loss", "--xs", "W", stdin=lowered.data)
    parts = command("partition", "-", "--devices", "cpu:0,gpu:0", stdin=added.data)
    done = command("pipeline", graphs / "lstm.pb", "-p", TEXT)
    assert (done.code, done.data) == (0, parts.data)


def test_python_runs_the_same_pipeline(command: Any, graphs: Path) -> None:
    graph = cfgraph.load(graphs / "lstm.pb")
    outcomes = cfgraph.Pipeline(TEXT).run(graph)
    assert [outcome.name for outcome in outcomes] == ["lower", "grad", "partition"]
    assert sum(outcomes[-1].after.values()) == len(graph)
    assert cfgraph.dumps(graph) == command("pipeline", graphs / "lstm.pb", "-p", TEXT).data


def test_lists_flags_underscores_and_quotes(command: Any, graphs: Path) -> None:
    written = "partition{devices='cpu:0,cpu:1' place='while/add*=cpu:1',*=cpu:0 soft seed=3}"
    lines = ["--place", "while/add*=cpu:1", "--place", "*=cpu:0", "--soft", "--seed", "3"]
    expected = command("partition", graphs / "counter.pb", "--devices", "cpu:0-1", *lines)
    assert command("pipeline", graphs / "counter.pb", "-p", written).data == expected.data
    dashed = command("pipeline", graphs / "lstm.pb", "-p", "cluster{min-size=9}").data
    assert command("pipeline", graphs / "lstm.pb", "-p", "cluster{min_size=9}").data == dashed
    assert dashed != command("pipeline", graphs / "lstm.pb", "-p", "cluster").data


@pytest.mark.parametrize(
    ("text", "column", "wrong", "hint"),
    [
        ("lowr", 1, "^^^^", "did you mean 'lower'?"),
        ("lower, grad{ys=loss unconected=zero}", 21, "^^^^^^^^^^", "did you mean 'unconnected'?"),
        ("lower{unfuse", 6, "^", "add }"),
        ("lower lower", 7, "^", "PASS{"),
        ("lower,", 7, "^", "PASS{"),
        ("", 1, "^", "PASS{"),
        ("grad{ys=a order=0}", 11, "^^^^^^^", ""),
        ("grad{order=1 order=1}", 14, "^^^^^^^", ""),
        ("grad{ys=a, xs=b}", 6, "^^^^^", "a space separates options"),
        ("grad{ys}", 6, "^^", "write ys=LIST"),
        ("lower{unfuse=maybe}", 7, "^^^^^^^^^^^^", "unfuse=false"),
        ("extract{inputs=x}", 1, "^^^^^^^", "write extract{outputs=LIST}"),
        ("lower{verify}", 7, "^^^^^^", "options of the pass"),
        ("partition{dump_placement=f}", 11, "^^^^^^^^^^^^^^", "options of the pass"),
    ],
)
def test_an_error_points_into_the_text(
    text: str, column: int, wrong: str, hint: str, command: Any, graphs: Path
) -> None:
    done = command("pipeline", graphs / "lstm.pb", "-p", text, "--json", "-o", "never.pb")
    assert done.code == 2
    where, shown, carets = done.err.splitlines()[1:4]
    assert where == f"  at column {column} of the pipeline:"
    assert (shown[4:], carets[4:]) == (text, " " * (column - 1) + wrong)
    assert hint in done.err
    assert done.json["error"]["where"] == {"line": 1, "column": column}


def test_a_long_line_is_shortened_and_a_later_line_is_counted() -> None:
    text = "lower,\n" + "lower, " * 40 + "lowr" + ", lower" * 40
    with pytest.raises(cfgraph.UsageError) as caught:
        cfgraph.Pipeline(text)
    where, shown, carets = str(caught.value).splitlines()[1:4]
    assert where == "  at line 2, column 281 of the pipeline:"
    assert shown[carets.index("^") : carets.rindex("^") + 1] == "lowr"
    assert len(shown) < 100


def test_a_pass_that_fails_is_named_and_leaves_the_graph_unchanged(graphs: Path) -> None:
    graph = cfgraph.load(graphs / "while_functional.pb")
    before = cfgraph.dumps(graph)
    with pytest.raises(cfgraph.UsageError) as caught:
        cfgraph.Pipeline("lower, grad{ys=nosuch}").run(graph)
    assert caught.value.__notes__ == ["in pass 'grad', column 8 of the pipeline, after lower"]
    assert cfgraph.dumps(graph) == before


def test_graphs_between_passes_are_printed_and_saved(
    command: Any, graphs: Path, tmp_path: Path
) -> None:
    line = ("-p", TEXT, "--print-after", "lower", "--dump-dir", tmp_path / "dumps")
    done = command("pipeline", graphs / "lstm.pb", *line, "-o", tmp_path / "o.pb")
    assert "# after lower (1 of 3)\n" in done.err
    assert "# after grad" not in done.err
    names = sorted(file.name for file in (tmp_path / "dumps").iterdir())
    assert names == ["00-input.graph", "01-lower.graph", "02-grad.graph", "03-partition.graph"]
    last = cfgraph.load(tmp_path / "dumps" / "03-partition.graph")
    assert cfgraph.dumps(last) == (tmp_path / "o.pb").read_bytes()


def test_dumps_before_a_failure_remain(command: Any, graphs: Path, tmp_path: Path) -> None:
    line = ("-p", "lower, grad{ys=nosuch}", "--dump-dir", tmp_path / "d", "-o", tmp_path / "o.pb")
    done = command("pipeline", graphs / "lstm.pb", *line, "--json")
    assert done.code == 2
    assert [Path(item["path"]).name for item in done.json["artifacts"]] == [
        "00-input.graph",
        "01-lower.graph",
    ]
    assert not (tmp_path / "o.pb").exists()


def test_times_are_those_of_each_pass(command: Any, graphs: Path, tmp_path: Path) -> None:
    line = ("pipeline", graphs / "lstm.pb", "-p", TEXT, "-o", tmp_path / "o.pb", "--json")
    passes = command(*line, "--time-passes").json["result"]["passes"]
    assert sum(item["share"] for item in passes) == pytest.approx(1, abs=0.01)
    assert all(item["ms"] > 0 for item in passes)
    assert re.search(r"  \d+\.\d %$", command(*line[:-1], "--time-passes").err, re.MULTILINE)
    assert {item["ms"] for item in command(*line).json["result"]["passes"]} == {None}


def test_verification_names_the_pass_that_changes_a_value(
    command: Any, graphs: Path, tmp_path: Path
) -> None:
    text = "lower, cluster{deadness=off}, lower"
    line = ("-p", text, "--verify-each", "--json", "-o", tmp_path / "o.pb")
    done = command("pipeline", graphs / "deadness_mismatch.pb", *line)
    assert (done.code, done.json["result"]["changed_by"]) == (1, "cluster")
    assert [item["verify"]["equal"] for item in done.json["result"]["passes"]] == [True, False]
    assert not (tmp_path / "o.pb").exists()
    correct = ("-p", "lower, cluster", "--verify-each", "-v", "-o", tmp_path / "o.pb")
    done = command("pipeline", graphs / "deadness_mismatch.pb", *correct)
    assert (done.code, done.err.count("verify")) == (0, 2)


def test_nodes_that_a_pass_drops_need_not_be_in_its_result(
    command: Any, graphs: Path, tmp_path: Path
) -> None:
    line = ("-p", "functionalize, optimize", "--verify-each", "-o", tmp_path / "o.pb")
    done = command("pipeline", graphs / "deadness_mismatch.pb", *line)
    assert (done.code, "T" in cfgraph.load(tmp_path / "o.pb")) == (0, False), done.err


@pytest.mark.parametrize(
    ("options", "wording"),
    [
        (["--print-after", "grd"], "did you mean 'grad'?"),
        (["--feed", "x=1"], "add --verify-each"),
        (["--json"], "-o FILE"),
    ],
)
def test_options_that_do_not_fit_are_usage_errors(
    options: list[str], wording: str, command: Any, graphs: Path
) -> None:
    done = command("pipeline", graphs / "lstm.pb", "-p", "lower, grad{ys=loss}", *options)
    assert (done.code, wording in done.err) == (2, True), done.err


def test_every_command_that_transforms_is_a_pass(command: Any) -> None:
    text = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()
    assert all(f"| `{name}` |" in text for name in PASS_NAMES)
    assert json.loads(command("--schema", "pipeline").out)["$id"] == "urn:cfgraph:pipeline:1"


def test_an_empty_pipeline_is_rejected(command: Any, graphs: Path) -> None:
    done = command("pipeline", graphs / "counter.pb", "-p", " ")
    assert (done.code, done.err.splitlines()[0]) == (2, "error: the pipeline is empty")


def test_the_values_and_variables_of_freeze_are_those_of_its_verification(
    command: Any, tmp_path: Path
) -> None:
    path, saved = tmp_path / "g.graph", tmp_path / "model"
    path.write_text(
        "x = Placeholder() {dtype=float32, shape=[]}\n"
        "p = Placeholder() {dtype=bool, shape=[]}\n"
        "s = Switch(x, p)\n"
        "a = Neg(s)\n"
        "b = Exp(s:1)\n"
        "m = Merge(a, b)\n"
        'v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}\n'
        "r = ReadVariableOp(v) {dtype=float32}\n"
        "y = Mul(m, r)\n"
        "three = Const() {dtype=float32, value=float32[]:3}\n"
        "init = AssignVariableOp(v, three)\n"
    )
    session = cfgraph.Session(cfgraph.load(path))
    session.run([], targets=["init"])
    cfgraph.save_variables(session.state, saved)
    passes = f"freeze{{set=p=true fetch=y variables={saved}}}"
    done = command("pipeline", path, "-p", passes, "--verify-each", "-o", tmp_path / "o.graph")
    assert (done.code, "freeze changes no value, 4 cases" in done.err) == (0, True)
