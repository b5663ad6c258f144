"""`--verify`: a command compares result and input by running both before it writes."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.files import dumps
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph
from cfgraph.passes.lowering import lower

COMMANDS = {
    "lower": ("lower", "while_functional.pb", []),
    "partition": ("partition", "counter.pb", ["--devices", "cpu:0-1", "--seed", "7"]),
    "cluster": ("cluster", "deadness_mismatch.pb", []),
    "grad": ("grad", "cond_functional.pb", ["--ys", "out"]),
}
# the command, the name of the pass in its module, and the op of the node that goes wrong
PASSES = {
    "lower": ("cfgraph.console.transforms.lower.lower", "Less"),
    "partition": ("cfgraph.console.transforms.partition.partition", "Less"),
    "cluster": ("cfgraph.console.transforms.cluster.cluster", "Switch"),
    "grad": ("cfgraph.console.transforms.grad.derivatives", "Less"),
}


def swapped(change: Callable[..., Any], op: str) -> Callable[..., Any]:
    """A broken pass that swaps inputs of a comparison, or consumers of a Switch's outputs."""

    def wrong(graph: Graph, *request: Any, **options: Any) -> Any:
        report = change(graph, *request, **options)
        node = next(node for node in graph if node.op == op)
        if op == "Switch":
            for use in list(node.uses):
                source = use.node.inputs[use.slot]
                graph.set_input(use.node, use.slot, node.output(1 - source.port))
        else:
            graph.set_inputs(node, node.inputs[::-1])
        return report

    return wrong


@pytest.mark.parametrize("name", COMMANDS)
def test_a_result_that_agrees_is_written(
    name: str, command: Any, graphs: Path, tmp_path: Path
) -> None:
    verb, graph, options = COMMANDS[name]
    feeds = ["--feed", "n=4"] if name == "partition" else []
    done = command(
        verb, graphs / graph, *options, "--verify", *feeds, "-o", tmp_path / "o.pb", "--json"
    )
    assert done.code == 0, done.err
    assert "no differences" in done.err
    assert done.json["result"]["verify"]["equal"]
    assert (tmp_path / "o.pb").exists()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_result_that_differs_is_not_written_and_its_first_wrong_node_named(
    name: str, command: Any, graphs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verb, graph, options = COMMANDS[name]
    place, op = PASSES[name]
    module, _, attribute = place.rpartition(".")
    right = getattr(importlib.import_module(module), attribute)
    monkeypatch.setattr(place, swapped(right, op))
    feeds = ["--feed", "n=4"] if name == "partition" else []
    files = [
        "-o",
        tmp_path / "o.pb",
        *(["--map-out", tmp_path / "n"] if name != "partition" else []),
    ]
    done = command(verb, graphs / graph, *options, "--verify", *feeds, *files, "--json", "-q")
    assert done.code == 1
    assert "first diverging node: " in done.err
    assert done.err.endswith("nothing was written\n") or name == "cluster"
    verify = done.json["result"]["verify"]
    assert not verify["equal"]
    assert verify["first"]["node"] in done.err
    assert not list(tmp_path.iterdir())
    assert done.json["artifacts"] == []


def test_inputs_that_can_be_read_once_only_are_read_once(
    command: Any, graphs: Path, tmp_path: Path
) -> None:
    once = io.BytesIO()
    np.save(once, np.int32(4))
    feeds = ["--feed", "n=@-", "--devices", "cpu:0-1", "-o", tmp_path / "o.pb"]
    done = command("partition", graphs / "counter.pb", "--verify", *feeds, stdin=once.getvalue())
    assert done.code == 0, done.err
    assert "no differences" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["lower", "-", "--verify", "-o", "o.pb"],
        ["grad", "-", "--ys", "out", "--verify", "-o", "o.pb"],
        ["grad", "GRAPH", "--ys", "out", "--verify", "--check", "-o", "o.pb"],
        ["explain", "-", "out"],
    ],
    ids=["lower", "grad", "grad_with_check", "explain"],
)
def test_standard_input_is_not_read_twice(
    arguments: list[str],
    command: Any,
    graphs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    file = graphs / "cond_functional.pb"
    args = [str(file) if text == "GRAPH" else text for text in arguments]
    done = command(*args, "--feed", "x=@-", stdin=file.read_bytes())
    assert (done.code, done.out) == (2, "")
    assert "standard input can be read only once" in done.err
    assert not list(tmp_path.iterdir())


def test_clusters_that_forget_deadness_are_refused(
    command: Any, graphs: Path, tmp_path: Path
) -> None:
    file = graphs / "deadness_mismatch.pb"
    done = command("cluster", file, "--deadness", "off", "--verify", "-o", tmp_path / "o.pb")
    assert done.code == 1
    assert "live in A, dead in B" in done.err
    assert not (tmp_path / "o.pb").exists()


def test_what_is_lowered_to_be_drawn_is_verified_too(
    command: Any, graphs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cfgraph.console.transforms.cluster.lower", swapped(lower, "Less"))
    file = graphs / "cond_functional.pb"
    done = command("cluster", file, "--format", "dot", "--verify", "-o", tmp_path / "o.pb")
    assert done.code == 1
    assert not (tmp_path / "o.pb").exists()


def test_what_convert_would_write_is_read_again(
    command: Any, graphs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, output = graphs / "counter.pb", tmp_path / "o.pbtxt"
    done = command("convert", file, "--verify", "-o", output)
    assert (done.code, done.err) == (0, "verify: the result reads back as the same graph\n")
    output.unlink()

    def wrong(graph: Graph, kind: str) -> bytes:
        copy = copy_graph(graph)
        value = copy["Const"].attrs["value"].array
        copy.set_attr(copy["Const"], "value", TensorValue(value + 1))
        return dumps(copy, kind)

    monkeypatch.setattr("cfgraph.console.transforms.convert.dumps", wrong)
    done = command("convert", file, "--verify", "-o", output)
    assert done.code == 1
    assert "attr value: - int32[]:20000  + int32[]:20001" in done.err
    assert not output.exists()


@pytest.mark.parametrize("name", ["lower", "partition", "cluster", "grad"])
def test_inputs_that_nothing_runs_with_are_refused(
    name: str, command: Any, graphs: Path, tmp_path: Path
) -> None:
    verb, graph, options = COMMANDS[name]
    done = command(verb, graphs / graph, *options, "--cases", "3", "-o", tmp_path / "o.pb")
    assert done.code == 2
    assert not (tmp_path / "o.pb").exists()


def test_a_graph_that_does_not_run_cannot_be_verified(command: Any, tmp_path: Path) -> None:
    (tmp_path / "g.graph").write_text("x = NoSuchOp()\ny = Identity(x) {T=float32}\n")
    done = command("lower", tmp_path / "g.graph", "--verify", "-o", tmp_path / "o.pb")
    assert done.code == 4
    assert not (tmp_path / "o.pb").exists()


DRAWING = """
p = Placeholder() {dtype=bool, shape=[]}
c = If(p) {Tin=(), Tout=(float32), else_branch=@f, then_branch=@f}
out = Identity(c)

function f() -> (y: float32) {
  shape = Const() {dtype=int32, value=int32[1]:[2]}
  i = RandomUniform(shape:output:0) {T=int32, dtype=float32, seed=1, seed2=2}
  return y = i:output:0
}
"""
BOTH_FORMS = "\ns = Switch(c, p)\nm = Merge(s, s:1)\n"


@pytest.mark.parametrize(("text", "lowered"), [(DRAWING + BOTH_FORMS, True), (DRAWING, False)])
def test_it_is_reported_where_functions_were_not_called(
    text: str, lowered: bool, command: Any, tmp_path: Path
) -> None:
    (tmp_path / "g.graph").write_text(text)
    done = command("lower", tmp_path / "g.graph", "--verify", "-o", tmp_path / "o.pb", "--json")
    assert done.code == 0, done.err
    assert ("A was lowered before the run" in done.err) is lowered
    assert done.json["result"]["verify"]["lowered"] is lowered


def test_fetches_of_a_cluster_may_stand_in_one_list(
    command: Any, graphs: Path, tmp_path: Path
) -> None:
    file = graphs / "cond_functional.pb"
    done = command("cluster", file, "--verify", "--fetch", "out,Less", "-o", tmp_path / "o.pb")
    assert done.code == 0, done.err
    assert "2 fetches agree" in done.err
