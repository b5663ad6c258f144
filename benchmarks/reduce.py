"""Reduction of planted faults against bisection and linear reduction.

    python -m benchmarks reduce
    python -c 'from benchmarks.reduce import markdown; print(*markdown(), sep="\\n")'

Bisection looks in topological order for the first node whose sources alone still differ, and then
for the last node before which everything can be replaced by recorded values. Linear reduction
tries to remove each node once, the last ones first. All share the test and the recorded values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import process_time
from types import ModuleType
from typing import Any

from benchmarks.measurement import Row
from benchmarks.planted import FAULTS, PlantedFault
from cfgraph.comparison.reduce.pair_oracle import PairOracle
from cfgraph.comparison.reduce.reduce_pair import recorded_values, reduce_pair
from cfgraph.comparison.reduce.removal import StandIns, without_nodes
from cfgraph.comparison.reduce.search import Search
from cfgraph.comparison.reduce.subject import Subject
from cfgraph.ir.library import copy_graph
from cfgraph.ir.traversal import ancestors, topological_order


@dataclass(frozen=True, slots=True)
class Outcome:
    """Nodes of the larger graph that a method ends with, its tests, and processor seconds."""

    nodes: int
    tests: int
    seconds: float


Method = Callable[[Subject, PairOracle, Any], Search]


def delta_debugging(subject: Subject, oracle: PairOracle, delta: Any) -> Search:
    """Reduce as the command does."""
    return reduce_pair(subject, oracle, delta)


def bisection(subject: Subject, oracle: PairOracle, delta: Any) -> Search:
    """Bisect the end of the graph, then its start."""
    values = recorded_values(oracle, delta, subject.graphs[0])
    search = Search(oracle, subject)
    _bisect(search, lambda names, size: _sources_of(search.best, names[size - 1]))
    stand_ins = StandIns(values)
    _bisect(search, lambda names, size: _without(search.best, set(names[:-size]), stand_ins))
    return search


def _bisect(search: Search, candidate: Callable[[list[str], int], Subject | None]) -> None:
    """Find the smallest size for which a candidate differs, as if larger ones did, too."""
    names = [node.name for node in topological_order(search.best.graphs[0]).nodes]
    low, high = 0, len(names)
    while high - low > 1:
        middle = (low + high) // 2
        found = search.try_each("bisection", [(0, candidate(names, middle))])
        low, high = (low, middle) if found is not None else (middle, high)


def _sources_of(subject: Subject, name: str) -> Subject | None:
    def edit(graph: Any) -> Any:
        if name not in graph.nodes:
            return None
        return copy_graph(graph, ancestors(graph, [graph.nodes[name]]))

    return subject.edited(edit)


def _without(subject: Subject, names: set[str], stand_ins: StandIns) -> Subject | None:
    return subject.edited(lambda graph: without_nodes(graph, names, stand_ins))


def linear_reduction(subject: Subject, oracle: PairOracle, delta: Any) -> Search:
    """Try to remove each node, the last ones first."""
    stand_ins = StandIns(recorded_values(oracle, delta, subject.graphs[0]))
    search = Search(oracle, subject)
    for node in reversed(topological_order(subject.graphs[0]).nodes):
        search.try_each("linear", [(0, _without(search.best, {node.name}, stand_ins))])
    return search


METHODS: dict[str, Method] = {
    "reduce": delta_debugging,
    "bisection": bisection,
    "linear": linear_reduction,
}


def outcome(fault: PlantedFault, method: Method) -> Outcome:
    """Compare the graphs of a fault, and reduce them."""
    start = process_time()
    subject = Subject(fault.graphs())
    oracle, delta = PairOracle.compare(subject, fault.options())
    search = method(subject, oracle, delta)
    nodes = max(len(graph) for graph in search.best.graphs)
    return Outcome(nodes, search.tests, process_time() - start)


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """Nodes and tests for each fault; the peer is the better baseline."""
    for fault in FAULTS[2:4] if tiny else FAULTS:
        found = {name: outcome(fault, method) for name, method in METHODS.items()}
        for unit in ("nodes", "tests"):
            ours, *others = (getattr(item, unit) for item in found.values())
            label = f"{fault.name}: bisection {others[0]}, linear {others[1]}"
            yield Row(label, ours, unit, min(others))


def markdown() -> Iterator[str]:
    """Yield the lines of the table of docs/reduce.md."""
    yield "| fault | nodes before | nodes, tests | bisection | linear |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for fault in FAULTS:
        found = [outcome(fault, method) for method in METHODS.values()]
        cells = (f"{item.nodes}, {item.tests}" for item in found)
        yield f"| {fault.name} | {len(fault.graphs()[0])} | {' | '.join(cells)} |"
