"""`cfgraph run`: values, files, expectations, and failures."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Graph
from cfgraph.ir.shapes import Shape

SWITCHED = ["--feed", "v=[1, 2]"]


@pytest.fixture
def mismatch(graphs: Path) -> Path:
    """`S` is always live, `T` only if `p`; needs feeds for `p` and `v`."""
    return graphs / "deadness_mismatch.pb"


@pytest.fixture
def lstm(graphs: Path) -> Path:
    return graphs / "lstm.pb"


def test_a_loop_counts_to_its_default(command: Any, counter: Path) -> None:
    done = command("run", counter, "--fetch", "count:0")
    assert (done.code, done.out, done.err) == (0, "count:0  int32[]  = 20000\n", "")


def test_without_a_fetch_the_outputs_of_the_graph_are_fetched(command: Any, graphs: Path) -> None:
    done = command("run", graphs / "nested.pb")
    assert done.lines == ["while/Exit:0  int32[]    = 100", "sum:0         float32[]  = 10000.0"]


def test_an_output_of_the_graph_may_be_dead(command: Any, mismatch: Path) -> None:
    done = command("run", mismatch, *SWITCHED, "--feed", "p=false")
    assert done.code == 0
    assert done.lines[0].startswith("S:0  float32[2]  = [")
    assert done.lines[1] == "T:0  float32     dead"


def test_a_graph_comes_through_a_pipe(command: Any, counter: Path) -> None:
    text = command("convert", counter, "--to", "graph").data
    assert command("run", "-", "--feed", "n=5", stdin=text).lines == ["count:0  int32[]  = 5"]


def test_two_runs_print_the_same_bytes_under_any_schedule(command: Any, lstm: Path) -> None:
    feeds = ["--feed", "W=normal(0,0.1)", "--feed", "x=f32[2,32,256]:uniform(-1,1)", "--full"]
    first = command("run", lstm, *feeds)
    assert first.code == 0
    for options in ([], ["--schedule", "random", "--schedule-seed", "7"], ["--trace"]):
        assert command("run", lstm, *feeds, *options).data == first.data
    assert command("run", lstm, *feeds, "--seed", "1").data != first.data


def test_standard_input_is_read_once(command: Any, counter: Path) -> None:
    done = command("run", "-", "--feed", "n=@-", stdin=counter.read_bytes())
    assert done.code == 2
    assert "once" in done.err
    stream = io.BytesIO()
    np.save(stream, np.int32(3))
    done = command("run", counter, "--feed", "n=@-", stdin=stream.getvalue())
    assert done.lines == ["count:0  int32[]  = 3"]
    assert command("run", counter, "--feed", "n=@-").code == 2


def test_control_characters_reach_no_terminal(command: Any, tmp_path: Path) -> None:
    graph = Graph()
    graph.create("a", "Op\x1b[2J")
    cfgraph.save(graph, tmp_path / "g.pb")
    assert "\x1b" not in command("run", tmp_path / "g.pb").err
    path = echo(dtypes.string, tmp_path)
    done = command("run", path, "--feed", 'x="\u009b2J"', "--tap", "y", "--trace")
    assert done.code == 0
    assert "\x9b" not in done.out + done.err


# -- fetches -----------------------------------------------------------------------------------


def test_a_glob_fetches_what_is_outside_of_loops(command: Any, counter: Path) -> None:
    done = command("run", counter, "--feed", "n=3", "--fetch", "*t")
    assert [line.split()[0] for line in done.lines] == ["Const:0", "while/Exit:0", "count:0"]


def test_a_fetch_that_is_named_twice_comes_once(command: Any, counter: Path) -> None:
    options = ["--feed", "n=3", "--fetch", "count", "--fetch", "count:0"]
    assert len(command("run", counter, *options).lines) == 1


def test_a_target_runs_and_returns_nothing(command: Any, counter: Path) -> None:
    for options in (["--target", "count"], ["--fetch", "^count"]):
        done = command("run", counter, "--feed", "n=3", *options)
        assert (done.code, done.out) == (0, "")


def test_a_tensor_inside_a_loop_is_refused_with_two_ways_out(command: Any, counter: Path) -> None:
    done = command("run", counter, "--fetch", "while/add:0")
    assert done.code == 2
    assert "while/Exit:0" in done.err
    assert "--tap while/add" in done.err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--fetch", "cout"], "did you mean 'count'?"),
        (["--fetch", "count:1"], "has 1 output"),
        (["--fetch", "cout*"], "did you mean 'count'?"),
        (["--fetch", "while/*y"], "--tap while/*y"),
        (["--target", "cout"], "did you mean 'count'?"),
        (["--target", "nn", "--fetch", "cout"], "did you mean 'count'?"),
        (["--tap", "while/ad"], "did you mean 'while/add'?"),
        (["--feed", "m=3"], "inputs of the graph: n"),
        (["--feed", "n"], "NAME=VALUE"),
        (["--feed", "n=3.5"], "feed n:0: 3.5 is not a valid int32"),
        (["--feed", "n=[1,2]"], "feed n:0: the shape is [2], expected []"),
        (["--expect", "count=3.5"], "expected value of count:0: 3.5 is not a valid int32"),
        (["--expect", "cout=3"], "did you mean 'count'?"),
        (["--out", "count=count.npy"], "write count=@count.npy"),
        (["--out", "count=@count.txt"], "write count=@count.npy"),
        (["--trace-out", "trace.txt"], "FILE.json"),
        (["--schedule", "lifo"], "fifo, random"),
        (["--max-iterations", "-1"], "max-iterations"),
        (["--timeout", "soon"], "timeout"),
        (["--color", "blue"], "color"),
        (["--fetsh", "count"], "--fetch"),
        (["--feed", "n=nan"], "write NaN, Infinity or -Infinity"),
        (["--tap", "while/add[9,3]"], "write while/add[3], for the innermost loop"),
        (["--tap", "op:Swich"], "did you mean 'op:Switch'?"),
        (["--format", "sarif"], "add --expect NAME=VALUE"),
        (["--blas-threads", "0"], "in --blas-threads 0"),
        (["--tap", "while/Switch:2"], "2 outputs"),
    ],
)
def test_wrong_usage_is_exit_code_two_with_a_hint(
    options: list[str], says: str, command: Any, counter: Path
) -> None:
    done = command("run", counter, *options)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert len(done.err.splitlines()) <= 4


def test_missing_feeds_are_listed_with_lines_to_paste(command: Any, lstm: Path) -> None:
    done = command("run", lstm)
    assert done.code == 2
    what, hint = done.err.splitlines()
    assert what.endswith("2 feeds are missing: W:0 (float32[512,1024]), x:0 (float32[?,32,256])")
    assert hint == (
        "  hint: add --feed 'W=f32[512,1024]:uniform(-1,1)' --feed 'x=f32[1,32,256]:uniform(-1,1)'"
    )


VARIABLE = """
h = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
one = Const() {dtype=float32, value=float32[]:1.0}
start = AssignVariableOp(h, one) {dtype=float32}
more = AssignAddVariableOp(h, one) {dtype=float32}
v = ReadVariableOp(h) {dtype=float32}
"""


def test_the_limits_hold_for_initialisers_too(command: Any, counter: Path) -> None:
    options = ["--init", "while/Exit", "--fetch", "n", "--feed", "n=50"]
    assert command("run", counter, *options, "--max-iterations", "50").code == 0
    assert command("run", counter, *options, "--max-iterations", "49").code == 5


def test_initialisers_run_first_and_in_order(command: Any, tmp_path: Path) -> None:
    (tmp_path / "g.graph").write_text(VARIABLE)
    options = ["--init", "start", "--init", "more", "--init", "more", "--fetch", "v"]
    done = command("run", tmp_path / "g.graph", *options)
    assert (done.code, done.lines) == (0, ["v:0  float32[]  = 3.0"])
    assert command("run", tmp_path / "g.graph", "--fetch", "v").code == 5
    assert command("run", tmp_path / "g.graph", "--init", "stat", "--fetch", "v").code == 2
    assert "  start, more" in command("show", tmp_path / "g.graph").lines


REFERENCE = """
w = VariableV2() {dtype=float32, shape=[]}
one = Const() {dtype=float32, value=float32[]:1.0}
init = Assign(w, one) {T=float32}
"""


def test_a_reference_is_read_and_a_handle_is_named(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "g.graph"
    path.write_text(REFERENCE)
    done = command("run", path, "--init", "init", "--fetch", "w", "--tap", "w")
    assert done.lines == ["w:0 /  float32[] = 1.0", "w:0  float32[]  = 1.0"]
    done = command("run", path, "--fetch", "w")
    assert done.code == 5
    assert "error[CFG705]" in done.err
    assert "node 'w'" in done.err
    assert "--init NODE" in done.err
    path.write_text(VARIABLE)
    done = command("run", path, "--fetch", "h")
    assert done.lines == ["h:0  resource[]  = <Variable v>"]
    for options in (["--out", f"h=@{tmp_path}/h.npy"], ["--expect", "h=1"]):
        done = command("run", path, "--init", "start", *options)
        assert done.code == 2
        assert "h:0 is a resource, which can be neither written nor compared" in done.err
    assert "--target start" in command("run", path, "--fetch", "start").err


def test_a_graph_without_outputs_needs_to_be_reported_what_to_do(
    command: Any, tmp_path: Path
) -> None:
    (tmp_path / "g.graph").write_text("a = NoOp()\n")
    done = command("run", tmp_path / "g.graph")
    assert done.code == 2
    assert "--target" in done.err
    assert command("run", tmp_path / "g.graph", "--target", "a").code == 0


# -- values ------------------------------------------------------------------------------------


def echo(dtype: dtypes.DType, tmp_path: Path) -> Path:
    graph = Graph()
    graph.add("Placeholder", name="x", dtype=dtype, shape=Shape(None))
    graph.add("Identity", graph["x"].output(), name="y")
    cfgraph.save(graph, tmp_path / "echo.pb")
    return tmp_path / "echo.pb"


@pytest.mark.parametrize(
    ("dtype", "value", "printed"),
    [
        (dtypes.float32, "0.1", "float32[]  = 0.1"),
        (dtypes.float32, "[16777216, 1e-45, NaN]", "float32[3]  = [16777216.0, 1e-45, NaN]"),
        (dtypes.float64, "0.30000000000000004", "float64[]  = 0.30000000000000004"),
        (dtypes.bfloat16, "[0.1, -Infinity]", "bfloat16[2]  = [0.1, -Infinity]"),
        (dtypes.int64, "9223372036854775807", "int64[]  = 9223372036854775807"),
        (dtypes.bool_, "[[true], [false]]", "bool[2,1]  = [[true], [false]]"),
        (dtypes.complex64, "1.5-2j", "complex64[]  = 1.5-2.0j"),
        (dtypes.string, '"a\\n\\u001b"', 'string[]  = "a\\n\\u001b"'),
        (dtypes.float32, "[[], []]", "float32[2,0]  = [[], []]"),
    ],
)
def test_a_value_is_printed_so_that_it_can_be_fed_again(
    dtype: dtypes.DType, value: str, printed: str, command: Any, tmp_path: Path
) -> None:
    path = echo(dtype, tmp_path)
    first = command("run", path, "--feed", f"x={value}")
    assert first.lines == [f"y:0  {printed}"]
    again = command("run", path, "--feed", f"x={first.lines[0].partition('= ')[2]}")
    assert again.data == first.data


def test_large_values_are_elided_unless_requested(command: Any, tmp_path: Path) -> None:
    path = echo(dtypes.float32, tmp_path)
    short = command("run", path, "--feed", "x=f32[40,40]:normal")
    full = command("run", path, "--feed", "x=f32[40,40]:normal", "--full")
    assert short.out.count("…") == 7
    assert "…" not in full.out
    value = json.loads(full.out.partition("=\n")[2])
    again = command("run", path, "--feed", f"x={value}", "--full")
    assert again.data == full.data


def test_text_summarizes_values_that_json_contains(command: Any, tmp_path: Path) -> None:
    line = ("run", echo(dtypes.float32, tmp_path), "--feed")
    assert "…" not in command(*line, "x=f32[200]:zeros").out
    done = command(*line, "x=f32[201]:zeros")
    assert len(done.lines) <= 2
    assert "[0.0, 0.0, 0.0, …, 0.0, 0.0, 0.0]" in done.out
    assert "max 0" in done.out
    (value,) = command(*line, "x=f32[1024]:zeros", "--json").json["result"]["values"]
    assert len(value["data"]) == 1024


def test_json_values_are_exact_and_strict(command: Any, tmp_path: Path) -> None:
    def data(dtype: dtypes.DType, value: str) -> Any:
        answer = command("run", echo(dtype, tmp_path), "--feed", f"x={value}", "--json").json
        (found,) = answer["result"]["values"]
        assert found["tensor"] == "y:0"
        assert found["dtype"] == dtype.name
        return found["data"]

    assert data(dtypes.float32, "[0.1, NaN, -Infinity]") == [0.1, "NaN", "-Infinity"]
    assert data(dtypes.int64, "[1, 9223372036854775807]") == [1, "9223372036854775807"]
    assert data(dtypes.string, '[["a", "é"]]') == [["a", "é"]]
    assert data(dtypes.complex64, "1+2j") == "1.0+2.0j"
    assert data(dtypes.bool_, "true") is True


def test_json_has_one_document_of_everything(command: Any, mismatch: Path) -> None:
    done = command("run", mismatch, *SWITCHED, "--feed", "p=false", "--tap", "switch", "--json")
    answer = done.json
    assert (answer["schema"], answer["status"]) == ("cfgraph.run/1", "ok")
    assert answer["result"]["values"][1] == {"tensor": "T:0", "dead": True}
    taps = answer["result"]["taps"]
    assert [tap.get("dead", False) for tap in taps] == [False, True]
    assert taps[0]["tensor"] == "switch:0"


# -- files -------------------------------------------------------------------------------------


def test_arrays_are_written_and_read_back(command: Any, counter: Path, tmp_path: Path) -> None:
    path = tmp_path / "count.npy"
    done = command("run", counter, "--feed", "n=3", "--out", f"count=@{path}")
    assert done.lines == [f"count:0  int32[]  -> {path}"]
    assert np.load(path) == 3
    again = command("run", counter, "--feed", f"n=@{path}", "--expect", f"count=@{path}")
    assert again.code == 0


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.string, dtypes.bool_])
def test_a_written_array_can_be_fed_whatever_its_type(
    dtype: dtypes.DType, command: Any, tmp_path: Path
) -> None:
    path, text = echo(dtype, tmp_path), '["a", "bcd"]' if dtype is dtypes.string else "[1.5, 2]"
    text = "[true, false]" if dtype is dtypes.bool_ else text
    file = tmp_path / "y.npy"
    assert command("run", path, "--feed", f"x={text}", "--out", f"y=@{file}").code == 0
    first, again = (command("run", path, "--feed", f"x={feed}") for feed in (text, f"@{file}"))
    assert again.data == first.data


def test_a_folder_gets_a_file_for_each_live_output(
    command: Any, mismatch: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "out"
    done = command("run", mismatch, *SWITCHED, "--feed", "p=false", "--out-dir", folder)
    assert done.code == 0
    assert [file.name for file in folder.iterdir()] == ["S.npy"]


def test_a_name_leads_out_of_no_folder(command: Any, tmp_path: Path) -> None:
    (tmp_path / "g.graph").write_text("../../up = Const() {dtype=int32, value=int32[]:1}\n")
    folder = tmp_path / "a" / "b"
    done = command("run", tmp_path / "g.graph", "--out-dir", folder)
    assert done.code == 0
    assert [file.name for file in folder.iterdir()] == [".._.._up.npy"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--feed", "n=3", "--expect", "count=4"], 1),
        (["--feed", "n=3", "--max-iterations", "2"], 5),
        (["--feed", "n=3", "--fetch", "cout"], 2),
        (["--feed", "n=100000000", "--timeout", "0.01"], 6),
    ],
)
def test_no_array_is_written_unless_all_went_well(
    options: list[str], code: int, command: Any, counter: Path, tmp_path: Path
) -> None:
    (tmp_path / "old.npy").write_bytes(b"before")
    places = ["--out", f"count=@{tmp_path}/old.npy", "--out", f"while/Exit=@{tmp_path}/new.npy"]
    places += ["--out-dir", f"{tmp_path}/folder"]
    done = command("run", counter, *places, *options)
    assert done.code == code
    assert [file.name for file in tmp_path.iterdir()] == ["old.npy"]
    assert (tmp_path / "old.npy").read_bytes() == b"before"


def test_a_place_that_cannot_be_written_is_refused_before_the_run(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for options in (
        ["--out", f"count=@{tmp_path}/no/folder/x.npy"],
        ["--out-dir", f"{tmp_path}/file/x"],
        ["--trace-out", f"{tmp_path}/no/t.json"],
    ):
        done = command("run", counter, "--feed", "n=100000000", *options)
        assert done.code == 2
        assert str(tmp_path) in done.err


def test_a_file_cannot_be_written_twice(command: Any, counter: Path, tmp_path: Path) -> None:
    places = ["--out", f"count=@{tmp_path}/x.npy", "--out", f"while/Exit=@{tmp_path}/x.npy"]
    assert command("run", counter, "--feed", "n=3", *places).code == 2
    assert not list(tmp_path.iterdir())


# -- expectations ------------------------------------------------------------------------------


def test_an_expected_value_is_exit_code_zero(command: Any, counter: Path) -> None:
    done = command("run", counter, "--feed", "n=3", "--expect", "count=3")
    assert (done.code, done.lines) == (0, ["count:0  int32[]  = 3"])
    assert "as expected" in done.err
    quiet = command("run", counter, "--feed", "n=3", "--expect", "count=3", "--quiet")
    assert quiet.err == ""


def test_another_value_is_exit_code_one_and_reported_in_numbers(
    command: Any, tmp_path: Path
) -> None:
    path = echo(dtypes.float32, tmp_path)
    options = ["--feed", "x=[[1, 2], [4.5, 5]]", "--expect", "y=[[1, 2], [3, 4]]"]
    done = command("run", path, *options)
    assert done.code == 1
    assert done.lines[1:] == [
        "y:0: 2 of 4 elements differ, the first at [1, 0]",
        "  expected 3.0, got 4.5",
        "  largest difference 1.5, relative 0.5 (rtol 2e-05, atol 1e-06)",
    ]
    answer = command("run", path, *options, "--json").json
    assert (answer["status"], answer["exit_code"]) == ("findings", 1)
    (finding,) = answer["findings"]
    assert finding["where"]["tensor"] == "y:0"
    assert finding["index"] == [1, 0]


@pytest.mark.parametrize(
    ("options", "code"), [([], 1), (["--rtol", "0.1"], 0), (["--atol", "0.5"], 0)]
)
def test_the_tolerances_are_those_of_the_options(
    options: list[str], code: int, command: Any, tmp_path: Path
) -> None:
    path = echo(dtypes.float32, tmp_path)
    assert command("run", path, "--feed", "x=10", "--expect", "y=10.4", *options).code == code


def test_an_expected_shape_counts(command: Any, tmp_path: Path) -> None:
    done = command("run", echo(dtypes.float32, tmp_path), "--feed", "x=[1]", "--expect", "y=1")
    assert done.code == 1
    assert "the shape is [1], expected []" in done.out


# -- failures ----------------------------------------------------------------------------------


def test_a_dead_fetch_names_the_switch_and_its_predicate(command: Any, mismatch: Path) -> None:
    done = command("run", mismatch, *SWITCHED, "--feed", "p=false", "--fetch", "T:0")
    assert done.code == 5
    assert "Switch 'switch'" in done.err
    assert "p:0 is false" in done.err


def test_ops_without_a_kernel_are_all_listed_before_anything_runs(
    command: Any, tmp_path: Path
) -> None:
    (tmp_path / "g.graph").write_text("a = Foo()\nb = Bar()\nc = Foo()\n")
    done = command("run", tmp_path / "g.graph", "--json")
    assert done.code == done.json["exit_code"] == 4
    assert "Foo" in done.err
    assert "Bar" in done.err


def test_a_run_away_loop_is_stopped(command: Any, counter: Path) -> None:
    done = command("run", counter, "--max-iterations", "10")
    assert done.code == 5
    assert "--max-iterations" in done.err
    late = command("run", counter, "--feed", "n=100000000", "--timeout", "0.05")
    assert late.code == 6
    assert "--timeout" in late.err


def test_a_kernel_that_fails_is_named(command: Any, tmp_path: Path) -> None:
    text = "x = Placeholder() {dtype=float32, shape=?}\ny = CheckNumerics(x)"
    (tmp_path / "g.graph").write_text(f'{text} {{T=float32, message="bad"}}\n')
    done = command("run", tmp_path / "g.graph", "--feed", "x=NaN", "--json")
    assert done.code == 5
    assert done.json["error"]["where"]["node"] == "y"


def test_a_pickle_is_refused_and_never_opened(command: Any, counter: Path, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(pickle.dumps({"a": 1}))
    done = command("run", counter, "--feed", f"n=@{tmp_path}/x.npy")
    assert done.code == 3
    assert "never loaded" in done.err


def test_bad_files_are_exit_code_three(command: Any, counter: Path, empty: Path) -> None:
    assert command("run", empty).code == 3
    assert command("run", "no/such/graph.pb").code == 3
    assert command("run", counter, "--feed", "n=@no/such/file.npy").code == 3
    assert command("run", counter, "--feeds", empty).code == 3


@pytest.mark.parametrize(
    "options",
    [["--fetch", "cout"], ["--feed", "n=@no.npy"], ["--max-iterations", "1"], ["--fetsh", "x"]],
)
def test_every_failure_is_a_document_under_json(
    options: list[str], command: Any, counter: Path
) -> None:
    done = command("run", counter, *options, "--json")
    assert done.json["exit_code"] == done.code != 0
    assert done.json["error"]["message"]
    assert done.json["schema"] == "cfgraph.run/1"


# -- taps and traces -----------------------------------------------------------------------------


def test_a_tap_prints_each_iteration(command: Any, counter: Path) -> None:
    done = command("run", counter, "--feed", "n=2", "--tap", "while/add")
    assert done.lines == [
        "while/add:0 /while/while_context[0]  int32[] = 1",
        "while/add:0 /while/while_context[1]  int32[] = 2",
        "while/add:0 /while/while_context[2]  dead",
        "count:0  int32[]  = 2",
    ]


def test_nodes_at_the_border_of_a_loop_say_where_their_values_are(
    command: Any, counter: Path
) -> None:
    line = ("run", counter, "--feed", "n=0")
    done = command(*line, "--tap", "while/Enter", "--tap", "while/Exit")
    assert done.lines[:-1] == [
        "while/Enter:0 / (enters a loop)  int32[] = 0",
        "while/Exit:0 /while/while_context[0] (leaves the loop)  int32[] = 0",
    ]
    done = command(*line, "--fetch", "while/Enter")
    assert (done.code, "which it enters\n" in done.err) == (2, True)
    assert "fetch its input, Const_1:0" in done.err


def test_a_node_of_a_function_is_tapped_not_fetched(command: Any, graphs: Path) -> None:
    line = ("run", graphs / "while_functional.pb", "--feed", "n=1", "--fetch")
    assert "--tap while/body/Add prints it" in command(*line, "while/body/Add").err
    (function,) = [
        name for name in cfgraph.load(graphs / "while_functional.pb").functions if "body" in name
    ]
    assert "--tap '*/Add' prints its values" in command(*line, f"{function}/Add").err
    done = command(*line, "out", "--tap", f"{function}/Add")
    assert "names of their callers; use '*/Add'" in done.err
    assert "a run replaces calls" in command(*line, "out", "--tap", "op:*While").err


@pytest.mark.parametrize(
    ("tap", "hint"),
    [
        ("nothing", None),
        ("nothing*", None),
        ("while/body/Ad", "while/body/Add"),
        ("op:LoopCnd", "op:LoopCond"),
        ("out:7", "1 output"),
    ],
)
def test_a_tap_without_a_node_in_any_function_is_a_usage_error(
    command: Any, graphs: Path, tap: str, hint: str | None
) -> None:
    line = ("run", graphs / "while_functional.pb", "--feed", "n=1", "--fetch", "out", "--tap", tap)
    done = command(*line)
    assert (done.code, done.out) == (2, "")
    assert f"in --tap {shlex.quote(tap)}" in done.err
    assert hint is None or hint in done.err


def test_a_wrong_tap_is_reported_before_variables_are_restored(
    command: Any, fixtures: Path
) -> None:
    wrong = ("--tap", "zzz[", "--devices", "tape:0")
    done = command("run", fixtures / "saved_model", "--feed", "x=[[1,2]]", *wrong)
    assert (done.code, "no node matches 'zzz['" in done.err) == (2, True)
    assert "restored" not in done.err


def test_a_tap_takes_an_op_or_one_output(command: Any, counter: Path) -> None:
    done = command("run", counter, "--feed", "n=1", "--tap", "op:LoopCond")
    assert [line.split("=")[1].strip() for line in done.lines] == ["true", "false", "1"]
    done = command("run", counter, "--feed", "n=1", "--tap", "while/Switch:1")
    assert {line.split()[0] for line in done.lines[:-1]} == {"while/Switch:1"}
    assert len(done.lines) == 3


def test_a_tap_of_what_is_not_needed_leaves_a_note(command: Any, counter: Path) -> None:
    options = ["--feed", "n=2", "--fetch", "n", "--tap", "while/add"]
    done = command("run", counter, *options)
    assert done.lines == ["n:0  int32[]  = 2"]
    assert "--tap while/add matched no executed node" in done.err


def test_a_tap_beyond_the_last_iteration_names_the_number_of_iterations(
    command: Any, counter: Path
) -> None:
    done = command(
        "run", counter, "--feed", "n=2",
        "--tap", "while/add[13]", "--tap", "while/Enter[1]", "--tap", "n[9]",
    )  # fmt: skip
    assert done.err.splitlines() == [
        "--tap while/add[13] matched no executed node: its loop ended after 2 iterations",
        "--tap while/Enter[1] matched no executed node: it is in no loop",
        "--tap n[9] matched no executed node: a fed node does not run",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--feed", "n=1", "--feed", "n:0=2"], "feed n:0 has two values: n=1 and n:0=2"),
        (["--expect", "count=1", "--expect", "count=1"], "two values: count=1 and count=1"),
        (["--out", "count=@a.npy", "--out", "count:0=@b.npy"], "count=@a.npy and count:0=@b.npy"),
    ],
)
def test_one_tensor_has_one_value(
    command: Any, counter: Path, options: list[str], message: str
) -> None:
    done = command("run", counter, *options)
    assert (done.code, message in done.err) == (2, True)


def test_a_number_for_a_queue_is_a_usage_error(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "queue.graph"
    path.write_text("queue = Placeholder() {dtype=resource, shape=[]}\nsize = QueueSizeV2(queue)\n")
    done = command("run", path, "--feed", "queue=3", "--fetch", "size")
    assert (done.code, done.out) == (2, "")
    assert "feed queue: QueueSizeV2 expects another resource than a variable" in done.err


def test_a_tap_reaches_into_a_loop_that_is_a_function(command: Any, graphs: Path) -> None:
    options = ["--feed", "n=2", "--fetch", "out", "--tap", "*/body/Add"]
    done = command("run", graphs / "while_functional.pb", *options)
    assert done.lines[-1] == "out:0  int32[]  = 2"
    assert [line.rpartition("= ")[2] for line in done.lines[:2]] == ["1", "2"]


def test_a_trace_is_reported_on_stderr_only(command: Any, counter: Path) -> None:
    done = command("run", counter, "--feed", "n=2", "--trace")
    assert done.lines == ["count:0  int32[]  = 2"]
    rows = [line.split() for line in done.err.splitlines()]
    assert rows[0] == ["ms", "device", "frame", "node", "op", "outputs"]
    assert ["while/add", "AddV2", "int32[]", "2"] in [row[3:] for row in rows]
    assert ["while/add", "AddV2", "dead"] in [row[3:] for row in rows]
    assert "by op" in done.err
    assert "by node" in done.err
    assert "\x1b" not in done.err


def test_a_long_trace_shows_its_ends_on_a_terminal(
    command: Any, counter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    done = command("run", counter, "--feed", "n=100", "--trace", terminal=True)
    assert "more; --trace-out FILE.json saves all" in done.err
    assert "[99]" in done.err
    assert "[50]" not in done.err
    full = command("run", counter, "--feed", "n=100", "--trace")
    assert "[50]" in full.err


def test_an_event_is_one_line_of_a_terminal_and_shows_the_end_of_its_name(
    command: Any, graphs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    # the newest events of a slow run would be lines, too
    monkeypatch.setattr("cfgraph.console.runs.run_observers.PATIENCE_NS", sys.maxsize)
    text = command("convert", graphs / "nested.pb", "--to", "graph").out
    short = tmp_path / "short.graph"
    short.write_text(text.replace("int32[]:100}", "int32[]:3}"))
    line = ("run", short, "--fetch", "sum:0", "--trace")
    lines = command(*line, terminal=True).err.splitlines()
    assert max(map(len, lines)) <= 80
    names = [text.split()[3] for text in lines if "…/" in text and "[" in text.split()[2]]
    whole = command(*line).err
    assert names
    for name in names:
        assert f"{name.removeprefix('…')} " in whole


def test_a_trace_of_a_failing_run_shows_what_happened_until_then(
    command: Any, counter: Path
) -> None:
    done = command("run", counter, "--max-iterations", "3", "--trace")
    assert done.code == 5
    assert "/while/while_context[2]" in done.err


@pytest.mark.parametrize("name", ["t.json", "t.json.gz", "t.jsonl", "t.jsonl.gz"])
def test_a_trace_is_saved_in_the_form_that_the_name_requests(
    name: str, command: Any, counter: Path, tmp_path: Path
) -> None:
    path = tmp_path / name
    done = command("run", counter, "--feed", "n=2", "--trace-out", path, "--json")
    assert done.code == 0
    assert done.json["artifacts"][0]["kind"] == "trace"
    data = path.read_bytes()
    text = (gzip.decompress(data) if name.endswith(".gz") else data).decode()
    if ".jsonl" in name:
        head, *events = map(json.loads, text.splitlines())
        assert head == {"schema": "cfgraph.trace/1"}
        assert {event["node"] for event in events} >= {"while/add", "count"}
    else:
        assert json.loads(text)["otherData"] == {"schema": "cfgraph.trace/1"}


def test_what_the_graph_prints_is_no_result(command: Any, tmp_path: Path) -> None:
    (tmp_path / "g.graph").write_text(
        'c = Const() {dtype=string, value=string[]:"hello"}\n'
        'p = PrintV2(c) {output_stream="stdout"}\n'
    )
    done = command("run", tmp_path / "g.graph", "--target", "p", "--json")
    assert done.json["status"] == "ok"
    assert "hello" in done.err


@pytest.mark.parametrize("option", ["--timeout", "--rtol", "--atol"])
def test_a_limit_that_is_no_number_is_refused(command: Any, counter: Path, option: str) -> None:
    done = command("run", counter, "--fetch", "count", option, "nan")
    assert done.code == 2
    assert "NaN" in done.err


def test_an_error_after_loading_reports_what_was_read(command: Any, counter: Path) -> None:
    answer = command("run", counter, "--fetch", "nosuch", "--json").json
    assert answer["status"] == "error"
    assert [item["path"] for item in answer["inputs"]] == [str(counter)]
    assert answer["inputs"][0]["nodes"] == 15
    assert command("run", counter.parent / "none.pb", "--json").json["inputs"] == []


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.json", "trace.json.gz"])
def test_a_run_that_fails_leaves_its_trace_and_says_where(
    command: Any, counter: Path, tmp_path: Path, name: str
) -> None:
    file = tmp_path / name
    options = ("--fetch", "count", "--max-iterations", "3", "--trace-out", file)
    done = command("run", counter, *options)
    assert done.code == 5
    assert f"wrote the partial trace to {file}" in done.err
    data = file.read_bytes()
    text = (gzip.decompress(data) if name.endswith(".gz") else data).decode()
    assert text.count("while/add") >= 3
    if not name.endswith("jsonl"):
        assert json.loads(text)["traceEvents"]
    answer = command("run", counter, *options, "--json").json
    assert [item["path"] for item in answer["artifacts"]] == [str(file)]


def test_a_run_that_does_not_begin_leaves_no_trace(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    file = tmp_path / "unknown.graph"
    file.write_text("x = NoSuchOp()\ny = Identity(x) {T=float32}\n")
    trace = tmp_path / "trace.jsonl"
    assert command("run", file, "--fetch", "y", "--trace-out", trace).code == 4
    assert sorted(tmp_path.iterdir()) == [file]


def test_another_value_than_expected_leaves_the_trace(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    done = command("run", counter, "--feed", "n=3", "--expect", "count=4", "--trace-out", trace)
    assert done.code == 1
    assert trace.exists()


def test_a_glob_says_what_of_loops_it_leaves_out(command: Any, counter: Path) -> None:
    done = command("run", counter, "--feed", "n=3", "--fetch", "while/*")
    assert done.lines == ["while/Exit:0  int32[]  = 3"]
    note = "--fetch while/* omits 12 tensors inside loops; --tap 'while/*' shows them"
    assert note in done.err
    assert note not in command("run", counter, "--fetch", "while/*", "--quiet").err


def test_a_node_of_two_frames_has_one_error_for_fetch_and_tap(command: Any, tmp_path: Path) -> None:
    graph = tmp_path / "g.graph"
    graph.write_text(
        "x = Placeholder() {dtype=float32, shape=[]}\n"
        'a = Enter(x) {frame_name="a"}\nb = Enter(x) {frame_name="b"}\n'
        "n = Add(a, b)\no = Exit(n)\n"
    )
    fetched = command("run", graph, "--feed", "x=1", "--fetch", "n")
    tapped = command("run", graph, "--feed", "x=1", "--tap", "n")
    assert fetched.err == tapped.err
    assert (fetched.code, "CFG201" in fetched.err) == (3, True)
