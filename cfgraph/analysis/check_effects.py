"""Races: accesses to one resource that no edge orders, although one run executes both.

A run is known to execute two accesses if one node, or one fetch, depends on both. Accesses that
belong to different runs, such as an initializer and a training step, are not reported; neither are
two reads.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final

from cfgraph.analysis.deadness.deadness import Deadness
from cfgraph.analysis.deadness.pretty import frame_location, witness_clause
from cfgraph.analysis.effects import EffectAnalysis, ResourceAccess
from cfgraph.analysis.findings import Finding
from cfgraph.analysis.loops.frames import Frames
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
) -> Iterator[Finding]:
    """Races of a graph: accesses in one run that no edge orders.

    A run executes everything that `wanted` needs; without `wanted`, what any single node needs;
    with `all_run`, all nodes.
    """
    shared = _shared_accesses(graph)
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
    for accesses in shared:
        yield from _races(accesses, before, together, deadness)


def _shared_accesses(graph: Iterable[Node]) -> list[list[ResourceAccess]]:
    """Accesses of each resource that several nodes use and at least one writes."""
    by_resource: dict[Hashable, dict[Node, ResourceAccess]] = {}
    for access in EffectAnalysis().accesses(graph):
        known = by_resource.setdefault(access.resource, {})
        if access.node not in known or access.writes:
            known[access.node] = access
    groups = [list(group.values()) for group in by_resource.values()]
    return [group for group in groups if len(group) > 1 and any(access.writes for access in group)]


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
        self.runs = [run for run in runs if run & (run - 1)]

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
) -> Iterator[Finding]:
    """Findings on possible races: one per access, with the first earlier access that conflicts."""
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
                yield _race_finding(before.frames, deadness, rival, access)
        earlier.append(access)
        seen |= bit
        writers |= bit if access.writes else 0


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
