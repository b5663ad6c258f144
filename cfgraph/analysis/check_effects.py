"""Races: accesses to one resource that no edge orders, although one run executes both.

A run is known to execute two accesses if one node, or one fetch, depends on both. Accesses that
belong to different runs, such as an initializer and a training step, are not reported; neither are
two reads. Accesses in a loop whose iterations overlap are also compared with those of the next
iteration: if each of these waits for the previous ones, so does every later iteration.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final

from cfgraph.analysis.deadness.deadness import Deadness
from cfgraph.analysis.deadness.pretty import frame_location, witness_clause
from cfgraph.analysis.effects import EffectAnalysis, ResourceAccess
from cfgraph.analysis.findings import Finding
from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.analysis.loops.happens_before import HappensBefore
from cfgraph.ir.graph import Node

_MAX_ACCESSES: Final = 2048
_MAX_TRIED: Final = 32


def effect_findings(
    graph: Iterable[Node],
    graph_frames: Frames,
    deadness: Deadness | None,
    targets: Sequence[Node] = (),
    *,
    all_run: bool = False,
    launches: bool = False,
) -> Iterator[Finding]:
    """Races of a graph: accesses in one run that no edge orders.

    A run executes everything that `targets` need; without `targets`, what any single node needs;
    with `all_run`, all nodes. With `launches`, the call of a cluster counts as a write to each
    resource that it takes.
    """
    shared = _shared_accesses(graph, graph_frames, launches=launches)
    marked = [access.node for accesses in shared for access in accesses]
    marked = list(dict.fromkeys(marked))
    if not marked:
        return
    if len(marked) > _MAX_ACCESSES:
        message = f"{len(marked)} resource accesses are too many to search for races"
        yield Finding("CFG222", "note", message)
        return
    before = HappensBefore(graph_frames, marked)
    together = _JointRuns(graph, before, targets, all_run=all_run)
    reported: set[frozenset[Node]] = set()
    for accesses in shared:
        for earlier, later in _races(accesses, before, together, deadness):
            reported.add(frozenset((earlier.node, later.node)))
            yield _race_finding(graph_frames, deadness, earlier, later)
    for loop, accesses in _accesses_by_loop(shared, graph_frames):
        race = _next_iteration_race(loop, accesses, before, together, deadness)
        if race is not None and frozenset(access.node for access in race) not in reported:
            reported.add(frozenset(access.node for access in race))
            yield _next_iteration_finding(before, loop, *race)


def _shared_accesses(
    graph: Iterable[Node], graph_frames: Frames, *, launches: bool
) -> list[list[ResourceAccess]]:
    """Accesses of each resource that a node writes, and that several nodes or iterations use."""
    by_resource: dict[Hashable, dict[Node, ResourceAccess]] = {}
    for access in EffectAnalysis(launches=launches).accesses(graph):
        known = by_resource.setdefault(access.resource, {})
        if access.node not in known or access.writes:
            known[access.node] = access
    groups = [list(group.values()) for group in by_resource.values()]
    return [
        group
        for group in groups
        if any(access.writes for access in group)
        and (len(group) > 1 or any(_overlapping_loops(group[0], graph_frames)))
    ]


def _overlapping_loops(access: ResourceAccess, graph_frames: Frames) -> Iterator[Frame]:
    """The loops of an access whose iterations share the resource and may overlap, inner first."""
    frame, origin = graph_frames.of[access.node], graph_frames.root
    if access.origin is not None:
        origin = graph_frames.of_outputs.get(access.origin, origin)
    while frame.parent is not None and not origin.is_within(frame):
        if frame.next_iterations and frame.parallel_iterations > 1:
            yield frame
        frame = frame.parent


def _accesses_by_loop(
    shared: Iterable[list[ResourceAccess]], graph_frames: Frames
) -> Iterator[tuple[Frame, list[ResourceAccess]]]:
    """The accesses of each resource in each loop whose iterations may overlap, inner loops first.

    At least one access is a write.
    """
    for accesses in shared:
        by_loop: dict[Frame, list[ResourceAccess]] = {}
        for access in accesses:
            for loop in _overlapping_loops(access, graph_frames):
                by_loop.setdefault(loop, []).append(access)
        for loop in sorted(by_loop, key=lambda loop: -loop.depth):
            if any(access.writes for access in by_loop[loop]):
                yield loop, by_loop[loop]


class _JointRuns:
    """Map of each marked node to a bit mask of the marked nodes that share a run with it."""

    def __init__(
        self,
        graph: Iterable[Node],
        before: HappensBefore,
        targets: Sequence[Node],
        *,
        all_run: bool,
    ) -> None:
        self.bit = before.bit
        if all_run:
            runs = {(1 << len(before.bit)) - 1}
        elif targets:
            runs = {_union(before.predecessors(node) for node in targets)}
        else:
            runs = {before.predecessors(node) for node in graph if not node.uses}
        self.runs = [run for run in runs if run]

    def __getitem__(self, node: Node) -> int:
        bit = self.bit[node]
        return _union(run for run in self.runs if run & bit)


def _union(masks: Iterable[int]) -> int:
    whole = 0
    for mask in masks:
        whole |= mask
    return whole


def _races(
    accesses: list[ResourceAccess],
    before: HappensBefore,
    together: _JointRuns,
    deadness: Deadness | None,
) -> Iterator[tuple[ResourceAccess, ResourceAccess]]:
    """Possible races: one per access, with the first earlier access that conflicts."""
    earlier: list[ResourceAccess] = []
    writers, seen = 0, 0
    for access in sorted(accesses, key=lambda access: before.position[access.node]):
        node, bit = access.node, before.bit[access.node]
        rivals = (seen if access.writes else writers) & ~before.of[node]
        if rivals and (rivals := rivals & together[node]):
            tried = [rival for rival in earlier if rivals & before.bit[rival.node]][:_MAX_TRIED]
            rival = next(
                (candidate for candidate in tried if _both_run(deadness, candidate, access)), None
            )
            if rival is not None:
                yield rival, access
        earlier.append(access)
        seen |= bit
        writers |= bit if access.writes else 0


def _next_iteration_race(
    loop: Frame,
    accesses: list[ResourceAccess],
    before: HappensBefore,
    together: _JointRuns,
    deadness: Deadness | None,
) -> tuple[ResourceAccess, ResourceAccess] | None:
    """An access, and the first that does not wait for it in the next iteration of a loop."""
    everything = _union(before.bit[access.node] for access in accesses)
    writers = _union(before.bit[access.node] for access in accesses if access.writes)
    accesses = sorted(accesses, key=lambda access: before.position[access.node])
    for access in accesses:
        node = access.node
        rivals = (everything if access.writes else writers) & ~before.previous_iteration(loop, node)
        if rivals and (rivals := rivals & together[node]):
            tried = [rival for rival in accesses if rivals & before.bit[rival.node]][:_MAX_TRIED]
            for rival in tried:
                if deadness is None or deadness.can_follow(rival.node, node, loop):
                    return rival, access
    return None


def _both_run(deadness: Deadness | None, a: ResourceAccess, b: ResourceAccess) -> bool:
    """True if both accesses may be live in one run."""
    return deadness is None or deadness.can_both_live(a.node, b.node)


def _race_finding(
    graph_frames: Frames, deadness: Deadness | None, a: ResourceAccess, b: ResourceAccess
) -> Finding:
    names = f"{a.node.op} {a.node.name!r} and {b.node.op} {b.node.name!r}"
    message = f"{names} both use {b.name!r} in no defined order"
    if deadness is not None:
        message += witness_clause(deadness.witness(a.node, b.node))
    hint = f"order them, for example by a control edge '^{a.node.name}'"
    related = (a.node.name, b.node.name)
    where = frame_location(graph_frames, b.node)
    return Finding("CFG225", "warning", message, b.node.name, hint, related, where)


def _next_iteration_finding(
    before: HappensBefore, loop: Frame, a: ResourceAccess, b: ResourceAccess
) -> Finding:
    earlier, later = f"{a.node.op} {a.node.name!r}", f"{b.node.op} {b.node.name!r}"
    uses = f"{earlier} uses" if a.node is b.node else f"{earlier} and {later} both use"
    message = (
        f"{uses} {b.name!r} in no defined order: {b.node.name!r} in the next iteration"
        f" of {loop} does not wait for {a.node.name!r}"
    )
    back = before.back_edge(loop, b.node)
    if back is not None and before.frames.of[a.node] is loop:
        hint = f"order the iterations, for example by a control edge '^{a.node.name}' into "
        hint += repr(back.name)
    else:
        hint = f"let {b.node.name!r} depend on a loop variable that waits for {a.node.name!r}"
    related = tuple(dict.fromkeys((a.node.name, b.node.name)))
    return Finding("CFG225", "warning", message, b.node.name, hint, related, str(loop))
