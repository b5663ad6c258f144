"""The critical cycle of small loops."""

from __future__ import annotations

from itertools import chain, permutations
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.analysis.loops.critical_cycle import (
    CriticalCycle,
    _maximum_mean_cycle,
    _mean_weight,
    critical_cycle,
)
from cfgraph.analysis.loops.frames import frames
from cfgraph.build.builder import Builder
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph, Node


def lowered(b: Builder) -> Graph:
    cfgraph.lower(b.graph)
    return b.graph


def cost(node: Node) -> float:
    """Costs: only arithmetic takes time, a product longer than a sum."""
    return {"Mul": 10.0, "AddV2": 1.0, "Exp": 3.0}.get(node.op, 0.0)


def cycle_of(b: Builder) -> CriticalCycle:
    return critical_cycle(lowered(b), next(iter(paths(b))), cost)


def paths(b: Builder) -> list[str]:
    return [frame.path for frame in frames(b.graph).all[1:]]


def test_a_cycle_over_two_variables_counts_for_two_iterations() -> None:
    b = Builder()
    x = b.placeholder("x", "float32", [])

    def body(i: Any, x: Any, y: Any) -> Any:
        return i + 1, y * y, b.Exp(x)  # 10 from y to x, 3 from x to y: 13 in two iterations

    b.while_loop(lambda i, *_: i < 9, body, (0, x, x))
    cycle = cycle_of(b)
    assert cycle.rounds == 2
    assert cycle.per_iteration == pytest.approx(6.5)
    assert {item.op for item in cycle.chain if isinstance(item, Node)} >= {"Mul", "Exp"}
    assert cycle.work == pytest.approx(14)


def test_what_feeds_no_later_iteration_is_not_on_the_cycle() -> None:
    b = Builder()
    x = b.placeholder("x", "float32", [])

    def body(i: Any, total: Any) -> Any:
        return i + 1, total + b.Exp(x) * x

    b.while_loop(lambda i, _: i < 9, body, (0, x))
    cycle = cycle_of(b)
    assert cycle.per_iteration == pytest.approx(1)
    assert cycle.share == pytest.approx(1 / 15)


def test_an_inner_loop_on_the_cycle_is_one_item() -> None:
    b = Builder()
    x = b.placeholder("x", "float32", [])

    def body(i: Any, x: Any) -> Any:
        return i + 1, b.while_loop(lambda j, _: j < 2, lambda j, x: (j + 1, x * x), (0, x))[1]

    b.while_loop(lambda i, _: i < 9, body, (0, x))
    cycle = cycle_of(b)
    assert [type(item).__name__ for item in cycle.chain].count("Region") == 1


@pytest.mark.parametrize("path", ["/", "/nowhere"])
def test_a_frame_that_is_no_loop_is_refused(path: str) -> None:
    b = Builder()
    b.while_loop(lambda i: i < 9, lambda i: i + 1, 0)
    with pytest.raises(UsageError):
        critical_cycle(lowered(b), path, cost)


def test_the_mean_of_the_cycle_is_the_best_of_all_cycles() -> None:
    random = np.random.default_rng(0)
    for size in (1, 2, 3, 4, 5) * 8:
        weights = random.integers(0, 50, (size, size)).astype(float)
        weights[random.random((size, size)) < 0.4] = -np.inf
        np.fill_diagonal(weights, np.maximum(weights.diagonal(), 0))
        table = weights.tolist()
        cycles = chain.from_iterable(permutations(range(size), k + 1) for k in range(size))
        most = max(_mean_weight(cycle, table) for cycle in cycles)
        assert _mean_weight(_maximum_mean_cycle(table), table) == pytest.approx(most)
