"""Conflicts that keep two nodes, or two clusters, from becoming one cluster.

`merge_conflict` reports the first that applies:

    frame      they run in different loops
    device     they are on different devices
    deadness   they are not live under the same condition
    effects    a run that fetches only one of them would need what is upstream of the other
    size       the cluster would exceed the maximum size
    handles    the cluster would receive one variable by two handles
    resource   a variable would be read after a write in the same cluster

The effects conflict exists because fetches of later runs may be unknown, and a cluster waits for
everything that its nodes wait for: side effects (variable writes, assertions, printing), and
variables, which may have no value yet. `run_requirements` finds what every run needs anyway that
needs a node; two nodes may share a cluster only if that is the same. Merges then leave it unchanged
for all other nodes.

One conflict concerns more than the two: a path from one to the other over a third node, which
would make the cluster wait for itself. `ClusterGrowth.rejection` adds it (`cycle_graph`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from cfgraph.analysis.effects import ResourceAccess
from cfgraph.analysis.liveness_rules import LivenessRule
from cfgraph.analysis.loops.frame import Frame
from cfgraph.errors import UsageError
from cfgraph.ir.devices import DeviceName
from cfgraph.ir.graph import Node
from cfgraph.passes.functionalize.report import RejectionReason


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
class ClusterCandidate:
    """Nodes that compile together so far, with the properties that later merges must match."""

    frame: Frame
    device: DeviceName
    first: Node
    size: int = 1
    required: int = 0
    accesses: list[ResourceAccess] = field(default_factory=list)

    def absorb(self, other: ClusterCandidate) -> None:
        """Add the nodes of another candidate."""
        self.size += other.size
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
    if a.required != b.required:
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
