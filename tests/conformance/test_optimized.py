"""Every recorded session agrees on the optimized graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import cfgraph
from cfgraph.analysis.deadness.deadness import deadness
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph
from tests.conformance import recorded
from tests.sampled import sampled

CASES = recorded.parameters("session")


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


@pytest.mark.parametrize("case", sampled(CASES, 18))
def test_an_optimized_session_agrees(case: dict[str, Any]) -> None:
    failure = recorded.disagreement(case, optimized(case), engine="compiled")
    assert not failure, failure


def conditions(graph: Graph, run: dict[str, Any]) -> list[str]:
    """The liveness conditions of what a run fetches."""
    liveness = deadness(graph, cut=frozenset(map(graph.tensor, run["feeds"])))
    return [
        liveness.text(
            liveness.of(graph.tensor(name)) if ":" in name else liveness.of_control(graph[name])
        )
        for name in run["fetches"]
    ]


SUCCESSFUL = [param for param in CASES[3:] if "error" not in param.values[0]["runs"][-1]]


@pytest.mark.parametrize("case", sampled(SUCCESSFUL, 40))
def test_the_analysis_finds_no_other_liveness_of_fetches(case: dict[str, Any]) -> None:
    run = case["runs"][-1]
    before = recorded.graph(run["graph"])
    cfgraph.lower(before)
    after = copy_graph(before)
    cfgraph.optimize(after, fetches=run["fetches"], feeds=run["feeds"])
    assert conditions(after, run) == conditions(before, run)


@pytest.mark.parametrize("case", sampled(CASES[5:], 36))
def test_a_session_agrees_whose_graph_was_optimized_in_advance(case: dict[str, Any]) -> None:
    failure = recorded.disagreement(case, optimized_in_advance(case), engine="tokens")
    assert not failure, failure
