"""Merging in a dependency graph that stays acyclic, against a search for paths."""

from __future__ import annotations

import random

import pytest

import cfgraph
from cfgraph.analysis.loops import cycle_graph
from cfgraph.analysis.loops.cycle_graph import CycleGraph, OrderLabels
from cfgraph.analysis.loops.frames import frames


def random_graph(rng: random.Random, size: int) -> cfgraph.Graph:
    graph = cfgraph.Graph()
    nodes = [graph.add("NoOp")]
    for _ in range(size):
        wide = rng.random() < 0.05
        count = rng.randrange(1, len(nodes) + 1 if wide else min(3, len(nodes)) + 1)
        nodes.append(graph.add("NoOp", controls=rng.sample(nodes, count)))
    return graph


def has_indirect_path(dependencies: CycleGraph, a: int, b: int) -> bool:
    todo = [v for v in dependencies.successors[a] if v != b]
    seen = set(todo)
    for vertex in todo:
        if b in dependencies.successors[vertex]:
            return True
        new = {*dependencies.successors[vertex]} - seen
        seen |= new
        todo += new
    return False


@pytest.mark.parametrize("moves", [0, 1, 16])
@pytest.mark.parametrize("seed", range(5))
def test_merges_stay_acyclic_and_sorted(
    seed: int, moves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # with few moves per vertex, later merges move one side
    monkeypatch.setattr(cycle_graph, "_MOVES_PER_VERTEX", moves)
    rng = random.Random(seed)
    dependencies = CycleGraph(frames(random_graph(rng, 150)))
    rank, merged = dependencies.rank, 0
    for _ in range(300):
        vertices = [v for v, nodes in enumerate(dependencies.nodes) if nodes]
        a, b = rng.sample(vertices, 2)
        early, late = sorted((a, b), key=rank.__getitem__)
        closes = has_indirect_path(dependencies, early, late)
        assert (dependencies.merge(a, b) is None) is closes
        merged += not closes
        for vertex, successors in enumerate(dependencies.successors):
            assert all(rank[vertex] < rank[successor] for successor in successors)
    assert merged > 20


def test_labels_grow_in_the_order_of_the_list() -> None:
    rng = random.Random(1)
    order = list(range(200))
    labels = OrderLabels(order)
    relabeled = 0
    for step in range(5_000):
        # halving the gap before one vertex leaves no room after 32 moves
        anchor = 7 if step % 2 else rng.choice(order)
        moving = rng.sample([v for v in order if v != anchor], rng.randrange(1, 4))
        order = [v for v in order if v not in moving]
        at = order.index(anchor)
        if step % 3:
            order[at:at] = moving
            relabeled += len(labels.move_before(anchor, moving)) - len(moving)
        else:
            order[at + 1 : at + 1] = moving
            relabeled += len(labels.move_after(anchor, moving)) - len(moving)
        assert order == sorted(order, key=labels.labels.__getitem__)
    assert 0 < relabeled < 5 * 5_000
