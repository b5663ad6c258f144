"""Models whose loops and operations are those of XLA, as jax2tf exported them, in all commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph import loads
from cfgraph.errors import ExecutionError

# TensorFlow's own kernel of XlaIf lacks an attribute that it reads
CONDITIONAL = """
p = Placeholder() {dtype=int32, shape=[]}
x = Placeholder() {dtype=float32, shape=[]}
c = XlaIf(p, x) {Tcond=int32, Tin=(float32), Tout=(float32), then_branch=@f, else_branch=@g}
y = Identity(c)

function f(x: float32) -> (y: float32) {
  y = Square(x)
  return y
}
function g(x: float32) -> (y: float32) {
  y = Neg(x)
  return y
}
"""
# the body is no function of arrays element by element
REDUCTION = """
x = Placeholder() {dtype=float32, shape=[3,?]}
zero = Const() {dtype=float32, value=float32[]:0}
y = XlaReduce(x, zero) {dimensions_to_reduce=(1), reducer=@largest}

function largest(a: float32, b: float32) -> (y: float32) {
  first = Greater(a, b)
  c = StatelessIf(first, a, b) {Tin=(float32, float32), Tout=(float32), then_branch=@one, else_branch=@two}
  return c
}
function one(a: float32, b: float32) -> (y: float32) {
  return a
}
function two(a: float32, b: float32) -> (y: float32) {
  return b
}
"""  # noqa: E501


def values(graph: Any, fetches: list[str], feeds: dict[str, Any]) -> list[Any]:
    with cfgraph.Session(graph) as session:
        return session.run(fetches, feeds)


@pytest.fixture
def loop(fixtures: Path) -> Path:
    return fixtures / "xla_operations" / "xlawhile.pb"


def test_a_product_of_a_file_is_computed(command: Any, fixtures: Path) -> None:
    feeds = "--feed", "a=[[0,1,2],[3,4,5]]", "--feed", "b=[[5,4],[3,2],[1,0]]"
    done = command("run", fixtures / "xla_operations" / "dot.pb", *feeds)
    assert done.out == "Identity:0  float32[2,2]  = [[2.0, 5.0], [20.0, 32.0]]\n"


def test_a_loop_of_xla_is_a_loop_everywhere(command: Any, loop: Path, tmp_path: Path) -> None:
    assert "functional loops" in command("show", loop).out
    feed = ("--feed", "s=3", "--verify")
    lowered, raised = tmp_path / "l.pb", tmp_path / "f.pb"
    assert command("lower", loop, "-o", lowered, *feed).code == 0
    assert command("functionalize", lowered, "-o", raised, *feed).code == 0
    for path in (loop, lowered, raised):
        assert values(cfgraph.load(path), ["Identity", "Identity_1"], {"s": 3}) == [5, 96]


def test_a_loop_of_xla_has_a_gradient(loop: Path) -> None:
    graph = cfgraph.load(loop)
    gradient = cfgraph.gradients(graph, ["Identity_1"], ["s"])[0]
    assert gradient is not None
    assert values(graph, [gradient], {"s": 3})[0] == 32


@pytest.mark.parametrize(("p", "value", "slope"), [(0, -3, -1), (2, 9, 6)])
def test_a_conditional_of_xla_takes_a_branch(p: int, value: float, slope: float) -> None:
    graph = loads(CONDITIONAL.encode())
    assert values(graph, ["y"], {"p": p, "x": 3}) == [value]
    gradient = cfgraph.gradients(graph, ["y"], ["x"])[0]
    assert gradient is not None
    assert values(graph, [gradient], {"p": p, "x": 3}) == [slope]


@pytest.mark.parametrize("x", [np.zeros((3, 0)), np.arange(12.0).reshape(3, 4) - 5])
def test_a_reduction_by_a_function_with_a_conditional_goes_element_by_element(x: Any) -> None:
    result = values(loads(REDUCTION.encode()), ["y"], {"x": x})[0]
    assert result.tolist() == np.max(x, axis=1, initial=0).tolist()


def test_dimension_numbers_that_are_no_message_are_an_error() -> None:
    graph = loads(b"""
        x = Placeholder() {dtype=float32, shape=[2,2]}
        y = XlaDot(x, x) {dimension_numbers="\\xff", precision_config=""}
    """)
    with pytest.raises((ExecutionError, cfgraph.errors.InvalidInput)) as failure:
        values(graph, ["y"], {"x": np.zeros((2, 2))})
    assert failure.value.node == "y"
