"""`cfgraph show`: text, JSON, TSV, and DOT."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.ir import dtypes
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import Graph

NAMES = sorted(file.stem for file in (Path(__file__).parents[2] / "fixtures/graphs").glob("*.pb"))


@pytest.mark.parametrize("name", NAMES)
def test_the_summary_of_a_graph_to_try_is_as_recorded(
    name: str,
    command: Any,
    graphs: Path,
    fixtures: Path,
    update: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(graphs)
    done = command("show", f"{name}.pb")
    golden = fixtures / "show" / f"{name}.txt"
    if update:
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(done.out)
    assert done.code == 0
    assert done.err == ""
    assert done.out == golden.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_the_next_command_does_what_it_promises(name: str, command: Any, graphs: Path) -> None:
    line = shlex.split(command("show", graphs / f"{name}.pb").lines[-1])
    assert line[0] == "cfgraph"
    assert command(*line[1:]).code == 0


def test_two_runs_print_the_same_bytes(command: Any, graphs: Path) -> None:
    for options in ([], ["--nodes"], ["--json"], ["--format", "dot"], ["--format", "tsv"]):
        first, second = (command("show", graphs / "lstm_grad.pb", *options) for _ in range(2))
        assert first.data == second.data


def test_standard_input_is_a_graph(command: Any, counter: Path) -> None:
    done = command("show", "-", stdin=counter.read_bytes())
    assert done.lines[0].startswith("-  15 nodes")
    assert done.lines[-1] == "  cfgraph run - --fetch count:0"


def test_a_terminal_is_no_graph(command: Any) -> None:
    done = command("show", "-")
    assert done.code == 2
    assert "terminal" in done.err


def test_a_section_is_a_table(command: Any, graphs: Path) -> None:
    done = command("show", graphs / "nested.pb", "--frames")
    assert [line.split()[0] for line in done.lines] == [
        "loop",
        "while/while_context",
        "while/while/while_context",
    ]
    assert done.lines[2].startswith("    while")


def test_the_frames_of_a_functional_loop_are_pointed_to(command: Any, graphs: Path) -> None:
    assert "cfgraph lower" in command("show", graphs / "while_functional.pb", "--frames").err
    assert "lower" not in command("show", graphs / "deadness_mismatch.pb", "--frames").err


def test_several_sections_have_headings(command: Any, graphs: Path) -> None:
    done = command("show", graphs / "eight_devices.pb", "--devices", "--ops")
    assert "ops" in done.lines
    assert "devices" in done.lines
    assert done.lines.index("ops") < done.lines.index("devices")


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        (["while/L*"], ["while/Less", "while/Less/Enter", "while/LoopCond"]),
        (["op:Enter"], ["while/Enter", "while/Less/Enter"]),
        (["op:Enter", "while/L*"], ["while/Less/Enter"]),
        (["frame:while/*", "op:Const"], ["while/add/y"]),
        (["frame:/", "op:C*"], ["Const", "Const_1"]),
        (["device:*GPU*"], []),
    ],
)
def test_filters_narrow_the_nodes(
    filters: list[str], names: list[str], command: Any, counter: Path
) -> None:
    options = [part for text in filters for part in ("--filter", text)]
    done = command("show", counter, *options, "--format", "tsv")
    assert [line.split("\t")[0] for line in done.lines[1:]] == names


@pytest.mark.parametrize("pattern", ["cpu:2", "/device:CPU:2", "*CPU:2"])
def test_a_filter_takes_a_device_as_it_is_written_and_as_it_is_shown(
    pattern: str, command: Any, graphs: Path
) -> None:
    arguments = ["--filter", f"device:{pattern}", "--format", "tsv"]
    done = command("show", graphs / "eight_devices.pb", *arguments)
    assert [line.split("\t")[0] for line in done.lines[1:]] == [
        "Const_3",
        "while/add_2/y",
        "while/add_2",
    ]


def test_a_filter_that_nothing_passes_leaves_a_note(command: Any, counter: Path) -> None:
    done = command("show", counter, "--filter", "nothing")
    assert (done.code, done.out) == (0, "")
    assert "no nodes" in done.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("op:Swich", "hint: op:Swich: did you mean 'Switch'?"),
        ("whle/*", "hint: whle/*: did you mean 'while'?"),
        ("while/Swich", "hint: while/Swich: did you mean 'while/Switch'?"),
        ("live:x", "hint: live:X expects always, sometimes, never, or a formula"),
        ("live:never", None),
    ],
)
def test_a_filter_by_a_word_that_there_is_not_names_what_there_is(
    command: Any, counter: Path, text: str, expected: str | None
) -> None:
    done = command("show", counter, "--filter", text)
    assert done.code == 0
    assert expected in done.err if expected else "hint" not in done.err


def test_a_filter_by_what_there_is_not_is_refused(command: Any, counter: Path) -> None:
    done = command("show", counter, "--filter", "pp:Enter")
    assert done.code == 2
    assert "op" in done.err


def test_one_node_is_reported_in_full(command: Any, counter: Path) -> None:
    done = command("show", counter, "--node", "while/Switch")
    assert done.lines[0].startswith("while/Switch  Switch  ")
    text = " ".join(done.out.split())
    assert "frame /while/while_context inside a loop" in text
    assert "input 1 while/LoopCond:0 bool[]" in text
    assert "output 0 while/Switch:0 int32[] read by while/Exit" in text
    assert 'attr _class ("loc:@while/Merge")' in text


def test_the_value_of_a_constant_is_shown(command: Any, counter: Path) -> None:
    assert "  value = int32[] 20000" in command("show", counter, "--node", "Const").lines


def test_an_unknown_node_brings_a_suggestion(command: Any, counter: Path) -> None:
    done = command("show", counter, "--node", "while/Swich")
    assert done.code == 2
    assert "did you mean 'while/Switch'?" in done.err


@pytest.mark.parametrize(
    ("graph", "name"),
    [("counter.pb", "while/Switch:2"), ("cond_functional.pb", "cond_true_572/Add:1")],
)
def test_an_output_that_the_node_does_not_have_is_a_usage_error(
    command: Any, graphs: Path, graph: str, name: str
) -> None:
    node, port = name.split(":")
    assert command("show", graphs / graph, "--node", f"{node}:{int(port) - 1}").code == 0
    done = command("show", graphs / graph, "--node", name)
    assert done.code == 2
    assert f"output {port} does not exist" in done.err
    assert f"at node '{node.rpartition('572/')[2]}'" in done.err


def test_targets_that_are_not_listed_are_counted(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "g.graph"
    path.write_text("".join(f"n{i} = NoOp()\n" for i in range(23)))
    shown = command("show", path).out
    assert ("n19, and 3 more" in " ".join(shown.split()), "n20" in shown) == (True, False)


def test_large_constants_are_elided_unless_requested(command: Any, tmp_path: Path) -> None:
    graph = Graph()
    value = TensorValue(np.full(2000, 7, np.int32))
    graph.add("Const", name="c", dtype=dtypes.int32, value=value)
    cfgraph.save(graph, tmp_path / "g.pb")
    short = command("show", tmp_path / "g.pb", "--node", "c").out
    full = command("show", tmp_path / "g.pb", "--node", "c", "--full").out
    assert "…" in short
    assert short.count("7") < 20
    assert full.count("7") >= 2000


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ([], "ops"),
        (["--nodes"], "nodes"),
        (["--ops"], "ops"),
        (["--frames"], "frames"),
        (["--functions"], "functions"),
        (["--devices"], "devices"),
        (["--node", "while/Merge"], "nodes"),
        (["--filter", "op:Const"], "nodes"),
    ],
)
def test_the_json_document_has_what_is_requested(
    options: list[str], key: str, command: Any, counter: Path
) -> None:
    answer = command("show", counter, *options, "--json").json
    assert answer["schema"] == "cfgraph.show/1"
    assert answer["status"] == "ok"
    assert answer["inputs"][0]["nodes"] == 15
    assert len(answer["inputs"][0]["sha256"]) == 64
    assert key in answer["result"]


def test_the_summary_in_json_holds_the_next_command(command: Any, counter: Path) -> None:
    result = command("show", counter, "--format", "json").json["result"]
    assert result["next"] == f"cfgraph run {counter} --fetch count:0"
    assert result["inputs"] == [{"name": "n:0", "type": "int32[]", "default": "20000"}]
    assert result["outputs"] == [{"name": "count:0", "type": "int32[]", "default": None}]
    (frame,) = result["frames"]
    assert frame["predicate"] == "while/Less:0"
    assert frame["parallel_iterations"] == 10


def test_a_missing_file_is_invalid_input_also_in_json(command: Any, graphs: Path) -> None:
    done = command("show", graphs / "countr.pb", "--json")
    assert done.code == done.json["exit_code"] == 3
    assert done.json["schema"] == "cfgraph.show/1"
    assert "counter.pb" in done.json["error"]["hint"]


def test_an_empty_file_is_invalid_input(command: Any, empty: Path) -> None:
    assert command("show", empty).code == 3


def test_an_unknown_format_is_a_usage_error(command: Any, counter: Path) -> None:
    done = command("show", counter, "--format", "svg")
    assert done.code == 2
    assert "text, json, tsv, dot" in done.err


def test_dot_draws_loops_as_boxes_and_back_edges_in_red(command: Any, graphs: Path) -> None:
    out = command("show", graphs / "nested.pb", "--format", "dot").out
    assert out.count("subgraph cluster_") == 2
    assert out.count("color=red") == 4
    assert out.count("{") == out.count("}")


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs Graphviz")
def test_dot_is_accepted_by_graphviz(command: Any, graphs: Path) -> None:
    out = command("show", graphs / "lstm_grad.pb", "--format", "dot").data
    subprocess.run(["dot", "-Tsvg"], input=out, capture_output=True, check=True, timeout=60)


def test_off_a_terminal_nothing_is_cut_or_coloured(command: Any, tmp_path: Path) -> None:
    graph, name = Graph(), "a/" + "very_long_name/" * 40 + "x"
    graph.add("Placeholder", name=name, dtype=dtypes.float32)
    cfgraph.save(graph, tmp_path / "g.pb")
    for options in ([], ["--nodes"], ["--node", name]):
        out = command("show", tmp_path / "g.pb", *options).out
        assert name in out
        assert "\x1b" not in out


def test_on_a_terminal_there_is_colour_and_nothing_is_lost(
    command: Any, counter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = command("show", counter, "--nodes", terminal=True).out
    assert "\x1b[" in out
    assert "while/Switch" in out
    assert "…" not in out


@pytest.mark.parametrize("options", [["--color", "never"], []])
def test_colour_can_be_turned_off(
    options: list[str], command: Any, counter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not options:
        monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in command("show", counter, *options, terminal=True).out


def test_names_are_no_markup_and_control_characters_are_harmless(
    command: Any, tmp_path: Path
) -> None:
    graph = Graph()
    graph.create("a", "[red]Op[/red]", device="\x1b[31mred\x07")
    cfgraph.save(graph, tmp_path / "g.pb")
    for terminal in (False, True):
        done = command("show", tmp_path / "g.pb", "--nodes", terminal=terminal)
        assert done.code == 0
        assert "[red]Op[/red]" in done.out
        assert "\x07" not in done.out
        assert "\x1b[31mred" not in done.out


def test_unknown_ops_are_shown_and_named(command: Any, tmp_path: Path) -> None:
    graph = Graph()
    graph.create("a", "NoSuchOp")
    cfgraph.save(graph, tmp_path / "g.pb")
    out = command("show", tmp_path / "g.pb").out
    assert "not runnable because of NoSuchOp\n  --op-def FILE declares ops" in out
    assert out.splitlines()[-1] == f"  cfgraph check {tmp_path}/g.pb"
    assert "unknown" in command("show", tmp_path / "g.pb", "--ops").out


def test_functional_ops_are_lowered_before_a_run(command: Any, graphs: Path) -> None:
    rows = command("show", graphs / "while_functional.pb", "--ops", "--format", "tsv").lines
    assert "StatelessWhile\t1\tlowered" in rows


def test_an_empty_graph_is_no_failure(command: Any, tmp_path: Path) -> None:
    (tmp_path / "g.pbtxt").write_text("versions { producer: 27 }\n")
    for options in ([], ["--nodes"], ["--json"], ["--format", "dot"], ["--frames"]):
        assert command("show", tmp_path / "g.pbtxt", *options).code == 0


def test_one_very_wide_row_does_not_widen_all_others(command: Any, tmp_path: Path) -> None:
    count = 400
    lines = ["axis = Const() {dtype=int32, value=int32[]:0}", "x = Placeholder() {dtype=float32}"]
    lines += [f"split = Split(axis, x) {{num_split={count}}}"]
    lines += [f"a{k} = Identity(split:{k})" for k in range(count)]
    (tmp_path / "g.graph").write_text("\n".join([*lines, ""]))
    done = command("show", tmp_path / "g.graph", "--nodes")
    assert done.code == 0
    assert max(map(len, done.lines)) > 8 * count
    assert sum(len(line) > 300 for line in done.lines) == 1


def test_deadness_reports_when_each_node_runs(command: Any, graphs: Path) -> None:
    rows = command("show", graphs / "deadness_mismatch.pb", "--deadness", "--json").json
    live = {row["name"]: row["live"] for row in rows["result"]["nodes"]}
    assert (live["B"], live["C"], live["T"]) == ("always", "p", "p")
    text = command("show", graphs / "deadness_mismatch.pb", "--deadness").lines
    assert text[0].split()[:3] == ["name", "op", "live"]
    assert "live" not in command("show", graphs / "deadness_mismatch.pb", "--nodes").lines[0]


def test_nodes_that_run_together_have_one_colour(command: Any, graphs: Path) -> None:
    file = graphs / "counter.pb"
    text = command("show", file, "--deadness", "--color", "always").lines
    styles = {line.split("live:")[0].rsplit("\x1b[", 1)[1] for line in text if "live:" in line}
    assert 2 <= len(styles) <= 3  # the loop, its body, and its beginning
    dot = command("show", file, "--deadness", "--format", "dot").out
    fills = [line.split('fillcolor="')[1] for line in dot.splitlines() if "fillcolor" in line]
    assert 2 <= len(set(fills)) <= 3
    assert "fillcolor" not in command("show", file, "--format", "dot").out


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("never", ["both", "after"]),
        ("p", ["a"]),
        ("~*", ["b"]),
        ("sometimes", ["a", "b"]),
        ("always", ["x", "p", "s"]),
    ],
)
def test_a_filter_by_liveness_takes_a_word_or_a_formula(
    command: Any, tmp_path: Path, pattern: str, names: list[str]
) -> None:
    file = tmp_path / "dead.graph"
    file.write_text(
        "x = Placeholder() {dtype=float32}\n"
        "p = Placeholder() {dtype=bool}\n"
        "s = Switch(x, p)\n"
        "a = Neg(s:1)\n"
        "b = Abs(s:0)\n"
        "both = AddV2(a, b)\n"
        "after = Neg(both)\n"
    )
    rows = command("show", file, "--filter", f"live:{pattern}", "--json").json["result"]["nodes"]
    assert [row["name"] for row in rows] == names


def test_deadness_of_a_node_stands_with_the_rest(command: Any, graphs: Path) -> None:
    lines = command("show", graphs / "deadness_mismatch.pb", "--node", "C", "--deadness").lines
    assert ["live", "p"] in [line.split() for line in lines]


def test_the_nodes_of_functions_are_found_by_filters_and_by_name(
    command: Any, graphs: Path
) -> None:
    file = graphs / "cond_functional.pb"
    shown = command("show", file, "--filter", "function:cond_t*", "--json").json["result"]["nodes"]
    assert [(row["name"], row["outputs"]) for row in shown] == [
        ("cond_true_572/add_x", ["float32"]),
        ("cond_true_572/add_z", ["float32"]),
        ("cond_true_572/placeholder", ["float32"]),
        ("cond_true_572/Add", ["float32"]),
    ]
    both = command("show", file, "--filter", "function:*", "--filter", "op:AddV2", "--json").json
    assert [row["name"] for row in both["result"]["nodes"]] == ["cond_true_572/Add"]
    node = command("show", file, "--node", "cond_true_572/Add:0").lines
    assert node[0].startswith("cond_true_572/Add  AddV2  ")
    assert "input 0   add_x:0  float32" in "\n".join(node)
    dot = command("show", file, "--filter", "function:*", "--format", "dot").out
    assert dot.count("_Arg") == 6


def test_a_name_that_only_a_function_has_is_found(command: Any, graphs: Path) -> None:
    done = command("show", graphs / "cond_functional.pb", "--node", "Add")
    assert done.lines[0].startswith("cond_true_572/Add  AddV2")
    done = command("show", graphs / "cond_functional.pb", "--node", "cond_true_572/Ad")
    assert done.code == 2
    assert "did you mean 'Add'?" in done.err
    done = command("show", graphs / "cond_functional.pb", "--filter", "nope")
    assert "hint: --filter 'function:*' selects the nodes of functions" in done.err


def test_deadness_of_a_graph_with_a_cycle_is_refused(command: Any, tmp_path: Path) -> None:
    file = tmp_path / "cycle.graph"
    file.write_text("a = Neg(b) {T=float32}\nb = Neg(a) {T=float32}\n")
    assert command("show", file, "--nodes").code == 0
    done = command("show", file, "--deadness")
    assert done.code == 3
    assert "CFG109" in done.err


def test_a_filter_without_a_match_suggests_names(command: Any, counter: Path) -> None:
    hints = {
        "whil/add": "did you mean 'while/add'?",
        "op:Swit": "did you mean 'Switch'?",
        "oopC": "as in while/LoopCond",
        "zzz": "the graph has Const, Const_1, count, n and 12 more",
    }
    for pattern, hint in hints.items():
        done = command("show", counter, "--filter", pattern)
        assert hint in done.err, pattern


@pytest.mark.parametrize("columns", [80, 120])
def test_summaries_fit_the_terminal(
    command: Any, graphs: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.chdir(graphs)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    for path in sorted(Path().glob("*.pb")):
        widest = max(command("show", path, terminal=True).lines, key=len)
        assert len(widest) <= columns, widest


def test_functions_have_one_shape_in_json(command: Any, graphs: Path) -> None:
    path = graphs / "cond_functional.pb"
    summary, section = (
        command("show", path, *words, "--json").json["result"] for words in ([], ["--functions"])
    )
    assert summary["functions"] == section["functions"]


def test_a_large_tensor_of_one_value_is_elided_always(command: Any, tmp_path: Path) -> None:
    graph = Graph()
    value = TensorValue(np.broadcast_to(np.float32(7), (2, 1 << 20)))
    graph.add("Const", name="c", dtype=dtypes.float32, value=value)
    cfgraph.save(graph, tmp_path / "g.pb")
    assert (tmp_path / "g.pb").stat().st_size < 200
    show = ("show", tmp_path / "g.pb")
    assert len(command(*show, "--node", "c", "--full").out) < 1000
    (node,) = command(*show, "--node", "c", "--full", "--json").json["result"]["nodes"]
    assert node["attrs"]["value"]["elided"]
    command(*show, "--model-explorer", tmp_path / "g.json")
    assert '"float32[2,1048576]"' in (tmp_path / "g.json").read_text()
