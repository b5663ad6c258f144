"""Every recorded session agrees on the optimized graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import cfgraph
from cfgraph.ir.graph import Graph
from tests.conformance import recorded
from tests.sampled import sampled

CASES = [
    pytest.param(case, id=case["id"])
    for case in recorded.cases()
    if case["kind"] == "session" and "host" not in case["tags"]
]


def optimized(case: dict[str, Any]) -> Callable[[Graph], Graph]:
    """Optimizes each graph for what its run fetches and feeds."""
    runs = iter(case["runs"])

    def prepare(graph: Graph) -> Graph:
        run = next(runs)
        cfgraph.optimize(graph, fetches=run["fetches"], feeds=run["feeds"])
        return graph

    return prepare


def optimized_in_advance(case: dict[str, Any]) -> Callable[[Graph], Graph]:
    """Optimizes each graph without removing what its run does not need."""
    runs = iter(case["runs"])

    def prepare(graph: Graph) -> Graph:
        run = next(runs)
        cfgraph.optimize(graph, feeds=run["feeds"], keep=run["fetches"])
        return graph

    return prepare


@pytest.mark.parametrize("case", sampled(CASES, 12))
def test_an_optimized_session_agrees(case: dict[str, Any]) -> None:
    failure = recorded.disagreement(case, optimized(case), engine="numpy")
    assert not failure, failure


@pytest.mark.parametrize("case", sampled(CASES[5:], 24))
def test_a_session_agrees_whose_graph_was_optimized_in_advance(case: dict[str, Any]) -> None:
    failure = recorded.disagreement(case, optimized_in_advance(case), engine="tokens")
    assert not failure, failure
