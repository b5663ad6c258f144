"""Feeds of captured variable handles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.analysis.resource_handles import variable_of_handle
from cfgraph.errors import UsageError
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Graph

CAPTURED = """
n = Placeholder() {dtype=int32, shape=[]}
x = Placeholder() {dtype=float32, shape=[]}
w = Placeholder() {dtype=resource, shape=[]}
zero = Const() {dtype=int32, value=int32[]:0}
loop = While(zero, x, n, w) {cond=@more, body=@step}
y = Identity(loop:1)
function more(i: int32, y: float32, n: int32, w: resource) -> (b: bool) {
  b = Less(i, n)
  return b
}
function step(i: int32, y: float32, n: int32, w: resource) -> (i: int32, y: float32, n: int32, w: resource) {
  one = Const() {dtype=int32, value=int32[]:1}
  next = AddV2(i, one)
  z = StatefulPartitionedCall(y, w) {f=@times, Tout=(float32)}
  return next, z, n, w
}
function times(y: float32, w: resource) -> (z: float32) {
  value = ReadVariableOp(w) {dtype=float32}
  z = Mul(y, value)
  return z
}
"""  # noqa: E501


@pytest.fixture
def graph() -> Graph:
    return cfgraph.loads(CAPTURED.encode())


def test_an_array_for_a_handle_is_the_value_of_a_variable(graph: Graph) -> None:
    feeds = {"x": 2, "n": 3, "w": np.float64(3)}
    assert cfgraph.Session(graph).run(["y"], feeds) == [54.0]
    assert cfgraph.Session(graph, devices="cpu:0-1").run(["y"], feeds) == [54.0]


@pytest.mark.parametrize("value", [3, [3], (3.0,), pytest.param(np.array([3]), id="array")])
def test_whatever_makes_an_array_is_the_value_of_a_variable(graph: Graph, value: Any) -> None:
    (y,) = cfgraph.Session(graph).run(["y"], {"x": 2, "n": 3, "w": value})
    assert np.ravel(y).tolist() == [54.0]


def test_nothing_is_no_value_of_a_variable(graph: Graph) -> None:
    with pytest.raises(UsageError, match="feed w:0: the value is None, expected float32"):
        cfgraph.Session(graph).run(["y"], {"x": 2, "n": 3, "w": None})


def test_the_reads_in_functions_report_the_type_of_the_variable(graph: Graph) -> None:
    assert variable_of_handle(graph, graph.tensor("w"))[0] is dtypes.float32
    with pytest.raises(UsageError, match="the value contains strings, expected float32"):
        cfgraph.Session(graph).run(["y"], {"x": 2, "n": 3, "w": "three"})


@pytest.mark.parametrize(
    "access",
    [
        "AssignVariableOp(w, x) {dtype=float32}",
        "AssignAddVariableOp(w, x) {dtype=float32}",
        "ResourceGather(w, i) {dtype=float32, Tindices=int32}",
        "Identity(w) {_handle_dtypes=(float32)}",
    ],
)
def test_every_access_reports_the_type_of_the_variable(access: str) -> None:
    text = f"""
w = Placeholder() {{dtype=resource, shape=[]}}
x = Placeholder() {{dtype=float32, shape=[]}}
i = Placeholder() {{dtype=int32, shape=[]}}
u = {access}
"""
    graph = cfgraph.loads(text.encode())
    handle = graph.tensor("u" if "_handle" in access else "w")
    assert variable_of_handle(graph, handle)[0] is dtypes.float32


def test_functions_that_call_each_other_without_reading_report_nothing() -> None:
    text = """
w = Placeholder() {dtype=resource, shape=[]}
y = StatefulPartitionedCall(w) {f=@f, Tout=(float32)}
function f(w: resource) -> (y: float32) {
  y = StatefulPartitionedCall(w) {f=@f, Tout=(float32)}
  return y
}
"""
    graph = cfgraph.loads(text.encode())
    assert variable_of_handle(graph, graph.tensor("w"))[0] is None


def test_the_gradient_by_a_variable_that_is_fed_is_checked(
    graph: Graph, command: Any, tmp_path: Path
) -> None:
    cfgraph.lower(graph)
    cfgraph.save(graph, tmp_path / "g.pb")
    out = tmp_path / "gradient.pb"
    feeds = ["--feed", "w=3", "--feed", "n=3"]
    options = ["--ys", "y", "--check", "-o", out]
    done = command("grad", tmp_path / "g.pb", *options, *feeds, "--feed", "x=2")
    assert (done.code, "finite differences  agree" in done.err) == (0, True)
    options = ["--fetch", "gradients/w", "--expect", "gradients/w=54"]
    assert command("run", out, *options, *feeds, "--feed", "x=2").code == 0


def test_what_lacks_says_that_a_value_is_wanted(graph: Graph, command: Any, tmp_path: Path) -> None:
    cfgraph.save(graph, tmp_path / "g.pb")
    done = command("run", tmp_path / "g.pb", "--feed", "x=2", "--feed", "n=1")
    assert "w:0 (the value of a variable, float32)" in done.err


def test_a_value_stands_for_the_variable_of_the_graph_in_a_run() -> None:
    b = cfgraph.Builder()
    w = b.variable([1.0, 2.0], name="w")
    b.Sum(w * w, [0], name="y")
    feeds = {"w": np.array([3, 4])}
    assert cfgraph.Session(b.graph).run(["y"], feeds) == [25.0]
    with pytest.raises(UsageError, match="dimension 0 is 3, expected 2"):
        cfgraph.Session(b.graph).run(["y"], {"w": np.zeros(3)})
