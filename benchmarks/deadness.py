"""The share of equal liveness that each analysis of deadness finds, and its time per node.

What is equal is seen in all runs of random graphs, and in some runs of those with loops. `inputs`
clusters no node whose inputs may differ; `exact` is the analysis.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import ModuleType

from benchmarks.measurement import Row, single_time
from cfgraph.analysis.deadness.deadness import Deadness, deadness
from cfgraph.ir.dtypes import DType, bool_, float32
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ops.opdef.op import role_of
from tests.analysis.deadness_oracle import ObservedLiveness, seen_in_runs, seen_in_tables
from tests.analysis.random_graphs import RECIPES, WITHOUT_LOOPS, Recipe, random_graph

GRAPHS = 100
TINY = 1
RUNS = 32
WORK = 48
LONG = Recipe(0, 8, weights={"operate": 4, "hang": 1, "derive": 1, "conditional": 2})


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """The share of equal edges and outputs that are found, by kind of graph; the time of a node."""
    count = TINY if tiny else GRAPHS
    for kind in RECIPES:
        yield from _shares(kind, _few(kind, count))
    for kind in ("structured", "unstructured", "loops"):
        graphs = [random_graph(seed, kind).graph for seed in range(count)]
        yield _time(f"{len(graphs)} {kind} graphs", graphs)
    yield _time("one of many conditionals", [_long(10 if tiny else 3000)])
    half = TINY if tiny else 500
    yield _time(f"{half} conditionals in a row and {half} in each other", [_conditionals(half)])


def _few(kind: str, count: int) -> list[ObservedLiveness]:
    """The counts of some graphs of a kind."""
    graphs = [random_graph(seed, kind).graph for seed in range(count)]
    if kind in WITHOUT_LOOPS:
        return [seen_in_tables(graph) for graph in graphs]
    return [seen_in_runs(graph, RUNS) for graph in graphs]


def _time(work: str, graphs: Iterable[Graph]) -> Row:
    seconds, nodes = 0.0, 0
    for graph in graphs:
        seconds += single_time(lambda graph=graph: deadness(graph))  # type: ignore[misc]
        nodes += len(graph)
    return Row(f"deadness of {work}, {nodes:,} nodes", seconds * 1e6 / nodes, "µs a node")


def _long(steps: int) -> Graph:
    return random_graph(0, replace(LONG, steps=steps)).graph


def _conditionals(half: int) -> Graph:
    """Conditionals in a row, then as many nested ones."""
    graph = Graph()
    x = _placeholder(graph, float32)
    for _ in range(half):
        branches = _branches(graph, x)
        x = graph.add("Merge", *(_work(graph, side) for side in branches)).output()
    others: list[Output] = []
    for _ in range(half):
        other, x = _branches(graph, x)
        others.append(other)
        x = _work(graph, x)
    for other in reversed(others):
        x = graph.add("Merge", _work(graph, other), x).output()
    return graph


def _placeholder(graph: Graph, dtype: DType) -> Output:
    return graph.add("Placeholder", dtype=dtype).output()


def _branches(graph: Graph, x: Output) -> tuple[Output, Output]:
    split = graph.add("Switch", x, _placeholder(graph, bool_))
    return split.output(0), split.output(1)


def _work(graph: Graph, x: Output) -> Output:
    """The nodes of a branch, one behind the other."""
    for _ in range(WORK):
        x = graph.add("Neg", x).output()
    return x


def _shares(kind: str, all_seen: list[ObservedLiveness]) -> Iterator[Row]:
    edges, pairs = [0, 0, 0], [0, 0]
    for seen in all_seen:
        exact = deadness(seen.graph)
        for live in seen.by_frame.values():
            _count_edges(live, exact, edges)
            _count_pairs(live, exact, pairs)
    for name, found in zip(("inputs", "exact"), edges[1:], strict=True):
        yield Row(f"{kind}: {edges[0]:,} equal edges by {name}", 100 * found / edges[0], "%")
    yield Row(f"{kind}: {pairs[0]:,} equal pairs", 100 * pairs[1] / pairs[0], "%")


def _count_edges(live: Mapping[Node | Output, int], exact: Deadness, counts: list[int]) -> None:
    """All edges of equal ends into ordinary nodes, and how many each mode finds."""
    for place, cases in live.items():
        if isinstance(place, Output) or role_of(place):
            continue
        for item in place.inputs:
            if live.get(item) == cases:
                counts[0] += 1
                counts[1] += not exact.has_mismatched_inputs(place)
                counts[2] += exact.equal(item, place)


def _count_pairs(live: Mapping[Node | Output, int], exact: Deadness, counts: list[int]) -> None:
    """All pairs of equal outputs of a frame, and how many the analysis finds."""
    classes: dict[int, list[Output]] = {}
    for place, cases in live.items():
        if isinstance(place, Output):
            classes.setdefault(cases, []).append(place)
    for members in classes.values():
        counts[0] += _pairs(len(members))
        counts[1] += sum(_pairs(size) for size in _sizes(members, exact))


def _pairs(size: int) -> int:
    return size * (size - 1) // 2


def _sizes(members: list[Output], exact: Deadness) -> list[int]:
    """The number found equal, per class."""
    firsts: list[Output] = []
    sizes: list[int] = []
    for one in members:
        place = next((place for place, first in enumerate(firsts) if exact.equal(first, one)), None)
        if place is None:
            firsts.append(one)
            sizes.append(1)
        else:
            sizes[place] += 1
    return sizes
