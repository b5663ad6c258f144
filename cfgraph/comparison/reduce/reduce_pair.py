"""Reduction of two graphs whose runs differ: the smallest pair that differs.

Regions that contain the first wrong node are tried first, the smallest ones before others. A
region is cut out with the recorded values of what enters it. In a loop it runs outside of the
loop, as one iteration of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.frames import frames
from cfgraph.comparison.diff import diff
from cfgraph.comparison.differences import RunDiff
from cfgraph.comparison.reduce.loop_operators import (
    BranchOperator,
    IterationOperator,
    LoopOperator,
    LoopVariableOperator,
)
from cfgraph.comparison.reduce.node_operators import (
    BypassOperator,
    NodeOperator,
    OutputOperator,
    SourceOperator,
)
from cfgraph.comparison.reduce.pair_oracle import PairOracle, differs
from cfgraph.comparison.reduce.recording import record
from cfgraph.comparison.reduce.removal import StandIns, is_loop_merge, without_nodes
from cfgraph.comparison.reduce.search import Operator, ReductionStep, Search
from cfgraph.comparison.reduce.subject import Subject
from cfgraph.comparison.reduce.value_operators import LAST_OPERATORS, FunctionOperator
from cfgraph.comparison.sample_point import sample_point
from cfgraph.errors import CfgraphError, UsageError
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.traversal import sends_by_recv
from cfgraph.limits import check_deadline

_RADII: Final = (0, 1, 2, 3, 4, 6, 8, 12)
_MAX_CHANGED: Final = 8


def reduce_pair(
    subject: Subject,
    oracle: PairOracle,
    delta: RunDiff,
    on_success: Callable[[Subject, ReductionStep], None] = lambda subject, step: None,
) -> Search:
    """Return the completed search for the smallest pair of graphs whose runs differ.

    `oracle` and `delta` are those of `PairOracle.compare`. Raises UsageError if the runs agree.
    """
    if not differs(delta):
        message = "the runs of the two graphs agree: there is nothing to reduce"
        raise UsageError(message, hint="feed inputs for which they differ, or compare more --cases")
    lowered = _lowered(subject, oracle)
    if lowered is not None:
        subject, oracle, delta = lowered
    search = Search(oracle, subject, on_success)
    values = recorded_values(oracle, delta, subject.graphs[0])
    search.try_each("region", regions(subject, delta.first.node if delta.first else None, values))
    search.run(pair_operators(values))
    return search


def _lowered(subject: Subject, oracle: PairOracle) -> tuple[Subject, PairOracle, RunDiff] | None:
    """Return the pair without function calls, None if it has none or does not differ then."""
    new = subject.lowered()
    if new is None:
        return None
    try:
        options = replace(oracle.options_for(new.graphs[0]), locate=True)
        new_oracle, delta = PairOracle.compare(new, options)
    except CfgraphError:
        check_deadline()
        return None
    return (new, new_oracle, delta) if differs(delta) else None


def recorded_values(oracle: PairOracle, delta: RunDiff, graph: Graph) -> dict[str, object]:
    """Return the values of the first graph, in the iteration of the first wrong node.

    Limits the iterations of the test to about as many.
    """
    options = oracle.options_for(graph)
    targets = list(options.targets)
    nodes = [graph.tensor(name).node for name in delta.fetches]
    nodes += [graph[name.removeprefix("^")] for name in targets]
    point = sample_point(graph, nodes, options.setting, options.seed)
    path = delta.first.frame if delta.first is not None else "/"
    recorder = record(point, delta.fetches, targets, path)
    oracle.limit_iterations(recorder.iterations)
    return recorder.values


def pair_operators(values: dict[str, object]) -> Sequence[Operator]:
    """Return the operators on pairs, the coarse ones first."""
    stand_ins = StandIns(values)
    return (
        OutputOperator(),
        FunctionOperator(),
        LoopOperator(stand_ins),
        SourceOperator(stand_ins),
        BranchOperator(values),
        NodeOperator(stand_ins),
        IterationOperator(stand_ins),
        LoopVariableOperator(stand_ins),
        BypassOperator(),
        *LAST_OPERATORS,
    )


def regions(
    subject: Subject, wrong: str | None, values: Mapping[str, Any]
) -> Iterator[tuple[int, Subject | None]]:
    """Yield candidates: surroundings of the first wrong node, then of the nodes that differ."""
    number = 0
    for seeds, forward in _seeds(subject, wrong):
        previous: set[str] = set()
        for radius in _RADII:
            names = _grown(subject, seeds, radius, forward)
            if names == previous:
                break
            previous = names
            yield number, _RegionCut(subject, names, seeds, values).cut_out()
            number += 1


def _seeds(subject: Subject, wrong: str | None) -> Iterator[tuple[list[str], bool]]:
    if wrong is not None:
        yield [wrong], False
    nodes = diff(*subject.graphs, ignore=["notes", "order", "devices"]).nodes
    changed = [item.before.name for item in nodes.changed]
    changed += [node.name for node in (*nodes.added, *nodes.removed)]
    if 0 < len(changed) <= _MAX_CHANGED:
        yield changed, False
        yield changed, True


def _grown(subject: Subject, seeds: Collection[str], radius: int, forward: bool) -> set[str]:
    """Return the names of nodes within a number of edges from the seeds, in either graph."""
    names = set(seeds)
    for _ in range(radius):
        new: set[str] = set()
        for graph in subject.graphs:
            sends = sends_by_recv(list(graph)) if names else {}
            for name in names & graph.nodes.keys():
                node = graph.nodes[name]
                new.update(item.name for item in _sources(node, sends))
                if forward:
                    new.update(use.node.name for use in node.uses)
                    new.update(recv.name for recv, send in sends.items() if send is node)
        names |= new
    return names


def _sources(node: Node, sends: Mapping[Node, Node]) -> list[Node]:
    sources = node.predecessors
    return [*sources, sends[node]] if node in sends else sources


class _RegionCut:
    """A set of nodes of both graphs, with what they need and has no value."""

    def __init__(
        self, subject: Subject, names: set[str], seeds: Collection[str], values: Mapping[str, Any]
    ) -> None:
        self.subject = subject
        self.names = set(names)
        self.seeds = seeds
        self.stand_ins = StandIns(values)

    def cut_out(self) -> Subject | None:
        """Return the subject of the region alone, None if it cannot be cut out."""
        for graph in self.subject.graphs:
            self._add_sources(graph)

        def edit(graph: Graph) -> Graph | None:
            opened = self._opened(graph)
            if any(
                is_loop_merge(node) and frames(graph).of[node] in opened
                for node in graph
                if node.name in self.names
            ):
                return None
            removed = [node.name for node in graph if node.name not in self.names]
            return without_nodes(graph, removed, self.stand_ins, {item.path for item in opened})

        return self.subject.edited(edit)

    def _opened(self, graph: Graph) -> set[Frame]:
        """Return the loops that contain a seed."""
        known, opened = frames(graph), set[Frame]()
        for name in self.seeds:
            node = graph.nodes.get(name)
            if node is not None:
                opened.update(known.of_outputs[node].loops)
        return opened

    def _add_sources(self, graph: Graph) -> None:
        """Add the nodes whose values are not known, and what they need."""
        opened = self._opened(graph)
        known = frames(graph)
        # what starts an iteration is always a recorded value
        starts = {
            node.name
            for node in graph
            if is_loop_merge(node) and known.of[node] in opened and node.name not in self.seeds
        }
        self.names -= starts
        queue = [graph.nodes[name] for name in self.names if name in graph.nodes]
        while queue:
            for item in queue.pop().inputs:
                name = item.node.name
                if name in self.names or name in starts:
                    continue
                if self.stand_ins.content(item, _no_shape) is None:
                    self.names.add(name)
                    queue.append(item.node)


def _no_shape(tensor: object) -> Any:
    """Stand-ins of regions have values."""
    raise AssertionError(tensor)
