from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from cfgraph.cli.json_output import schema
from tests.command_fixtures import Command


def rows(lines: list[str]) -> dict[str, str]:
    """The first row of each kind."""
    found: dict[str, str] = {}
    for line in lines:
        what, _, rest = line.strip().partition("  ")
        found.setdefault(what, " ".join(rest.split()))
    return found


def test_the_graph_of_the_seeds_miscompile_is_explained_as_the_seed_says(
    command: Command, graphs: Path
) -> None:
    path = graphs / "deadness_mismatch.pb"
    done = command("explain", path, "C")
    assert done.code == 0
    assert rows(done.lines)["live"] == "p runs when `p` is true"
    assert "mismatched inputs" in done.out
    done = command("explain", path, "B")
    assert rows(done.lines)["live"] == "true always runs"
    assert "may differ" not in done.out


def test_add_of_two_predicates_is_explained_as_the_seed_says(
    command: Command, tmp_path: Path
) -> None:
    file = tmp_path / "add.graph"
    file.write_text(
        "x = Placeholder() {dtype=float32}\n"
        "P0 = Placeholder() {dtype=bool}\n"
        "P1 = Placeholder() {dtype=bool}\n"
        "s = Switch(x, P0)\n"
        "t = Switch(x, P1)\n"
        "Add = AddV2(s:1, t:1)\n"
        'other = Merge(s:1, t:0) @"/cpu:0"\n'
    )
    found = rows(command("explain", file, "Add:0").lines)
    assert found["live"] == "P0 & P1 runs when `P0` is true and `P1` is true"
    assert found["fed by"] == "x, P0, P1"
    assert found["waits for"] == "all of its inputs"
    found = rows(command("explain", file, "other").lines)
    assert found["live"] == "P0 | ~P1 runs when either `P0` is true or `P1` is false"
    assert found["for example"].startswith("with `P")
    assert found["waits for"].startswith("the first live data input")
    assert found["device"] == "/cpu:0 requested by the node"
    assert rows(command("explain", file, "s").lines)["output"] == "s:0 live when `P0` is false"


def test_a_node_in_a_loop_names_its_frame(command: Command, graphs: Path) -> None:
    found = rows(command("explain", graphs / "lstm.pb", "lstm/Switch").lines)
    assert found["frame"] == "/lstm/while_context inside a loop"
    assert found["live"].endswith("runs when `lstm/Merge` is live")
    assert found["device"] == "(any) colocated with lstm/Merge"


def test_a_node_is_explained_as_json(command: Command, graphs: Path) -> None:
    reported = command("explain", graphs / "deadness_mismatch.pb", "C", "--json").json
    assert reported["schema"] == "cfgraph.explain/1"
    node = reported["result"]["node"]
    assert (node["predicate"], node["witness"]) == ("p", {"p": True})
    assert node["mismatched_inputs"] is True
    assert [edge["live"] for edge in node["inputs"]] == ["always live", "live when `p` is true"]


def test_a_code_is_explained(command: Command) -> None:
    done = command("explain", "cfg201")
    assert done.code == 0
    assert done.lines[0].startswith("CFG201  inputs from different frames")
    reported = command("explain", "CFG201", "--json").json["result"]["code"]
    assert reported["level"] == "error"


def test_a_graph_without_a_node_and_an_unknown_name_are_usage_errors(
    command: Command, graphs: Path
) -> None:
    path = graphs / "deadness_mismatch.pb"
    done = command("explain", path)
    assert done.code == 2
    assert "NODE" in done.err
    assert command("explain", "CFG999").code == 2
    done = command("explain", path, "swich")
    assert done.code == 2
    assert "did you mean 'switch'" in done.err


def _last_cells(command: Command, path: Path, name: str) -> dict[str, list[str]]:
    """The last cells of each row, keyed by its label."""
    expected: dict[str, list[str]] = {}
    for line in command("explain", path, name).lines[1:]:
        what, *rest = re.split(r"\s{2,}", line.strip())
        expected.setdefault(what, []).append("  ".join(rest))
    return expected


def test_a_loop_is_reported_by_its_iterations(command: Command, graphs: Path) -> None:
    path = graphs / "counter.pb"
    merge = _last_cells(command, path, "while/Merge")
    assert merge["live"] == ["live:while/Merge  runs when its loop continues"]
    assert merge["input"] == [
        "while/Enter:0  live in iteration 0",
        "while/NextIteration:0"
        "  live when `while/Merge` is live and `while/Less` is true, in the previous iteration",
    ]
    assert merge["waits for"] == ["the first live data input"]
    assert not any("may differ" in what for what in merge)
    entered = _last_cells(command, path, "while/Enter")
    assert (entered["frame"], entered["live"]) == (["/"], ["true  always runs"])
    assert entered["output"] == ["while/Enter:0  live in iteration 0"]
    invariant = _last_cells(command, path, "while/Less/Enter")
    assert invariant["output"] == ["while/Less/Enter:0  live in every iteration"]
    left = _last_cells(command, path, "while/Exit")
    words = "runs when `while/Merge` is live and `while/Less` is false"
    assert left["live"] == [f"live:while/Merge & ~while/Less  {words}"]
    assert left["output"] == ["while/Exit:0  always live"]


def test_what_must_not_be_clustered_is_said_of_ordinary_nodes_only(
    command: Command, graphs: Path
) -> None:
    reported = "mismatched inputs: one may be dead while another is live"
    assert command("explain", graphs / "deadness_mismatch.pb", "C").lines[-1].strip() == reported
    assert reported not in command("explain", graphs / "deadness_mismatch.pb", "B").out


def test_a_node_of_a_function_is_explained_in_its_function(command: Command, graphs: Path) -> None:
    path = graphs / "cond_functional.pb"
    done = command("explain", path, "Add", "--json")
    assert done.json["names"] == {"Add": "cond_true_572/Add"}
    lines = [" ".join(line.split()) for line in command("explain", path, "cond_true_572/Add").lines]
    assert "function cond_true_572 runs when it is called" in lines[1]
    assert "input add_x:0 always live" in lines
    done = command("explain", path, "cond_true_572/Add", "--json")
    jsonschema.validate(done.json, schema("explain"), jsonschema.Draft202012Validator)
    assert done.json["result"]["node"]["function"]["name"] == "cond_true_572"
    done = command("explain", path, "cond_true_572/Add", "--run")
    assert (done.code, "cfgraph lower" in done.err) == (2, True)


def test_an_output_that_there_is_not_is_refused(command: Command, graphs: Path) -> None:
    done = command("explain", graphs / "deadness_mismatch.pb", "T:3")
    assert done.code == 2
    assert "'T' (Identity) has 1 output, so output 3 does not exist" in done.err


def test_a_code_is_folded_between_words_on_a_terminal(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = command("explain", "CFG037", "--color", "never").lines[1:]
    for columns in (60, 80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        shown = command("explain", "CFG037", "--color", "never", terminal=True).lines[1:]
        assert max(map(len, shown)) <= columns
        assert all(line.startswith("  ") for line in shown)
        assert " ".join(shown).split() == " ".join(plain).split()


SENT = 'send_device_incarnation=1, recv_device="/cpu:1"'
RECEIVED = """
p = Placeholder() {dtype=bool, shape=[]} @"/cpu:1"
s = Switch(p, p) @"/cpu:1"
r = _Recv(CONTROL) {tensor_type=float32, tensor_name="x", send_device="/cpu:0", SENT} @"/cpu:1"
i = Identity(s:1) @"/cpu:1"
y = Neg(r) @"/cpu:1"
"""


@pytest.mark.parametrize(
    ("control", "words"),
    [
        ("", "live:r runs when its message arrives"),
        ("^i", "p & live:r runs when `p` is true, and its message arrives"),
    ],
)
def test_a_recv_without_its_send_runs_when_its_message_arrives(
    command: Command, tmp_path: Path, control: str, words: str
) -> None:
    path = tmp_path / "part.graph"
    path.write_text(RECEIVED.replace("CONTROL", control).replace("SENT", SENT))
    shown = rows(command("explain", path, "r").lines)
    assert (shown["live"], shown["message"]) == (words, "no Send of the graph has its key")


@pytest.mark.parametrize(
    "name",
    [
        "/while/while_context[3]/while/while/while_context[12]",
        "/while/while_context/while/while/while_context",
        "while/while/while_context",
        "while/while/while_context[0]",
    ],
)
def test_the_forms_of_a_loop_that_a_run_prints_are_accepted(
    command: Command, graphs: Path, name: str
) -> None:
    path = "/while/while_context/while/while/while_context"
    done = command("explain", graphs / "nested.pb", name)
    assert done.lines[0] == f"{path}  loop with 17 nodes"
    shown = command("show", graphs / "nested.pb", "--nodes", "--filter", f"frame:{name}")
    assert len(shown.lines) == 18


def test_feeds_and_names_of_a_run_are_those_of_the_run_command(
    command: Any, counter: Path, fixtures: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "feeds.npz", n=np.int32(3))
    done = command("explain", counter, "while/add", "--feeds", tmp_path / "feeds.npz", "--json")
    assert done.json["result"]["node"]["run"]["live"] == 3
    saved = fixtures / "saved_model_tables"
    options = ("--signature", "scale")
    done = command("explain", saved, "y", *options, "--feed", "x=[1, 2, 3]", "--json")
    assert done.json["result"]["node"]["run"]["live"] == 1
    pair = command("explain", saved, "x", "y", *options, "--json").json["result"]["pair"]
    assert pair["source"] == "scale_x:0"
    assert command("explain", saved, "y", "--signature", "scal").code == 2


def test_the_seed_of_a_run_decides_about_random_feeds(command: Any, tmp_path: Path) -> None:
    graph = tmp_path / "random.graph"
    graph.write_text(
        "x = Placeholder() {dtype=float32, shape=[]}\nzero = Const() {dtype=float32, "
        "value=float32[]:0}\np = Greater(x, zero)\ns = Switch(x, p)\ny = Neg(s:1)\n"
    )
    feed = ("--feed", "x=f32[]:normal")
    ran = {
        command("explain", graph, "y", *feed, "--seed", str(seed), "--json").json["result"]["node"][
            "run"
        ]["live"]
        for seed in range(8)
    }
    assert ran == {0, 1}


def test_initializers_may_be_written_as_targets(command: Any, tmp_path: Path) -> None:
    graph = tmp_path / "v.graph"
    graph.write_text(
        'v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}\none = Const() '
        "{dtype=float32, value=float32[]:1}\nset = AssignVariableOp(v, one)\n"
        "y = ReadVariableOp(v) {dtype=float32}\n"
    )
    done = command("explain", graph, "y", "--init", "^set", "--json")
    assert done.json["result"]["node"]["run"]["live"] == 1


def test_a_pair_has_no_line(command: Any, counter: Path, tmp_path: Path) -> None:
    done = command("explain", counter, "n", "while/add", "--source", tmp_path / "count.py")
    assert done.code == 2
    assert "--source names the line of one node" in done.err


def test_a_word_of_its_title_finds_a_code(command: Any) -> None:
    assert command("explain", "race").out == command("explain", "CFG225").out
    assert command("explain", "Race", "--json").json["result"]["code"]["code"] == "CFG225"
    several = command("explain", "loop")
    assert several.code == 2
    assert "several codes are about it" in several.err
    assert "CFG226  a loop that cannot end" in several.err
