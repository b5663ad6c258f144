"""Division of a run into runs whose values the graph determines.

Fetches that are compared belong to different runs of a program, such as an initializer and a
training step. If one run fetches both, a read and an assignment may have no defined order:

    y = v * x            v.assign(0)        ──▶    run [y], run [v.assign]

A fetch that itself depends on such a pair has no defined value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from cfgraph.analysis.check_effects import effect_findings
from cfgraph.analysis.deadness.deadness import deadness
from cfgraph.analysis.effects import EffectAnalysis, ResourceAccess
from cfgraph.analysis.findings import Finding
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.loops.happens_before import HappensBefore
from cfgraph.errors import CfgraphError
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.traversal import ancestors
from cfgraph.limits import check_deadline
from cfgraph.runtime.engine.plan import RunSpec
from cfgraph.runtime.preparation.prepare import lower_run

_MAX_ACCESSES: Final = 2048
_RACE: Final = "CFG225"


@dataclass(frozen=True, slots=True)
class IndependentRuns:
    """Fetches and targets by run, without those of `races`, which have no defined value."""

    runs: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    races: dict[str, Finding] = field(default_factory=dict)


def independent_runs(
    graph: Graph, fetches: Sequence[str], targets: Sequence[str], fed: Collection[Output]
) -> IndependentRuns:
    """Divide a run of a graph; a graph that cannot be analyzed remains one run."""
    nodes = tuple(graph[name.removeprefix("^")] for name in targets)
    spec = RunSpec(graph, tuple(map(graph.tensor, fetches)), nodes, tuple(fed))
    try:
        lowered = lower_run(spec)
        names = [*fetches, *(f"^{node.name}" for node in nodes)]
        groups, races = _divided(lowered, dict(zip(names, lowered.roots, strict=True)))
    except CfgraphError:
        check_deadline()
        groups, races = [[*fetches, *(f"^{node.name}" for node in nodes)]], {}
    return IndependentRuns(tuple(map(_split, groups)), races)


def _split(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fetches and the targets of a run."""
    names = list(names)
    fetches = tuple(name for name in names if not name.startswith("^"))
    return fetches, tuple(name[1:] for name in names if name.startswith("^"))


def _divided(spec: RunSpec, roots: dict[str, Node]) -> tuple[list[list[str]], dict[str, Finding]]:
    """The names of each run, and the races of those without a defined value."""
    nodes = ancestors(spec.graph, spec.roots, frozenset(spec.feeds))
    accesses = _contested(nodes)
    if not accesses or len(accesses) > _MAX_ACCESSES:
        return [[*roots]], {}
    cut = frozenset(spec.feeds)
    graph_frames = frames(spec.graph, nodes, cut)
    marked = [*dict.fromkeys(access.node for access in accesses)]
    before = HappensBefore(graph_frames, marked)
    rivals = _rivals(accesses, before)
    # whose next iteration may be a rival
    looping = {item.node for item in accesses if graph_frames.of[item.node].parent is not None}
    in_loops = sum(before.bit[node] for node in looping)
    analysis = None
    groups: list[tuple[int, list[str]]] = []
    races: dict[str, Finding] = {}
    for name, root in roots.items():
        run = before.predecessors(root)
        if run & in_loops or _conflict(run, run, rivals):
            analysis = analysis or deadness(spec.graph, nodes, cut)
            found = effect_findings(nodes, analysis.frames, analysis, [root])
            race = next((item for item in found if item.code == _RACE), None)
            if race is not None:
                races[name] = race
                continue
        for index, (members, names) in enumerate(groups):
            if not _conflict(run & ~members, members & ~run, rivals):
                names.append(name)
                groups[index] = members | run, names
                break
        else:
            groups.append((run, [name]))
    return [names for _, names in groups], races


def _contested(nodes: Iterable[Node]) -> list[ResourceAccess]:
    """The accesses to resources that a node writes."""
    accesses = list(EffectAnalysis().accesses(nodes))
    written = {access.resource for access in accesses if access.writes}
    return [access for access in accesses if access.resource in written]


def _rivals(accesses: Sequence[ResourceAccess], before: HappensBefore) -> list[tuple[int, int]]:
    """The bit of each access, and a mask of those that may run before or after it."""
    by_resource: dict[object, list[ResourceAccess]] = {}
    for access in accesses:
        by_resource.setdefault(access.resource, []).append(access)
    masks: dict[int, int] = {}
    for group in by_resource.values():
        for access in group:
            node, bit = access.node, before.bit[access.node]
            for other in group:
                if not (access.writes or other.writes) or other.node is node:
                    continue
                other_bit = before.bit[other.node]
                if not (before.of[node] & other_bit or before.of[other.node] & bit):
                    masks[bit] = masks.get(bit, 0) | other_bit
    return list(masks.items())


def _conflict(first: int, second: int, rivals: Iterable[tuple[int, int]]) -> bool:
    """True if an access of one mask has a rival in the other."""
    return any(first & bit and second & mask for bit, mask in rivals)
