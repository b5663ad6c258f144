"""Fetches of recorded sessions have the same liveness in the optimized graph."""

from __future__ import annotations

from typing import Any

import pytest

import cfgraph
from cfgraph.analysis.deadness.deadness import deadness
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph
from tests.conformance import recorded
from tests.sampled import sampled

CASES = recorded.parameters("session")


def conditions(graph: Graph, run: dict[str, Any]) -> list[str]:
    """The liveness conditions of what a run fetches."""
    liveness = deadness(graph, cut=frozenset(map(graph.tensor, run["feeds"])))
    return [
        liveness.text(liveness.predicate(graph.tensor(name) if ":" in name else graph[name]))
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
