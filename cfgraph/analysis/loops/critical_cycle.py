"""Critical cycle of a loop: the dependence cycle that limits the overlap of its iterations.

An iteration passes its loop variables to the next one through NextIteration and Merge. A path from
a Merge to the NextIteration of another variable makes the second variable depend on the first one
of the previous iteration; a cycle of such paths bounds the time per iteration from below by its
work divided by the number of iterations that it spans. The largest such ratio is the maximum cycle
mean over the loop variables (R. M. Karp, "A characterization of the minimum cycle mean in a
digraph", 1978), with the longest paths between them as weights.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np

from cfgraph.analysis.loops.cycle_graph import CycleGraph
from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.frames import valid_frames
from cfgraph.analysis.loops.regions import Region, Regions
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.names import did_you_mean, first_names
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import sends_by_recv
from cfgraph.ops.opdef.op import back_edge_of, role_of

# loop variables times body nodes
_MAX_SIZE: Final = 5_000_000

Item = Node | Region
# the cost of a node in any unit
Cost = Callable[[Node], float]


@dataclass(frozen=True, slots=True)
class CriticalCycle:
    """The critical cycle of a loop.

    `chain` are its nodes, starting from a Merge; an inner loop on it is one `Region`. The cycle
    spans `rounds` iterations and takes `per_iteration` of each, out of the `work` of all nodes. It
    is empty if no iteration waits for the previous one.
    """

    frame: Frame
    chain: tuple[Item, ...]
    rounds: int
    per_iteration: float
    work: float
    parallel: int

    @property
    def share(self) -> float:
        """The fraction of an iteration's work that the next iteration waits for."""
        return self.per_iteration / self.work if self.work else 1.0


@dataclass(frozen=True, slots=True)
class _LongestPaths:
    """Longest chains from one loop variable: the length to each item, and its predecessor."""

    length: Mapping[Item, float]
    before: Mapping[Item, Item]

    def to(self, item: Item) -> list[Item]:
        """The longest chain to an item, in order."""
        chain = [item]
        while chain[-1] in self.before:
            chain.append(self.before[chain[-1]])
        return chain[::-1]


def critical_cycle(graph: Graph, path: str, cost: Cost) -> CriticalCycle:
    """The critical cycle of the loop of a frame path; an inner loop counts once.

    An Enter that waits for an Exit of its loop delays it no further than that Exit.
    A Recv waits for its Send, so the cycle of a partitioned loop crosses devices.

    Raises UsageError for an unknown path, a frame without a back edge, or a loop that is too large.
    """
    links = {recv: [send] for recv, send in sends_by_recv(list(graph)).items()}
    graph_frames = valid_frames(graph)
    frame = _frame_of_path(graph_frames.all, path)
    late = {item.enter for item in CycleGraph(graph_frames).late_enters}
    region = Regions(graph_frames, frame, links, late).root
    pairs = [(m, back) for m in frame.merges if (back := back_edge_of(m)) is not None]
    if not pairs:
        message = f"{frame.path!r} is not a loop: it has no back edge"
        raise UsageError(message)
    if len(pairs) * len(region.order) > _MAX_SIZE:
        message = f"{frame.path!r} is too large: {len(pairs)} variables, {len(frame.nodes)} nodes"
        raise UsageError(message)
    costs = {item: item_cost(item, cost) for item in region.order}
    readers = _readers(region, links, late)
    chains = [_longest_paths(region.order, readers, costs, merge) for merge, _ in pairs]
    weights = [[paths.length.get(back, -inf) for _, back in pairs] for paths in chains]
    cycle = _maximum_mean_cycle(weights)
    steps = list(zip(cycle, [*cycle[1:], *cycle[:1]], strict=True))
    items = [item for source, target in steps for item in chains[source].to(pairs[target][1])]
    total = sum(weights[source][target] for source, target in steps)
    parallel = min((int(enter.attr("parallel_iterations")) for enter in frame.enters), default=1)
    work = sum(costs.values())
    each = total / len(cycle) if cycle else 0.0
    return CriticalCycle(frame, tuple(items), len(cycle), each, work, parallel)


def item_cost(item: Item, cost: Cost) -> float:
    """The cost of a node, or of all nodes of a loop and of the loops in it."""
    if isinstance(item, Node):
        return cost(item)
    nested = [item]
    for region in nested:
        nested += [inner for inner in region.order if isinstance(inner, Region)]
    total: dict[Item, float] = {}
    for region in reversed(nested):
        total[region] = sum(
            cost(inner) if isinstance(inner, Node) else total[inner] for inner in region.order
        )
    return total[item]


# paths of loops that a hint lists
_MAX_PATHS: Final = 8


def _frame_of_path(frames: Sequence[Frame], path: str) -> Frame:
    """The loop of a path or of a unique name, also with the iterations that a run prints."""
    named = [frame for frame in frames[1:] if path in (frame.path, frame.name)]
    named = named or [frame for frame in frames[1:] if frame.has_name(path)]
    if len(named) == 1:
        return named[0]
    paths = [frame.path for frame in frames[1:]]
    if named:
        raise UsageError(
            f"the name {path!r} is ambiguous: {len(named)} loops have it", hint=", ".join(paths)
        )
    hint = did_you_mean(path, paths) or f"loops of the graph: {first_names(paths, _MAX_PATHS)}"
    raise UsageError(f"no loop {path!r} in the graph", hint=hint if paths else None)


def _readers(
    region: Region, links: Mapping[Node, list[Node]], late: Collection[Node]
) -> dict[Item, list[Item]]:
    """The items that wait for each item within an iteration, by edges of any kind."""
    readers: dict[Item, list[Item]] = {item: [] for item in region.order}
    for item in region.order:
        if isinstance(item, Node):
            sources = [x.node for x in item.inputs]
            _add_reader(readers, item, [*sources, *item.controls, *links.get(item, ())])
            continue
        enters = [enter for enter in item.frame.enters if enter not in late]
        _add_reader(readers, item, [x.node for enter in enters for x in enter.inputs])
        reads = (use.node for exit_node in item.frame.exits for use in exit_node.uses)
        readers[item] += [reader for reader in reads if reader in readers]
    return readers


def _add_reader(readers: dict[Item, list[Item]], item: Item, sources: Iterable[Node]) -> None:
    for source in sources:
        if source in readers and role_of(source) is not Role.NEXT_ITERATION:
            readers[source].append(item)


def _longest_paths(
    order: Sequence[Item],
    readers: Mapping[Item, Sequence[Item]],
    costs: Mapping[Item, float],
    start: Node,
) -> _LongestPaths:
    length: dict[Item, float] = {start: costs[start]}
    before: dict[Item, Item] = {}
    for item in order:
        path_length = length.get(item)
        if path_length is None:
            continue
        for reader in readers[item]:
            long = path_length + costs[reader]
            if long > length.get(reader, -inf) and reader is not start:
                length[reader], before[reader] = long, item
    return _LongestPaths(length, before)


def _maximum_mean_cycle(weights: Sequence[Sequence[float]]) -> list[int]:
    """The cycle with the largest mean weight, by Karp's algorithm, or [] if there is none."""
    table, count = np.array(weights), len(weights)
    best, came = np.zeros((count + 1, count)), np.zeros((count, count), int)
    for step in range(count):
        total = best[step][:, None] + table
        came[step] = total.argmax(0)
        best[step + 1] = total.max(0)
    if np.all(best[count] == -inf):
        return []
    with np.errstate(invalid="ignore"):
        means = (best[count] - best[:count]) / np.arange(count, 0, -1)[:, None]
    means[best[:count] == -inf] = inf
    variable = int(np.where(best[count] == -inf, -inf, means.min(0)).argmax())
    walk = [variable]
    for source in came[::-1]:
        variable = int(source[variable])
        walk.append(variable)
    walk.reverse()
    return _best_cycle_of_walk(walk, weights)


def _best_cycle_of_walk(walk: Sequence[int], weights: Sequence[Sequence[float]]) -> list[int]:
    """The cycle with the largest mean weight among the cycles that a walk closes."""
    cycles: list[list[int]] = []
    stack: list[int] = []
    for variable in walk:
        if variable in stack:
            at = stack.index(variable)
            cycles.append(stack[at:])
            del stack[at:]
        stack.append(variable)
    return max(cycles, key=lambda cycle: _mean_weight(cycle, weights))


def _mean_weight(cycle: Sequence[int], weights: Sequence[Sequence[float]]) -> float:
    pairs = zip(cycle, [*cycle[1:], cycle[0]], strict=True)
    return sum(weights[source][target] for source, target in pairs) / len(cycle)
