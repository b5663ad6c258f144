"""Runs at a point are independent of earlier runs, at this point and at others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cfgraph.comparison.equivalence import ComparisonRunOptions, compare_runs
from cfgraph.comparison.sample_point import EvaluationPoint
from cfgraph.runtime.preparation.executors import Executors
from tests.analysis.graph_text import graph as _graph

X = "x = Placeholder() {dtype=float32, shape=[]}\n"
SQUARE = f"{X}y = Mul(x, x)"
ACCUMULATOR = f"""{X}
v = VarHandleOp() {{dtype=float32, shape=[], shared_name="v"}}
add = AssignAddVariableOp(v, x)
y = ReadVariableOp(v, ^add) {{dtype=float32}}
"""
NOISE_IN_FUNCTION = f"""{X}
y = PartitionedCall(x) {{Tin=(float32), Tout=(float32), f=@noise}}
function noise(x: float32) -> (y: float32) {{
  stateful
  size = Const() {{dtype=int32, value=int32[1]:[2]}}
  r = RandomUniform(size) {{T=int32, dtype=float32}}
  y = Mul(x, r)
  return y = y
}}
"""


def test_a_function_draws_the_same_numbers_in_every_run() -> None:
    point = EvaluationPoint(_graph(NOISE_IN_FUNCTION), {"x": np.float32(1)}, seed=3)
    [first], [second] = point.run(["y"]), point.run(["y"])
    np.testing.assert_array_equal(first, second)
    assert len(set(first)) == 2


def test_a_function_draws_other_numbers_with_another_seed() -> None:
    graph = _graph(NOISE_IN_FUNCTION)
    first = EvaluationPoint(graph, {"x": np.float32(1)}, seed=3)
    second = EvaluationPoint(graph, {"x": np.float32(1)}, seed=4, previous=first)
    assert not np.array_equal(first.run(["y"]), second.run(["y"]))


def test_points_share_the_executor_of_a_graph_without_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # before, each of the 4 points of a graph linked one, and large graphs collected the garbage
    executors, make = [], Executors.make

    def counted(self: Executors, *args: Any) -> Any:
        executors.append(make(self, *args))
        return executors[-1]

    monkeypatch.setattr(Executors, "make", counted)
    options = ComparisonRunOptions(fetches=("y",), cases=4)
    assert not compare_runs(_graph(SQUARE), _graph(SQUARE), options)
    assert len(executors) == 2


@pytest.mark.parametrize(("text", "expected"), [(SQUARE, 9.0), (ACCUMULATOR, 5.0)])
def test_points_do_not_see_the_values_of_others(text: str, expected: float) -> None:
    graph = _graph(text)
    previous: EvaluationPoint | None = None
    for x in (1, 2, 3):
        point = EvaluationPoint(graph, {"x": np.float32(x)}, previous=previous)
        for cell in point.variables([graph["y"]]).values():
            point.set(cell, np.float32(2))
        previous = point
    assert previous is not None
    assert previous.run(["y"]) == previous.run(["y"]) == [expected]
