"""The deadness analysis against observed liveness of random graphs.

Sound: sources that it reports as equal, implied, or exclusive are so in every run. Exact within an
iteration: it reports all of them. Runs in which a loop starves do not count, as the analysis
assumes.
"""

from __future__ import annotations

from itertools import combinations

import pytest

from cfgraph.analysis.deadness.deadness import Deadness, TokenSource, deadness
from cfgraph.ir.graph import Graph
from tests.analysis.assignments import Tables
from tests.analysis.deadness_oracle import (
    as_output,
    faults,
    seen_in_runs,
    seen_in_tables,
    token_sources,
)
from tests.analysis.random_graphs import RECIPES, WITHOUT_LOOPS, random_graph
from tests.sampled import half

WITH_LOOPS = tuple(kind for kind in RECIPES if kind not in WITHOUT_LOOPS)


def _graph(kind: str, seed: int) -> Graph:
    return random_graph(seed, kind).graph


@pytest.mark.parametrize("kind", WITHOUT_LOOPS)
@pytest.mark.parametrize("seeds", half(range(76)))
def test_within_an_iteration_what_is_said_is_what_happens(seeds: range, kind: str) -> None:
    for seed in seeds[::7] if kind == "wide" else seeds:
        assert not faults(seen_in_tables(_graph(kind, seed))), seed


@pytest.mark.parametrize("kind", WITH_LOOPS)
@pytest.mark.parametrize("seeds", half(range(20)))
def test_in_loops_what_is_said_happens(seeds: range, kind: str) -> None:
    for seed in seeds:
        assert not faults(seen_in_runs(_graph(kind, seed), runs=12, seed=seed)), seed


@pytest.mark.slow
@pytest.mark.parametrize("kind", WITHOUT_LOOPS)
def test_in_many_graphs_what_is_said_is_what_happens(kind: str) -> None:
    for seed in range(1000, 1200 if kind == "wide" else 4000):
        assert not faults(seen_in_tables(_graph(kind, seed))), seed


@pytest.mark.slow
@pytest.mark.parametrize("kind", WITH_LOOPS)
def test_in_many_loops_what_is_said_happens(kind: str) -> None:
    for seed in range(1000, 1800):
        assert not faults(seen_in_runs(_graph(kind, seed), runs=24, seed=seed)), seed


@pytest.mark.parametrize("kind", WITHOUT_LOOPS)
@pytest.mark.parametrize("seeds", half(range(16)))
def test_a_witness_is_a_run_of_that_kind(seeds: range, kind: str) -> None:
    found = 0
    for seed in seeds[::5] if kind == "wide" else seeds:
        graph = _graph(kind, seed)
        analysis, tables = deadness(graph), Tables(graph)
        shown = list(token_sources(graph))[:: 11 if kind == "wide" else 5]
        for one, other in combinations(shown, 2):
            witness = analysis.witness(one, dead=[other])
            apart = tables.of[as_output(one)] & ~tables.of[as_output(other)]
            assert bool(apart) == (witness is not None)
            if witness is not None:
                found += 1
                assert all(apart >> bit & 1 for bit in _agreeing(tables, witness))
    assert found


def _agreeing(tables: Tables, witness: dict[str, object]) -> list[int]:
    """The assignments that agree with a witness, at least one."""
    bits = [
        bit
        for bit, case in enumerate(tables.cases)
        if all(
            value == witness[item.node.name]
            for item, value in case.items()
            if item.node.name in witness
        )
    ]
    assert bits
    return bits


@pytest.mark.parametrize("kind", ["unstructured", "wild"])
@pytest.mark.parametrize("question", ["equal", "implies", "can_both_live", "never_live"])
def test_a_wrong_answer_would_be_found(kind: str, question: str) -> None:
    wrong = 0
    for seed in range(5):
        graph = _graph(kind, seed)
        seen = seen_in_tables(graph) if kind in WITHOUT_LOOPS else seen_in_runs(graph, 8)
        answer = question != "can_both_live"
        wrong += bool(faults(seen, _lying(graph, question, answer)))
    assert wrong


def _lying(graph: Graph, question: str, answer: bool) -> Deadness:
    """A stub analysis with one answer to all queries of a kind."""
    analysis = deadness(graph)

    def lie(*requested: TokenSource) -> bool:
        return answer

    setattr(analysis, question, lie)
    return analysis


@pytest.mark.parametrize("kind", WITHOUT_LOOPS)
def test_within_an_iteration_the_order_of_nodes_does_not_count(kind: str) -> None:
    for seed in range(6):
        graph = _graph(kind, seed)
        assert _classes(graph) == _classes(_backwards(graph))


@pytest.mark.parametrize("kind", WITH_LOOPS)
def test_in_loops_written_backwards_what_is_said_happens(kind: str) -> None:
    for seed in range(100, 110):
        graph = _backwards(_graph(kind, seed))
        assert not faults(seen_in_runs(graph, runs=8, seed=seed)), seed


def _backwards(graph: Graph) -> Graph:
    """The same nodes in reverse."""
    reverse = Graph()
    reverse.load(
        (
            node.name,
            node.op,
            [
                *(item.name for item in node.inputs),
                *(f"^{control.name}" for control in node.controls),
            ],
            "",
            node.attrs,
            None,
        )
        for node in reversed(list(graph))
    )
    return reverse


def _classes(graph: Graph) -> set[frozenset[str]]:
    """The names of outputs, grouped by equality."""
    analysis = deadness(graph)
    classes: dict[object, list[str]] = {}
    for place in token_sources(graph):
        key = analysis.frames.of_outputs[as_output(place).node].path, analysis.predicate(place)
        classes.setdefault(key, []).append(as_output(place).name)
    merged: list[list[str]] = []
    for names in classes.values():
        here = _place(graph, names[0])
        for other in merged:
            if analysis.equal(here, _place(graph, other[0])):
                other.extend(names)
                break
        else:
            merged.append(names)
    return {frozenset(names) for names in merged}


def _place(graph: Graph, name: str) -> TokenSource:
    node, port = name.rsplit(":", 1)
    return graph[node] if port == "-1" else graph[node].output(int(port))
