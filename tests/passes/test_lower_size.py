from __future__ import annotations

import pytest

import cfgraph
from cfgraph.analysis.verify.verify import require_valid
from cfgraph.errors import Unsupported
from cfgraph.ir.function_graph import FunctionInstances
from cfgraph.passes.lower.functional_node import functional_kind
from tests.conformance import recorded
from tests.little_stack import little_stack
from tests.passes.functional_graphs import calls, graph_of, lowered, nested


def edits(text: str) -> int:
    """Number of graph edits of lowering: its cost, independent of time."""
    graph = graph_of(text)
    before = graph.edits
    with little_stack():
        cfgraph.lower(graph)
    return graph.edits - before


def test_ten_times_the_calls_cost_ten_times_as_much() -> None:
    few, many = edits(calls(200)), edits(calls(2_000))
    assert many <= 10.1 * few


def test_two_hundred_nested_conditionals_cost_ten_times_what_twenty_do() -> None:
    few, many = edits(nested(20)), edits(nested(200))
    assert many <= 10.5 * few


def test_calls_and_nested_conditionals_compute_what_they_should() -> None:
    graph = lowered(calls(500))
    assert cfgraph.Session(graph).run(["call499:0"], {"x:0": 1}) == [501]
    graph = lowered(nested(60))
    assert cfgraph.Session(graph).run(["if:0"], {"pred:0": True, "x:0": 1}) == [61]
    assert cfgraph.Session(graph).run(["if:0"], {"pred:0": False, "x:0": 1}) == [1]


def recorded_graphs() -> list[str]:
    """The functional graphs of recorded sessions."""
    cases = recorded.parameters("session", recorded.is_functional)
    chosen = (run["graph"] for case in cases for run in case.values[0]["runs"])
    return list(dict.fromkeys(chosen))


@pytest.mark.slow
def test_recorded_graphs_are_lowered_whole_and_once() -> None:
    count = 0
    for name in recorded_graphs():
        graph = recorded.graph(name)
        try:
            if not cfgraph.lower(graph):
                continue
        except Unsupported as error:
            assert "gradient" in error.message  # noqa: PT017
            continue
        count += 1
        require_valid(graph)
        instances = FunctionInstances(graph.functions)
        assert not [node for node in graph if functional_kind(node, instances)], name
        once = cfgraph.dumps(graph)
        assert not cfgraph.lower(graph)
        assert cfgraph.dumps(graph) == once, name
    assert count > 400
