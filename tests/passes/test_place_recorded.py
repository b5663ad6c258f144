"""Recorded graphs can be placed, at random and by cost, with any device requests."""

from __future__ import annotations

from typing import Any

import pytest

import cfgraph
from cfgraph.analysis.verify.verify import require_valid
from cfgraph.errors import CfgraphError
from cfgraph.ir.devices import parse_devices
from cfgraph.ir.graph import Graph
from tests.conformance import recorded

DEVICES = "cpu:0-1,gpu:0"
BATCHES = 9


def names() -> list[str]:
    """Yield every graph of the archive once."""
    runs = [run for case in recorded.cases() for run in case.get("runs") or [case]]
    return sorted({run["graph"] for run in runs})


def lowered(graph: Graph) -> bool:
    """Return true if a graph is valid and can be lowered, as placement requires."""
    try:
        require_valid(graph)
        cfgraph.lower(graph)
    except CfgraphError:
        return False
    return True


def assert_placeable(name: str, **options: Any) -> None:
    graph = recorded.graph(name)
    try:
        report = cfgraph.place(graph, devices=DEVICES, **options)
    except CfgraphError:
        assert not lowered(recorded.graph(name)), name
        return
    assert {node.device for node in graph} <= set(parse_devices(DEVICES))
    assert set(report.decided) == set(graph.nodes)
    assert not cfgraph.place(graph, devices=DEVICES), name


@pytest.mark.parametrize("first", range(BATCHES))
def test_some_recorded_graphs_can_be_placed(first: int) -> None:
    for place, name in enumerate(names()[first :: 16 * BATCHES]):
        assert_placeable(name, **({"seed": place} if place % 2 else {"soft_placement": True}))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(BATCHES))
def test_every_recorded_graph_can_be_placed(first: int) -> None:
    for name in names()[first::BATCHES]:
        assert_placeable(name, soft_placement=True)
        assert_placeable(name, seed=first)
