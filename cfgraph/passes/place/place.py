"""Give every node a full device name.

Nodes that share a handle, a reference or a class are one set, and a set is on one device. What its
nodes ask for decides, then what kind of device has the kernels; where that leaves several, the
cost model chooses, or chance.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cfgraph.analysis.transfers import is_partitioned
from cfgraph.analysis.verify import require_valid
from cfgraph.errors import Unsupported
from cfgraph.ir.collector import without_collector
from cfgraph.ir.copy import copy_of
from cfgraph.ir.device_set import device_set
from cfgraph.ir.graph import Graph, Node
from cfgraph.passes.lower.lower import lower
from cfgraph.passes.place.facts import Facts
from cfgraph.passes.place.groups import Groups
from cfgraph.passes.place.wishes import Wishes
from cfgraph.passes.report import Report


@dataclass(frozen=True, slots=True)
class Placement(Report):
    """A report with the devices that there are, and what decided on each node's."""

    devices: tuple[str, ...] = ()
    decided: Mapping[str, str] = field(default_factory=dict)


def place(
    graph: Graph,
    *,
    devices: str | Iterable[str],
    seed: int | None = None,
    soft_placement: bool = False,
) -> Placement:
    """Give every node one of `devices` (`cpu:0,gpu:0-1`), in place; what is functional is lowered.

    With `soft_placement` a request that cannot be met is let go of, with a warning. With `seed` the
    requests are ignored, and every set of nodes that must be together goes to a device by chance.

    Raises UsageError for devices that are none; InvalidInput for a graph that is not valid, and for
    requests that conflict or are not there; Unsupported where no device has a kernel, and for a
    graph that is partitioned already. The graph is unchanged then.
    """
    names = device_set(devices)
    require_valid(graph)
    if is_partitioned(graph):
        message = "the graph is partitioned already"
        raise Unsupported(message, hint="place it before it is partitioned", code="CFG411")
    trial = copy_of(graph)
    lowered = lower(trial)
    with without_collector():
        placed = _decide(trial if lowered else graph, names, seed, soft_placement)
        if lowered:
            lower(graph)
        moved = _apply(graph, placed.where)
    return Placement(
        lowered.rewrites + moved,
        lowered.names,
        (*lowered.warnings, *placed.warnings),
        lowered.before,
        lowered.after,
        names,
        placed.why,
    )


@dataclass(frozen=True, slots=True)
class _Decision:
    """The device of each node, and what decided on it."""

    where: dict[str, str]
    why: dict[str, str]
    warnings: tuple[str, ...]


def _decide(graph: Graph, devices: tuple[str, ...], seed: int | None, soft: bool) -> _Decision:
    groups = Groups(graph, Facts())
    asked = {} if seed is not None else {node: node.device for node in graph if node.device}
    wishes = Wishes(graph, groups, devices, asked, soft)
    for tie in groups.loose:
        wishes.join(tie.source, tie.reader)
    sets: dict[Node, tuple[str, ...]] = {
        node: wishes.candidates(node) for node in graph if groups.is_first(node)
    }
    chance = random.Random(seed)
    chosen = {
        first: found[0] if seed is None else chance.choice(found) for first, found in sets.items()
    }
    where = {node.name: chosen[groups.of(node)] for node in graph}
    return _Decision(where, {}, wishes.told())


def _apply(graph: Graph, where: Mapping[str, str]) -> int:
    """Write the devices down; returns how many nodes had another one."""
    moved = [(node, where[node.name]) for node in graph if node.device != where[node.name]]
    for node, device in moved:
        graph.set_device(node, device)
    return len(moved)
