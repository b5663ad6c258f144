"""Clustering changes no liveness, for random graphs under all assignments of predicates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import cfgraph
from cfgraph.ir.graph import CONTROL, Graph, Node, Output
from cfgraph.ir.library import copy_graph
from cfgraph.passes.cluster.formation.report import Clustering
from tests.analysis.assignments import Assignment, Tables
from tests.analysis.liveness_oracle import Liveness, Tag, liveness
from tests.analysis.random_graphs import RECIPES, WITHOUT_LOOPS, random_graph
from tests.sampled import half

WITH_LOOPS = tuple(kind for kind in RECIPES if kind not in WITHOUT_LOOPS)
PROVEN = ("exact", "inputs")


class ClusteredTables(Tables):
    """Liveness in a clustered graph; outputs of a cluster call keep their values."""

    def __init__(self, graph: Graph, before: Tables, old: Mapping[Output, Output]) -> None:
        self.before = before
        self.old = old
        super().__init__(graph)

    def run(self, node: Node) -> None:
        super().run(node)
        for output in node.outputs[1:]:
            self.of.setdefault(output, self.of[Output(node, CONTROL)])

    def value(self, output: Output) -> dict[int, int]:
        old = self.old.get(output)
        return super().value(output) if old is None else self.before.value(old)


def surviving_outputs(
    before: Graph, after: Graph, report: Clustering
) -> Iterator[tuple[Output, Output]]:
    """Yield each remaining output and control edge with its replacement."""
    for node in before:
        (name,) = report.names.get(node.name, (node.name,))
        if name in after:
            yield Output(node, CONTROL), Output(after[name], CONTROL)
        for old in node.outputs:
            if old.name in report.names:
                yield old, after.tensor(report.names[old.name][0])
            elif node.name in after and node.name not in report.names:
                yield old, Output(after[node.name], old.port)


def clustered(graph: Graph, **options: Any) -> tuple[Graph, Clustering]:
    """Return a clustered copy."""
    copy = copy_graph(graph, graph)
    return copy, cfgraph.cluster(copy, **options)


def liveness_changes(graph: Graph, **options: Any) -> tuple[list[str], Clustering]:
    """Return the outputs of a loop-free graph whose liveness changed."""
    after, report = clustered(graph, **options)
    before = Tables(graph)
    pairs = list(surviving_outputs(graph, after, report))
    then = ClusteredTables(after, before, {new: old for old, new in pairs})
    return [old.name for old, new in pairs if before.of[old] != then.of[new]], report


@pytest.mark.parametrize("mode", PROVEN)
@pytest.mark.parametrize("kind", WITHOUT_LOOPS)
@pytest.mark.parametrize("seeds", half(range(60)))
def test_clustering_changes_no_liveness(seeds: range, kind: str, mode: str) -> None:
    count = 0
    for seed in seeds[::10] if kind == "wide" else seeds:
        changed, report = liveness_changes(random_graph(seed, kind).graph, deadness=mode)
        assert not changed, seed
        count += len(report.clusters)
    assert count


@pytest.mark.parametrize("mode", PROVEN)
@pytest.mark.parametrize("kind", WITH_LOOPS)
@pytest.mark.parametrize("seeds", half(range(12)))
def test_clustering_changes_no_live_token_in_loops(seeds: range, kind: str, mode: str) -> None:
    count = 0
    for seed in seeds:
        graph = random_graph(seed, kind).graph
        after, report = clustered(graph, deadness=mode)
        pairs = list(surviving_outputs(graph, after, report))
        for number in range(3):
            assert not differences(graph, after, pairs, number), seed
        count += len(report.clusters)
    assert count


def differences(
    before: Graph, after: Graph, pairs: list[tuple[Output, Output]], seed: int
) -> list[str]:
    """Return the differences between the tokens of two runs under one assignment."""
    assignment = Assignment(seed)
    was = assignment.run(before)
    old = {new: tensor for tensor, new in reversed(pairs)}

    def choose(output: Output, tag: Tag) -> int:
        return assignment(old[output], tag)

    now = liveness(after, choose)
    if was.starved:
        return []  # how far it gets before a loop starves is not promised
    differences = [] if now.starved == was.starved else ["a loop starves"]
    differences.extend(
        f"{tensor.name} {new.name}" for tensor, new in pairs if live(was, tensor) != live(now, new)
    )
    return differences


def live(run: Liveness, output: Output) -> set[Tag]:
    """Return the tags at which an output is live."""
    if output.port == CONTROL:
        return {tag for (node, tag), live in run.controls.items() if live and node is output.node}
    return {tag for (tensor, tag), live in run.sent.items() if live and tensor == output}


def test_without_deadness_analysis_liveness_changes() -> None:
    graphs = [random_graph(seed, "unstructured").graph for seed in range(10)]
    assert any(liveness_changes(graph, deadness="off")[0] for graph in graphs)


def test_no_cluster_waits_for_itself_without_deadness_analysis() -> None:
    for seed in range(40):
        clustered(random_graph(seed, "wild").graph, deadness="off")  # is verified
