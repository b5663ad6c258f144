"""Interpreted functional graphs compute the same values as lowered ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.comparison.divergence import difference_message
from cfgraph.comparison.equivalence import ComparisonRunOptions, compare_runs
from cfgraph.comparison.sample_point import EvaluationPoint, SampleOptions
from cfgraph.errors import RunTimeout, Unsupported
from cfgraph.ir.library import copy_graph
from tests.conformance.recorded import array, cases, is_functional
from tests.conformance.recorded import graph as recorded_graph
from tests.sampled import sampled

GRAPHS = Path(__file__).parents[2] / "fixtures" / "graphs"


@pytest.mark.parametrize("n", [0, 1, 7])
def test_a_loop_is_called_as_often_as_it_runs(n: int) -> None:
    graph = cfgraph.load(GRAPHS / "while_functional.pb")
    point = EvaluationPoint(graph, {"n:0": np.int32(n)})
    values = point.run_functional(["out:0"])
    assert values == [n]
    assert point.run(["out:0"]) == values


@pytest.mark.parametrize("x", [1.0, 5.0])
def test_a_conditional_calls_one_branch(x: float) -> None:
    graph = cfgraph.load(GRAPHS / "cond_functional.pb")
    feeds: dict[str, Any] = {"x:0": np.float32(x), "y:0": np.float32(3), "z:0": np.float32(10)}
    point = EvaluationPoint(graph, feeds)
    assert point.run_functional(["out:0"]) == point.run(["out:0"]) == [11.0 if x < 3 else 9.0]


def test_primitives_and_graphs_without_functions_are_not_interpreted() -> None:
    graph = cfgraph.load(GRAPHS / "counter.pb")
    assert EvaluationPoint(graph, {"n:0": np.int32(3)}).run_functional(["count:0"]) is None


def test_a_loop_over_the_iteration_limit_is_not_interpreted() -> None:
    graph = cfgraph.load(GRAPHS / "while_functional.pb")
    point = EvaluationPoint(graph, {"n:0": np.int32(50)}, max_iterations=9)
    assert point.run_functional(["out:0"]) is None


STATE = """
v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
p = Placeholder() {dtype=bool, shape=[]}
x = Placeholder() {dtype=float32, shape=[]}
if = If(p, v, x) {Tin=(resource, float32), Tout=(float32), then_branch=@add, else_branch=@set}
out = Identity(if)
after = ReadVariableOp(v, ^if) {dtype=float32}

function add(v: resource, x: float32) -> (y: float32) {
  stateful
  write = AssignAddVariableOp(v, x) {dtype=float32}
  read = ReadVariableOp(v, ^write) {dtype=float32}
  return y = read:value:0
  control_return write = write
}

function set(v: resource, x: float32) -> (y: float32) {
  stateful
  write = AssignVariableOp(v, x) {dtype=float32}
  y = Identity(x) {T=float32}
  return y = y:output:0
  control_return write = write
}
"""


def test_effects_of_branches_are_those_of_a_session() -> None:
    graph = cfgraph.loads(STATE.encode())
    for p in (False, True):
        point = EvaluationPoint(graph, {"p:0": np.bool_(p), "x:0": np.float32(3)})
        for cell in point.variables([graph["if"]]).values():
            point.set(cell, np.float32(4))
        names = ["out:0", "after:0"]
        values = point.run_functional(names)
        assert values == point.run(names) == ([7.0, 7.0] if p else [3.0, 3.0])


@pytest.mark.parametrize("part", sampled(range(4), 4))
def test_recorded_programs_compute_the_same_interpreted_and_lowered(part: int) -> None:
    compared = 0
    for case in cases()[part::4]:
        runs = case.get("runs", ())
        if len(runs) != 1 or not is_functional(case):
            continue
        (run,) = runs
        names = [name for name in run["fetches"] if ":" in name]
        if run.get("error") or len(names) < len(run["fetches"]):
            continue
        feeds = {name: array(key) for name, key in run["feeds"].items()}
        point = EvaluationPoint(recorded_graph(run["graph"]), feeds)
        values = point.run_functional(names)
        if values is not None:
            assert not list(filter(None, map(difference_message, point.run(names), values)))
            compared += 1
    assert compared > 20


@pytest.mark.parametrize("name", ["while_functional.pb", "cond_functional.pb"])
def test_an_error_of_lowering_in_both_graphs_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = cfgraph.load(GRAPHS / name)
    right = cfgraph.lower

    def wrong(graph: Any, **options: Any) -> Any:
        report = right(graph, **options)
        for node in list(graph):
            if node.op == "Less":
                graph.set_inputs(node, node.inputs[::-1])
        return report

    monkeypatch.setattr("cfgraph.passes.lowering.lower", wrong)
    lowered = copy_graph(graph)
    wrong(lowered)
    values = compare_runs(graph, lowered)
    assert values.gaps
    assert difference_message(values.gaps[0].before, values.gaps[0].after)


CHOSEN = """
p = Placeholder() {dtype=bool, shape=[]}
a = Placeholder() {dtype=KIND, shape=[]}
two = IdentityN(a, a) {T=(KIND, KIND)}
c = StatelessIf(p, two, two:1) {Tin=(KIND, KIND), Tout=(KIND), else_branch=@f, then_branch=@f}
out = Identity(c)

function f(x: KIND, y: KIND) -> (z: KIND) {
  i = Identity(x) {T=KIND}
  return z = i:output:0
}
"""


def test_a_fed_string_is_compared() -> None:
    text = CHOSEN.replace("KIND", "string")
    a, b = (cfgraph.loads(item.encode()) for item in (text, text.replace("(x) ", "(y) ")))
    feeds = {"two:0": np.array(b"one", object), "two:1": np.array(b"two", object)}
    assert not compare_runs(a, a, ComparisonRunOptions(SampleOptions(feeds)))
    values = compare_runs(a, b, ComparisonRunOptions(SampleOptions(feeds)))
    assert [gap.what for gap in values.gaps] == ["out:0"]


def test_one_output_of_several_may_be_fed() -> None:
    graph = cfgraph.loads(CHOSEN.replace("KIND", "float32").encode())
    feeds = {"p:0": np.bool_(1), "a:0": np.float32(3), "two:0": np.float32(1)}
    names = ["out:0", "two:0", "two:1"]
    assert EvaluationPoint(graph, feeds).run_functional(names) == [1.0, 1.0, 3.0]
    assert EvaluationPoint(graph, feeds).run(names) == [1.0, 1.0, 3.0]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (b"one", np.array(b"two", object), "the value differs"),
        (b"one", np.array(b"one", object), None),
        (np.float32(1), object(), "an array only in A"),
        (object(), np.zeros(2), "an array only in B"),
        (object(), object(), None),
    ],
)
def test_an_array_differs_from_other_objects(before: Any, after: Any, message: str | None) -> None:
    assert difference_message(before, after) == message


def test_a_recursive_function_is_rejected_as_by_lowering() -> None:
    graph = cfgraph.load(GRAPHS.parent / "errors" / "CFG134_recursion.graph")
    assert EvaluationPoint(graph, {"x:0": np.float32(1)}).run_functional(["y:0"]) is None
    with pytest.raises(Unsupported, match="calls itself"):
        compare_runs(graph, graph)


def test_the_timeout_applies_to_interpreted_calls() -> None:
    graph = cfgraph.load(GRAPHS / "while_functional.pb")
    point = EvaluationPoint(graph, {"n:0": np.int32(1 << 30)}, timeout=0.01)
    with pytest.raises(RunTimeout):
        point.run_functional(["out:0"])


def test_a_timeout_of_the_second_graph_is_not_a_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = cfgraph.load(GRAPHS / "while_functional.pb")
    monkeypatch.setattr(EvaluationPoint, "run_functional", lambda *_: [np.int32(1)])
    setting = SampleOptions({"n:0": np.int32(1 << 30)}, timeout=0.01, max_iterations=None)
    with pytest.raises(RunTimeout, match="second graph"):
        compare_runs(graph, graph, ComparisonRunOptions(setting, fetches=("out:0",)))


UNNEEDED = """
v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
x = Placeholder() {dtype=float32, shape=[]}
y = CALL
after = ReadVariableOp(v, ^y) {dtype=float32}

function set(v: resource, x: float32) -> (y: float32) {
  stateful
  write = AssignVariableOp(v, x) {dtype=float32}
  return y = x
}
"""
CALLS = {
    "StatefulPartitionedCall(v, x) {Tin=(resource, float32), Tout=(float32), f=@set}": 3,
    "set(v, x)": 3,
    "If(x, v, x) {Tin=(resource, float32), Tout=(float32), else_branch=@set, then_branch=@set}": 3,
    "If(x, v, x) {Tin=(resource, float32), Tout=(float32), else_branch=@set, then_branch=@set, "
    "_lower_using_switch_merge=true}": 4,
}


@pytest.mark.parametrize("call", CALLS)
def test_effects_that_no_output_needs_run_where_tensorflow_runs_them(call: str) -> None:
    graph = cfgraph.loads(UNNEEDED.replace("CALL", call).encode(), "graph")
    point = EvaluationPoint(graph, {"x:0": np.float32(3)})
    for cell in point.variables([graph["after"]]).values():
        point.set(cell, np.float32(4))
    assert point.run_functional(["after:0"]) == point.run(["after:0"]) == [CALLS[call]]


def test_a_reference_is_read_where_an_op_expects_the_value() -> None:
    text = """
        p = Placeholder() {dtype=bool, shape=[]}
        w = VariableV2() {dtype=float32, shape=[2,2], container="", shared_name=""}
        two = Const() {dtype=float32, value=float32[2,2]:[[1,2],[3,4]]}
        start = Assign(w, two)
        same = Identity(w, ^start)
        before = MatMul(same, two, ^start)
        more = AssignAdd(w, two, ^before)
        after = MatMul(same, w, ^more)
        out = If(p, after, w, ^more) {Tin=(float32, float32), Tout=(float32), \
then_branch=@sum, else_branch=@sum}

        function sum(a: float32, b: float32) -> (c: float32) {
          d = AddV2(a, b)
          return c = d:z:0
        }
    """
    graph = cfgraph.loads(text.encode(), "graph")
    point = EvaluationPoint(graph, {"p:0": np.bool_(True)})
    values = point.run_functional(["out:0", "after:0"])
    assert values is not None
    assert [value.tolist() for value in values] == [
        [[30, 44], [66, 96]],
        [[28, 40], [60, 88]],
    ]
    assert [value.tolist() for value in point.run(["out:0", "after:0"])] == [
        value.tolist() for value in values
    ]
