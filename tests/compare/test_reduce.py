"""Planted miscompilations end with at most ten nodes that still differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cfgraph
from benchmarks.planted import FAULTS, PlantedFault
from cfgraph.analysis.verify.verify import verify
from cfgraph.comparison.equivalence import compare_runs
from cfgraph.comparison.reduce.node_operators import OutputOperator
from cfgraph.comparison.reduce.pair_oracle import PairOracle
from cfgraph.comparison.reduce.reduce_graph import graph_operators, reduce_graph
from cfgraph.comparison.reduce.reduce_pair import reduce_pair
from cfgraph.comparison.reduce.removal import StandIns, without_nodes
from cfgraph.comparison.reduce.search import Search
from cfgraph.comparison.reduce.subject import Subject
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph

MAX_NODES = 10
QUICK = ("wrong op in a gradient", "swapped Switch outputs", "dropped control edge")


def errors(graph: Graph) -> set[str]:
    return {finding.code for finding in verify(graph) if finding.level == "error"}


def _param(fault: PlantedFault) -> Any:
    marks = [] if fault.name in QUICK else [pytest.mark.slow]
    return pytest.param(fault, id=fault.name, marks=marks)


@pytest.mark.parametrize("fault", [_param(fault) for fault in FAULTS])
def test_a_planted_fault_ends_in_few_nodes(fault: PlantedFault) -> None:
    subject = Subject(fault.graphs())
    before = [set(graph.nodes) for graph in subject.graphs]
    oracle, delta = PairOracle.compare(subject, fault.options())
    best = reduce_pair(subject, oracle, delta).best.graphs
    assert max(len(graph) for graph in best) <= MAX_NODES
    assert not errors(best[0])
    assert errors(best[1]) <= errors(subject.graphs[1])
    assert compare_runs(best[0], best[1], oracle.options_for(best[0]))
    assert [set(graph.nodes) for graph in subject.graphs] == before


def test_there_are_at_least_twenty_faults() -> None:
    assert len({fault.name for fault in FAULTS}) >= 20


class HasNodes:
    """A test for nodes of these names."""

    def __init__(self, *names: str, width: int = 1) -> None:
        self.names = set(names)
        self.width = width
        self.tested: list[Subject] = []

    def first_interesting(self, candidates: Any) -> int | None:
        self.tested += candidates
        found = (
            n for n, item in enumerate(candidates) if self.names <= item.graphs[0].nodes.keys()
        )
        return next(found, None)


def test_every_candidate_is_valid(fixtures: Path) -> None:
    oracle = HasNodes("while/while/Less", "while/Identity")
    graph = cfgraph.load(fixtures / "graphs" / "nested.pb")
    search = reduce_graph(Subject((graph,)), oracle)
    assert oracle.names <= search.best.graphs[0].nodes.keys()
    assert len(search.best.graphs[0]) <= len(oracle.names) + 1
    assert not any(errors(item.graphs[0]) for item in oracle.tested)
    assert len(oracle.tested) == search.tests


@pytest.mark.parametrize("width", [1, 2])
def test_a_candidate_after_a_success_can_be_tested_again(width: int, fixtures: Path) -> None:
    subject = Subject((cfgraph.load(fixtures / "graphs" / "nested.pb"),))
    search = Search(HasNodes(width=width), subject)
    outputs = OutputOperator()
    first = outputs.candidate(subject, outputs.items(subject)[:1])
    assert first is not None
    second = outputs.candidate(first, outputs.items(first)[:1])
    assert search.try_each("first", [(1, first), (2, second)]) == 1
    assert search.try_each("second", [(3, second)]) == 3


def test_functions_that_are_not_called_are_removed(fixtures: Path) -> None:
    graph = cfgraph.load(fixtures / "graphs" / "cond_functional.pb")
    search = reduce_graph(Subject((graph,)), HasNodes("Less"))
    assert search.best.graphs[0].nodes.keys() == {"Less"}
    assert not search.best.graphs[0].functions
    assert len(graph.functions) == 2


def test_a_removed_node_of_a_loop_leaves_a_constant_of_its_frame(fixtures: Path) -> None:
    graph = cfgraph.load(fixtures / "graphs" / "counter.pb")
    left = without_nodes(graph, ["while/add"], StandIns({"while/add:0": 7}))
    assert left is not None
    assert left["while/add"].controls == (left["while/Identity"],)
    assert not errors(left)
    assert cfgraph.Session(left).run(["count:0"], {"n:0": 5}) == [7]
    assert without_nodes(graph, ["while/NextIteration"], StandIns({})) is None


def test_operators_leave_the_subject_unchanged(fixtures: Path) -> None:
    graph = cfgraph.load(fixtures / "graphs" / "lstm.pb")
    before = cfgraph.dumps(copy_graph(graph))
    subject = Subject((graph,))
    for operator in graph_operators({}):
        items = operator.items(subject)
        operator.candidate(subject, items[: len(items) // 2])
    assert cfgraph.dumps(graph) == before
