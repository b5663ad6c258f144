"""Extracted graphs compute the values of the original; loops and conditionals stay whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.analysis.loops.frames import frames
from cfgraph.console.transforms.extract import CutValues
from cfgraph.errors import UsageError
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import Graph
from cfgraph.passes.extract import ExtractionPlan

GRAPHS = Path(__file__).parents[2] / "fixtures" / "graphs"
FEEDS = {
    "counter": {"n:0": 4},
    "nested": {},
    "while_functional": {"n:0": 3},
    "cond_functional": {"x:0": 3.0, "y:0": 2.0, "z:0": 5.0},
    "deadness_mismatch": {"p:0": True, "v:0": [1.0, 2.0]},
}


def loaded(name: str) -> Graph:
    graph = cfgraph.load(GRAPHS / f"{name}.pb")
    cfgraph.lower(graph)
    for limit in ("while/Less/y", "while/while/Less/y") if name == "nested" else ():
        graph.set_attr(graph[limit], "value", TensorValue(np.asarray(3, np.int32)))
    return graph


def values_of_run(graph: Graph, plan: ExtractionPlan, iterations: Any, feeds: Any) -> Any:
    """The values of the cut tensors in a run, and the ones that are dead."""
    wanted: dict[str, list[Any]] = {}
    for tensor in plan.cut:
        wanted.setdefault(tensor.node.name, []).append(tensor)
    observer = CutValues(plan.frames, iterations, wanted)
    cfgraph.Session(graph).run([], feeds, wanted, trace=observer, max_iterations=100)
    return {tensor.name: value for tensor, value in observer.values.items()}


@pytest.mark.parametrize("name", ["counter", "nested", "while_functional"])
def test_one_iteration_computes_the_values_of_the_loop(name: str) -> None:
    graph, feeds = loaded(name), FEEDS[name]
    compared = 0
    loops = [frame for frame in frames(graph).all if frame.parent is not None]
    for frame in loops:
        iterations = dict.fromkeys((frame, frame.parent, *loops), 1)
        for node in frame.nodes:
            if not node.uses or frames(graph).of_outputs[node] is not frame:
                continue
            output = f"{node.name}:0"
            plan = ExtractionPlan(graph, [output], [])
            values = values_of_run(graph, plan, iterations, feeds)
            expected = values_of_run(
                graph, ExtractionPlan(graph, [output], [output]), iterations, feeds
            )
            part = loaded(name)
            report = cfgraph.extract(part, outputs=output, inputs=values, values=values)
            assert len(part) < len(graph)
            (actual,) = cfgraph.Session(part).run(report.outputs, allow_dead=True)
            if actual is None:
                assert not expected
            else:
                assert actual == expected[output], output
                compared += 1
    assert compared >= 5


@pytest.mark.parametrize("name", sorted(FEEDS))
def test_a_cut_is_rejected_or_keeps_the_values(name: str) -> None:
    graph, feeds = loaded(name), FEEDS[name]
    root = frames(graph).root
    outputs = [
        node.name for node in graph if not node.uses and frames(graph).of_outputs[node] is root
    ]
    expected = dict(
        zip(outputs, cfgraph.Session(graph).run(outputs, feeds, allow_dead=True), strict=True)
    )
    rejected = checked = 0
    for node in graph:
        for output in outputs:
            try:
                plan = ExtractionPlan(graph, [output], [node.name])
            except cfgraph.UsageError:
                rejected += 1
                continue
            if not plan.cut:
                continue
            values = values_of_run(graph, plan, {}, feeds)
            values |= {item.name: feeds[item.name] for item in plan.cut if item.name in feeds}
            if not values:
                continue  # the input is dead with these feeds
            part = loaded(name)
            report = cfgraph.extract(part, outputs=output, inputs=node.name)
            fed = {report.inputs[item]: value for item, value in values.items()}
            rest = {item: feeds[item] for item in feeds if item.partition(":")[0] in part}
            (actual,) = cfgraph.Session(part).run(report.outputs, rest | fed, allow_dead=True)
            np.testing.assert_array_equal(actual, expected[output])
            checked += 1
    assert checked
    assert rejected or name not in {"counter", "nested", "while_functional", "cond_functional"}


@pytest.mark.parametrize(
    ("outputs", "inputs", "message"),
    [
        (["count"], ["while/add"], "inside the loop /while/while_context"),
        (["while/add"], ["while/Less/Enter"], "depends on while/Merge:0"),
        (["count", "while/add"], [], "the outputs are in different loops"),
        (["cuont"], [], "no node 'cuont'"),
        ([], [], "no outputs"),
    ],
)
def test_a_cut_through_a_loop_is_an_error_and_changes_nothing(
    outputs: list[str], inputs: list[str], message: str
) -> None:
    graph = loaded("counter")
    before = cfgraph.dumps(graph)
    with pytest.raises(cfgraph.UsageError, match=message):
        cfgraph.extract(graph, outputs=outputs, inputs=inputs)
    assert cfgraph.dumps(graph) == before


def test_a_cut_through_a_conditional_is_an_error() -> None:
    graph = loaded("cond_functional")
    inside = next(node for node in graph if node.op == "Square")
    with pytest.raises(cfgraph.UsageError, match="inside a conditional"):
        cfgraph.extract(graph, outputs="out", inputs=inside.name)
    branch = cfgraph.extract(loaded("cond_functional"), outputs=inside.name)
    assert not branch.loops


def test_inputs_of_both_sides_are_an_error() -> None:
    b = cfgraph.Builder()
    x, p = b.placeholder("x"), b.placeholder("p", "bool", [])
    false, true = b.Switch(x, p, name="switch")
    b.AddN([b.Neg(false, name="left"), b.Exp(true, name="right")], name="sum")
    with pytest.raises(cfgraph.UsageError, match="never live together"):
        cfgraph.extract(b.graph, outputs="sum", inputs=["left", "right"])


def test_unused_parts_and_functions_disappear_and_names_stay() -> None:
    graph = cfgraph.load(GRAPHS / "while_functional.pb")
    node = next(node for node in graph if node.op in ("While", "StatelessWhile"))
    report = cfgraph.extract(graph, outputs="out", inputs=[f"{node.name}:2"])
    assert not graph.functions
    assert report.inputs == {f"{node.name}:2": f"{node.name}_2:0"}
    assert cfgraph.Session(graph).run(["out:0"], {f"{node.name}_2:0": 7}) == [7]


def test_a_partitioned_graph_is_not_cut() -> None:
    graph = loaded("counter")
    cfgraph.place(graph, devices=["cpu:0", "cpu:1"], seed=7)
    cfgraph.partition(graph)
    with pytest.raises(cfgraph.Unsupported, match="partitioned"):
        cfgraph.extract(graph, outputs="count")


def test_a_value_is_converted_to_the_type_of_its_input() -> None:
    text = "x = Placeholder() {dtype=float32, shape=[2]}\ny = Neg(x)\n"
    found = cfgraph.loads(text.encode())
    with pytest.raises(UsageError, match="the value of x:0 is not float32"):
        cfgraph.extract(found, outputs=["y"], inputs=["x"], values={"x": "text"})
    cfgraph.extract(found, outputs=["y"], inputs=["x"], values={"x": [1, 2]})
    assert cfgraph.Session(found).run(["y"])[0].tolist() == [-1, -2]
