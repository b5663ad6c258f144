"""Example programs of the paper that introduced TensorFlow's control flow."""

from __future__ import annotations

from pathlib import Path

import pytest

import cfgraph
from cfgraph import Builder
from tests.build.execution import run_builder, run_with_tensorflow


def conditional() -> Builder:
    b = Builder()
    x, y, z = (b.placeholder(name, "float32", []) for name in "xyz")
    b.Identity(b.cond(x < y, lambda: b.AddV2(x, z), lambda: b.Square(y)), name="out")
    return b


def loop() -> Builder:
    b = Builder()
    n = b.placeholder("n", "int32", [])
    (count,) = b.while_loop(lambda i: i < n, lambda i: b.AddV2(i, 1), [0])
    b.Identity(count, name="out")
    return b


CASES = [
    (conditional, {"x": 1, "y": 2, "z": 5}, 6),
    (conditional, {"x": 3, "y": 2, "z": 5}, 4),
    (loop, {"n": 10}, 10),
    (loop, {"n": 0}, 0),
]


@pytest.mark.parametrize(("write", "feeds", "expected"), CASES)
def test_a_program_gives_what_it_says(write, feeds, expected) -> None:
    b = write()
    assert run_builder(b, [b.graph.tensor("out")], feeds) == [expected]


@pytest.mark.interop
@pytest.mark.parametrize(("write", "feeds", "expected"), CASES)
def test_tensorflow_runs_a_program_as_it_is_written(write, feeds, expected) -> None:
    b = write()
    assert run_with_tensorflow(b, [b.graph.tensor("out")], feeds) == [expected]


def test_the_conditional_is_one_node_with_a_function_a_branch() -> None:
    graph = conditional().graph
    node = graph["cond"]
    assert node.op == "StatelessIf"
    assert [item.name for item in node.inputs] == ["Less:0", "x:0", "z:0", "y:0"]
    assert node.attrs["_lower_using_switch_merge"] is True
    assert sorted(graph.functions) == ["cond_else", "cond_then"]


def test_the_loop_is_one_node_that_carries_what_it_reads() -> None:
    graph = loop().graph
    node, body = graph["while"], graph.functions["while_body"].definition
    assert node.op == "StatelessWhile"
    assert [item.name for item in node.inputs] == ["while/i:0", "n:0"]
    assert [str(shape) for shape in node.attrs["output_shapes"]] == ["[]", "[]"]
    assert body.returns == {"i_out": "AddV2:z:0", "n_out": "n"}


@pytest.mark.parametrize("suffix", ["pb", "pbtxt", "graph", "pb.gz"])
def test_what_is_written_survives_a_file(suffix: str, tmp_path: Path) -> None:
    graph = loop().graph
    cfgraph.save(graph, tmp_path / f"loop.{suffix}")
    loaded = cfgraph.load(tmp_path / f"loop.{suffix}")
    assert cfgraph.dumps(loaded, format="graph") == cfgraph.dumps(graph, format="graph")
    assert not cfgraph.check(loaded).findings


def test_what_is_written_is_the_same_every_time() -> None:
    assert cfgraph.dumps(loop().graph) == cfgraph.dumps(loop().graph)
