"""Functionalized regions change no liveness, for random graphs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cfgraph.ir.graph import CONTROL, Graph, Output
from cfgraph.passes.cluster.formation.report import Clustering
from tests.analysis.assignments import Tables
from tests.analysis.random_graphs import WITHOUT_LOOPS, random_graph
from tests.passes.test_cluster_sound import (
    PROVEN,
    WITH_LOOPS,
    ClusteredTables,
    clustered,
    differences,
)
from tests.sampled import half

# in which no one predicate decides a Merge
UNSTRUCTURED = ("unstructured", "dense", "wide")


def still_there(before: Graph, after: Graph, report: Clustering) -> Iterator[tuple[Output, Output]]:
    """Yield each remaining output, and each control edge of an unchanged node."""
    for node in before:
        if node.name not in report.names and node.name in after:
            yield Output(node, CONTROL), Output(after[node.name], CONTROL)
        for old in node.outputs:
            if old.name in report.names:
                yield old, after.tensor(report.names[old.name][0])
            elif node.name not in report.names and _has(after, node.name, old.port):
                yield old, Output(after[node.name], old.port)


def _has(graph: Graph, name: str, port: int) -> bool:
    """Return true for an output that remains; the unread index of a Merge does not."""
    return name in graph and port < (graph[name].output_count or 0)


@pytest.mark.parametrize("mode", PROVEN)
@pytest.mark.parametrize("kind", WITHOUT_LOOPS)
@pytest.mark.parametrize("seeds", half(range(12)))
def test_a_functionalized_conditional_keeps_its_liveness(
    seeds: range, kind: str, mode: str
) -> None:
    functionalized = 0
    for seed in seeds[::6] if kind == "wide" else seeds:
        graph = random_graph(seed, kind).graph
        after, report = clustered(graph, deadness=mode, regions=True)
        before = Tables(graph)
        pairs = list(still_there(graph, after, report))
        then = ClusteredTables(after, before, {new: old for old, new in pairs})
        changed = [old.name for old, new in pairs if before.of[old] != then.of[new]]
        assert not changed, seed
        functionalized += sum(region.replacement is not None for region in report.regions)
    assert functionalized or kind in UNSTRUCTURED


@pytest.mark.parametrize("kind", WITH_LOOPS)
def test_a_functionalized_loop_keeps_its_liveness(kind: str) -> None:
    for seed in range(6):
        graph = random_graph(seed, kind).graph
        after, report = clustered(graph, regions=True)
        pairs = list(still_there(graph, after, report))
        for number in range(2):
            assert not differences(graph, after, pairs, number), seed
