"""Optimization changes neither values nor liveness of random graphs."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.analysis.deadness.deadness import Deadness, deadness
from cfgraph.analysis.loops.frames import frames
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import copy_graph
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import ancestors, downstream
from cfgraph.ops.opdef.op import back_edge_of, role_of
from tests.analysis.random_graphs import RECIPES, RandomGraph, random_graph
from tests.sampled import in_sweep


def is_racy(node: Node, liveness: Deadness) -> bool:
    """True for a Merge that may have two live inputs, so that its value depends on the schedule."""
    if role_of(node) is not Role.MERGE or back_edge_of(node) is not None:
        return False
    pairs = combinations(dict.fromkeys(node.inputs), 2)
    return any(liveness.can_both_live(a, b) for a, b in pairs)


def comparable(before: Graph, after: Graph) -> list[str]:
    """Names of tensors outside of loops that both graphs have and whose values are defined."""
    liveness = deadness(before)
    undefined = downstream(node for node in before if is_racy(node, liveness))
    found, remaining = frames(before), frames(after)
    return [
        node.name
        for node in before
        if node.name in after
        and node not in undefined
        and node.output_count
        and found.of_outputs[node] is found.root
        and remaining.of_outputs[after[node.name]] is remaining.root
    ]


def values(graph: Graph, fetches: list[str], feeds: dict[str, Any]) -> list[bytes | None]:
    """The content of tensors, None for a dead one."""
    session = cfgraph.Session(graph, engine="tokens")
    found = session.run(fetches, feeds, allow_dead=True, max_iterations=50)
    return [None if value is None else np.asarray(value).tobytes() for value in found]


def check(made: RandomGraph, **options: Any) -> Counter[str]:
    """Compare all tensors that remain, on random feeds; counts rewrites and dead tensors."""
    after = copy_graph(made.graph)
    counts = Counter[str](cfgraph.optimize(after, **options).rules)
    names, draw = comparable(made.graph, after), random.Random(made.seed)
    for _ in range(3):
        feeds = made.feeds(draw)
        try:
            expected = values(made.graph, names, feeds)
        except cfgraph.CfgraphError:
            continue  # the loop starves, or does not end
        actual = values(after, names, feeds)
        different = [name for name, a, b in zip(names, expected, actual, strict=True) if a != b]
        assert not different, made.seed
        counts["dead"] += expected.count(None)
        counts["live"] += len(expected) - expected.count(None)
    return counts


@pytest.mark.parametrize("kind", RECIPES)
def test_a_random_graph_has_the_same_values_and_dead_tensors(kind: str) -> None:
    counts = sum((check(random_graph(seed, kind)) for seed in range(3)), Counter[str]())
    assert counts["live"]
    assert counts["cse"] + counts["arithmetic"]


def random_products(seed: int) -> tuple[Graph, list[str]]:
    """Products of matrices in conditionals with constant predicates, of which some are fetched."""
    draw, b = random.Random(seed), cfgraph.Builder()
    tensors = [b.placeholder(name, "float32", [2, 2]) for name in ("x", "w")]
    for _ in range(draw.randrange(4, 12)):
        first, second = draw.choices(tensors, k=2)
        if draw.random() < 0.5:
            tensors.append(draw.choice([b.MatMul, b.AddV2])(first, second))
            continue
        decides = b.const(draw.random() < 0.5)
        sides = [b.Switch(item, decides)[port] for port, item in enumerate((first, second))]
        sides = [b.MatMul(side, side) if draw.random() < 0.3 else side for side in sides]
        tensors.append(b.Merge(draw.sample(sides, 2))[0])
    fetches = draw.sample(tensors[2:], draw.randrange(1, 4))
    return b.graph, [tensor.output.node.name for tensor in fetches]


def needed_products(graph: Graph, fetch: str) -> set[str]:
    """The names of the products that a run computes for a fetch."""
    liveness = deadness(graph)
    return {
        node.name
        for node in ancestors(graph, [graph[fetch]])
        if node.op == "MatMul" and not liveness.never_live(node.output())
    }


def test_each_fetch_needs_the_products_that_it_needed() -> None:
    counts, feeds = Counter[str](), {"x": np.eye(2) * 2, "w": np.ones((2, 2))}
    for seed in range(100):
        before, fetches = random_products(seed)
        after = copy_graph(before)
        cfgraph.optimize(after, fetches=fetches, feeds=feeds, only=["prune", "branches"])
        for fetch in fetches:
            assert needed_products(after, fetch) == needed_products(before, fetch), seed
        assert values(after, fetches, feeds) == values(before, fetches, feeds), seed
        counts.update(node.op for node in after)
        counts["guards"] += sum(len(node.controls) for node in after if node.op == "Identity")
    assert counts["guards"]
    assert counts["Identity"] + counts["Merge"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", in_sweep(range(20, 60)))
def test_many_random_graphs_have_the_same_values_and_dead_tensors(seed: int) -> None:
    counts = sum((check(random_graph(seed, kind)) for kind in RECIPES), Counter[str]())
    assert counts["live"]
    assert counts["dead"]


@pytest.mark.slow
@pytest.mark.parametrize("rule", in_sweep(["fold", "arithmetic", "branches", "cse", "licm"]))
def test_each_rule_alone_changes_no_random_graph(rule: str) -> None:
    graphs = (random_graph(seed, kind) for kind in RECIPES for seed in range(10, 16))
    assert sum((check(made, only=[rule]) for made in graphs), Counter[str]())[rule]
