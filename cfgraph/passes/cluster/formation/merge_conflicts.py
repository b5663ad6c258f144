"""Conflicts that keep two nodes, or two clusters, from becoming one cluster.

`merge_conflict` reports the first that applies:

    frame      they run in different loops
    device     they are on different devices
    deadness   they are not live under the same condition
    effects    a run that fetches only one of them would trigger side effects upstream of the other
    size       the cluster would exceed the maximum size
    handles    the cluster would receive one variable by two handles
    resource   a variable would be read after a write in the same cluster

The effects conflict exists because fetches of later runs may be unknown, and a cluster waits for
everything that its nodes wait for. Two nodes may therefore share a cluster only if they depend on
the same side effects (variable writes, assertions, printing) or are needed by the same outputs of
the graph.

One conflict concerns more than the two: a path from one to the other over a third node, which
would make the cluster wait for itself. `ClusterGrowth.rejection` adds it (`cycle_graph`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cfgraph.analysis.effects import EffectAnalysis, ResourceAccess
from cfgraph.analysis.liveness_rules import LivenessRule
from cfgraph.analysis.loops.frames import Frame
from cfgraph.errors import UsageError
from cfgraph.ir import registry
from cfgraph.ir.devices import DeviceName
from cfgraph.ir.graph import Node
from cfgraph.ops.opdef.op import lookup, may_write
from cfgraph.passes.functionalize.report import RejectionReason

# above this number of outputs, no two nodes are considered needed by the same outputs
_MAX_OUTPUTS: Final = 4096


@dataclass(frozen=True, slots=True)
class ClusterSizes:
    """Minimum number of computing nodes and maximum number of all nodes per cluster.

    Raises UsageError for a minimum below 1, or above the maximum.
    """

    least: int = 2
    greatest: int | None = None

    def __post_init__(self) -> None:
        if self.least < 1 or (self.greatest is not None and self.greatest < self.least):
            message = f"cluster sizes from {self.least} to {self.greatest} are invalid"
            hint = "min_size must be at least 1, and max_size at least min_size"
            raise UsageError(message, hint=hint)


@dataclass(slots=True)
class EffectSet:
    """Bit sets of a node or cluster: the side effects upstream, and the outputs that need it.

    `needed_by` is None if unknown, or if not all nodes of the cluster are needed by the same
    outputs.
    """

    upstream: int = 0
    needed_by: int | None = None

    def update(self, other: EffectSet) -> None:
        """Add the effects of a cluster that is merged into this one."""
        self.upstream |= other.upstream
        self.needed_by = self.needed_by if self.needed_by == other.needed_by else None

    def conflicts_with(self, other: EffectSet) -> bool:
        """True if a run may need only one of the two and would then trigger more effects."""
        same_outputs = self.needed_by is not None and self.needed_by == other.needed_by
        return self.upstream != other.upstream and not same_outputs


@dataclass(slots=True)
class ClusterCandidate:
    """Nodes that compile together so far, with the properties that later merges must match."""

    frame: Frame
    device: DeviceName
    first: Node
    size: int = 1
    effects: EffectSet = field(default_factory=EffectSet)
    accesses: list[ResourceAccess] = field(default_factory=list)

    def absorb(self, other: ClusterCandidate) -> None:
        """Add the nodes of another candidate."""
        self.size += other.size
        self.effects.update(other.effects)
        self.accesses.extend(other.accesses)


def merge_conflict(
    a: ClusterCandidate,
    b: ClusterCandidate,
    liveness: LivenessRule,
    sizes: ClusterSizes,
    *,
    siblings: bool = False,
) -> RejectionReason | None:
    """Return the first conflict between two clusters, whatever paths connect them.

    Without `siblings` an edge leads from `a` to `b`, so that accesses of `a` come first.
    """
    if a.frame is not b.frame:
        paths = [a.frame.path, b.frame.path]
        return RejectionReason("frame", " and ".join(paths), {"frames": paths})
    if a.device != b.device:
        devices = [a.first.device, b.first.device]
        return RejectionReason("device", " and ".join(map(repr, devices)), {"devices": devices})
    if not liveness.same_liveness(a.first, b.first):
        conditions = [liveness.condition(a.first), liveness.condition(b.first)]
        live = ("always" if x == "true" else f"when {x}" for x in conditions)
        text = f"one is live {' and the other '.join(live)}"
        return RejectionReason("deadness", text, {"conditions": conditions})
    if a.effects.conflicts_with(b.effects):
        ends = [a.first.name, b.first.name]
        return RejectionReason("effects", " and ".join(ends), {"nodes": ends})
    size = a.size + b.size
    if sizes.greatest is not None and size > sizes.greatest:
        return RejectionReason("size", f"{size} nodes", {"size": size})
    return _resource_conflict(a, b, siblings)


def _resource_conflict(
    a: ClusterCandidate, b: ClusterCandidate, siblings: bool
) -> RejectionReason | None:
    for first in a.accesses:
        for second in b.accesses:
            if first.resource != second.resource:
                continue
            data = {"variable": first.name, "nodes": [first.node.name, second.node.name]}
            if _resource_handles(first).isdisjoint(_resource_handles(second)):
                return RejectionReason("handles", f"variable {first.name}", data)
            if first.writes or (siblings and second.writes):
                text = f"{first.node.name} writes {first.name}, which {second.node.name} uses"
                return RejectionReason("resource", text, data)
    return None


def _resource_handles(access: ResourceAccess) -> set[object]:
    return {
        tensor for tensor in access.node.inputs if tensor.dtype and tensor.dtype.kind == "resource"
    }


class FetchEffects:
    """Effect sets of all nodes of a graph; an empty `order` means that the fetches are known."""

    def __init__(self, order: Sequence[Node], effects: EffectAnalysis) -> None:
        writers = [node for node in order if _has_lasting_effect(node, effects)]
        self._upstream: Mapping[Node, int] = {}
        self._needed_by: Mapping[Node, int] = {}
        if writers:
            self._upstream = _propagate_bits(order, writers, _predecessors)
            outputs = [node for node in order if not node.uses]
            if len(outputs) <= _MAX_OUTPUTS:
                self._needed_by = _propagate_bits(order[::-1], outputs, _successors)

    def effect_set(self, node: Node) -> EffectSet:
        """Return the side effects upstream of a node and the outputs that need it."""
        return EffectSet(self._upstream.get(node, 0), self._needed_by.get(node))


def _propagate_bits(
    order: Iterable[Node], marked: Iterable[Node], neighbors: Callable[[Node], Iterable[Node]]
) -> dict[Node, int]:
    """Give each marked node a bit; return the bits of all marked nodes that reach each node."""
    reached = dict.fromkeys(order, 0)
    reached.update((node, 1 << number) for number, node in enumerate(marked))
    changed = True
    while changed:  # loops need one more round per nesting level
        changed = False
        for node, bits in reached.items():
            new = bits
            for source in neighbors(node):
                new |= reached.get(source, 0)
            if new != bits:
                reached[node], changed = new, True
    return reached


def _predecessors(node: Node) -> list[Node]:
    return [*(tensor.node for tensor in node.inputs), *node.controls]


def _successors(node: Node) -> list[Node]:
    return [use.node for use in node.uses]


def _has_lasting_effect(node: Node, effects: EffectAnalysis) -> bool:
    """Return true for effects that outlast a run or are visible outside; stacks are not."""
    op = lookup(node.op)
    if op is None or op.placement.swap_role or not may_write(node):
        return False
    return registry.output_count(node) == 0 or any(
        access.writes for access in effects.accesses([node])
    )
