"""Report of a clustering: its clusters, and the reason for each unclustered node and edge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cfgraph.ir.graph import Node
from cfgraph.passes.cluster.formation.rejection_reasons import RejectionReason
from cfgraph.passes.report import Report


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """One cluster: nodes, copied constants, frame, device, liveness condition, and arguments."""

    name: str
    nodes: tuple[str, ...]
    copies: tuple[str, ...]
    ops: Mapping[str, int]
    frame: str
    device: str
    condition: str
    constants: int = 0
    arguments: int = 0
    resources: int = 0
    results: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the cluster as a member of a command's JSON document."""
        return {
            "name": self.name,
            "nodes": self.nodes,
            "copies": self.copies,
            "ops": self.ops,
            "frame": self.frame,
            "device": self.device,
            "condition": self.condition,
            "inputs": {
                "constants": self.constants,
                "arguments": self.arguments,
                "resources": self.resources,
            },
            "results": self.results,
        }


@dataclass(frozen=True, slots=True)
class ClusterEdge:
    """An edge between compilable nodes of different clusters, and the reason against merging."""

    source: str
    target: str
    reason: RejectionReason

    def to_json(self) -> dict[str, Any]:
        """Return the edge as a member of a command's JSON document."""
        return {"source": self.source, "target": self.target, **self.reason.to_json()}


@dataclass(frozen=True, slots=True)
class CompilationGain:
    """Number of nodes by which clustering would grow if XLA compiled some ops.

    `nodes` would be clustered in addition; `still_outside` has the reasons for nodes of these ops
    that would not be.
    """

    ops: tuple[str, ...]
    clusters: int
    clustered: int
    more: int
    nodes: tuple[str, ...]
    still_outside: Mapping[str, RejectionReason] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the gain as a member of a command's JSON document."""
        return {
            "ops": self.ops,
            "clusters": self.clusters,
            "clustered": self.clustered,
            "more": self.more,
            "nodes": self.nodes,
            "still_outside": self.still_outside,
        }


@dataclass(frozen=True, slots=True)
class RegionReport:
    """A loop, conditional, or list: the node that replaced it, or the reason against this.

    `ops` has the op of each node by name, including those of inner regions. `name` is the path of
    a loop's frame, the first Merge of a conditional, or the node that creates a list.
    """

    kind: str
    name: str
    ops: Mapping[str, str]
    replacement: Node | None = None
    reason: RejectionReason | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the region as a member of a command's JSON document."""
        return {
            "kind": self.kind,
            "name": self.name,
            "nodes": len(self.ops),
            "clustered": self.replacement is not None,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class Clustering(Report):
    """Report of `cluster` with its decisions.

    `nodes` is the number of nodes before clustering, and `op_of` has their ops; `outside` has a
    reason for each node in no cluster; `absorbed` are constants that exist only as copies now.
    On request, `edges` has the edges between clusters, `gains` the gain for each op that XLA does
    not compile, and `what_if` the gain for some ops together. `regions` are all loops and
    conditionals that were considered.
    """

    nodes: int = 0
    clusters: tuple[ClusterReport, ...] = ()
    absorbed: tuple[str, ...] = ()
    outside: Mapping[str, RejectionReason] = field(default_factory=dict)
    edges: tuple[ClusterEdge, ...] = ()
    op_of: Mapping[str, str] = field(default_factory=dict)
    gains: tuple[CompilationGain, ...] = ()
    what_if: CompilationGain | None = None
    regions: tuple[RegionReport, ...] = ()

    @property
    def clustered(self) -> int:
        """Return the number of nodes in clusters."""
        return sum(len(cluster.nodes) for cluster in self.clusters) + len(self.absorbed)

    @property
    def coverage(self) -> float:
        """Return the fraction of nodes in clusters."""
        return self.clustered / self.nodes if self.nodes else 0.0

    def histogram(self) -> dict[str, int]:
        """Count the nodes outside clusters by kind of reason, most frequent first."""
        return dict(Counter(reason.kind for reason in self.outside.values()).most_common())

    def edge_histogram(self) -> dict[str, int]:
        """Count the edges between clusters by kind of reason, most frequent first."""
        return dict(Counter(edge.reason.kind for edge in self.edges).most_common())
