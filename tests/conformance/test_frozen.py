"""Every recorded graph, frozen for its fetches, computes what TensorFlow recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import cfgraph
from cfgraph.analysis.feeds_and_fetches import is_input
from cfgraph.ir.graph import Graph
from cfgraph.ir.node import node_name
from tests.conformance import recorded
from tests.sampled import sampled

SESSIONS = recorded.parameters("session")


def frozen(case: dict[str, Any]) -> Callable[[Graph], Graph]:
    """Freezes each graph for what its run fetches; its inputs stay, and so do variables."""
    runs = iter(case["runs"])

    def prepare(graph: Graph) -> Graph:
        run = next(runs)
        fed = [graph[node_name(name)] for name in run["feeds"]]
        # constants are folded, and cannot be fed then
        if not run.get("error") and all(map(is_input, fed)):
            fetched = [name if ":" in name else f"^{name}" for name in run["fetches"]]
            inputs = [f"^{node.name}" for node in fed]
            cfgraph.freeze(graph, {}, outputs=[*fetched, *inputs])
        return graph

    return prepare


@pytest.mark.parametrize("case", sampled(SESSIONS, 60))
def test_a_frozen_session_agrees(case: dict[str, Any]) -> None:
    failure = recorded.disagreement(case, frozen(case))
    assert not failure, failure
