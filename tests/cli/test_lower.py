"""`cfgraph lower`: functional graphs in, primitives out, and the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import cfgraph


@pytest.fixture
def loop(graphs: Path) -> Path:
    """A While that counts to n."""
    return graphs / "while_functional.pb"


@pytest.fixture
def cond(graphs: Path) -> Path:
    """A conditional: x + z or y squared."""
    return graphs / "cond_functional.pb"


@pytest.mark.parametrize(("x", "out"), [("1", "6.0"), ("3", "4.0")])
def test_a_lowered_conditional_runs_in_a_pipe(x: str, out: str, command: Any, cond: Path) -> None:
    lowered = command("lower", cond)
    assert lowered.code == 0
    feeds = ("--feed", f"x={x}", "--feed", "y=2", "--feed", "z=5")
    done = command("run", "-", *feeds, "--fetch", "out:0", stdin=lowered.data)
    assert (done.code, done.out.split()[-1]) == (0, out)


def test_a_lowered_loop_runs_in_a_pipe(command: Any, loop: Path) -> None:
    lowered = command("lower", loop, "-q")
    assert lowered.err == ""
    done = command("run", "-", "--feed", "n=10", "--fetch", "out:0", stdin=lowered.data)
    assert (done.code, done.out.split()[-1]) == (0, "10")


def test_stderr_says_which_ops_went_and_came(command: Any, cond: Path, tmp_path: Path) -> None:
    done = command("lower", cond, "-o", tmp_path / "out.pb")
    assert (done.code, done.data) == (0, b"")
    rows = {row[0]: row[1:] for row in map(str.split, done.err.splitlines())}
    assert rows["op"] == ["before", "after"]
    assert rows["StatelessIf"] == ["1", "0"]
    assert rows["Switch"] == ["0", "3"]
    assert rows["Merge"] == ["0", "1"]
    assert "Placeholder" not in rows
    assert rows["total"] == ["7", "12"]


def test_a_graph_without_functional_nodes_goes_through(command: Any, counter: Path) -> None:
    done = command("lower", counter)
    assert (done.code, done.err) == (0, "nothing to lower\n")
    assert done.data == command("convert", counter).data


def test_the_map_says_what_became_of_each_name(command: Any, loop: Path, tmp_path: Path) -> None:
    done = command("lower", loop, "-o", tmp_path / "out.pb", "--map-out", tmp_path / "map.json")
    assert done.code == 0
    names = json.loads((tmp_path / "map.json").read_text())
    graph = cfgraph.load(tmp_path / "out.pb")
    assert names["while:2"] == ["while/Exit_1:0"]
    assert graph.tensor(names["while:2"][0]).node.op == "Exit"
    assert {"while", "while/LoopCond"} <= set(names["while"]) <= set(graph.nodes)


def test_json_says_it_all(command: Any, cond: Path, tmp_path: Path) -> None:
    done = command("lower", cond, "-o", tmp_path / "out.pb", "--json", "-q")
    reported = done.json
    assert reported["schema"] == "cfgraph.lower/1"
    assert reported["summary"] == {"rewrites": 1, "before": 7, "after": 12}
    assert {"op": "Switch", "before": 0, "after": 3} in reported["result"]["ops"]
    assert reported["artifacts"][0]["path"] == str(tmp_path / "out.pb")


def test_one_function_or_no_calls_can_be_requested(command: Any, tmp_path: Path) -> None:
    text = """
x = Placeholder() {dtype=float32, shape=[]}
a = PartitionedCall(x) {Tout=(float32), f=@f}
b = PartitionedCall(x) {Tout=(float32), f=@g}
function f(x: float32) -> (y: float32) {
  neg = Neg(x) {T=float32}
  return y = neg:y:0
}
function g(x: float32) -> (y: float32) {
  return y = x
}
"""
    (tmp_path / "in.graph").write_text(text)
    done = command("lower", tmp_path / "in.graph", "--function", "g")
    assert [node.op for node in cfgraph.loads(done.data)][1:] == ["PartitionedCall", "Identity"]
    done = command("lower", tmp_path / "in.graph", "--keep-calls")
    assert done.err == "nothing to lower\n"


def test_an_unknown_function_is_wrong_usage(command: Any, loop: Path, tmp_path: Path) -> None:
    done = command("lower", loop, "--function", "while_bod", "-o", tmp_path / "out.pb")
    assert done.code == 2
    assert "no function 'while_bod' in the library" in done.err
    assert not (tmp_path / "out.pb").exists()


def test_nothing_is_written_when_it_fails(command: Any, tmp_path: Path) -> None:
    text = """
x = Placeholder() {dtype=float32, shape=[]}
a = PartitionedCall(x) {Tout=(float32), f=@f}
function f(x: float32) -> (y: float32) {
  again = f(x)
  return y = again:y:0
}
"""
    (tmp_path / "in.graph").write_text(text)
    files = ("-o", tmp_path / "out.pb", "--map-out", tmp_path / "map.json")
    done = command("lower", tmp_path / "in.graph", *files)
    assert done.code == 4
    assert "f → f" in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.graph"]


def test_graph_and_map_go_to_different_places(command: Any, loop: Path, tmp_path: Path) -> None:
    assert command("lower", loop, "-o", tmp_path / "a", "--map-out", tmp_path / "a").code == 2
    assert command("lower", loop, "--json").code == 2
    assert not list(tmp_path.iterdir())


def test_the_input_in_json_is_counted_as_it_was_read(
    command: Any, cond: Path, tmp_path: Path
) -> None:
    answer = command("lower", cond, "--json", "-o", tmp_path / "out.pb").json
    assert answer["inputs"][0]["nodes"] == answer["summary"]["before"] == 7
    assert answer["summary"]["after"] == 12
