"""The report of a clustering: its clusters, and the reason for each unclustered node and edge."""

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
    """One cluster: its nodes, copied constants, where and when it runs, what goes in and out."""

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
        """The cluster as a member of a command's JSON document."""
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
    """An edge between two nodes that compile, and why it joins no clusters."""

    source: str
    target: str
    reason: RejectionReason

    def to_json(self) -> dict[str, Any]:
        """The edge as a member of a command's JSON document."""
        return {"source": self.source, "target": self.target, **self.reason.to_json()}


@dataclass(frozen=True, slots=True)
class CompilationGain:
    """What clustering would give if XLA compiled some ops: how much `more` is clustered.

    `nodes` are those that would be in a cluster then, `still` those of these ops that would not.
    """

    ops: tuple[str, ...]
    clusters: int
    clustered: int
    more: int
    nodes: tuple[str, ...]
    still_outside: Mapping[str, RejectionReason] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The gain as a member of a command's JSON document."""
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
    """A loop or a conditional: the node that it became, or the reason against it.

    `ops` are its nodes by name, those of regions in it among them, with their ops. `name` is the
    path of a loop's frame, or the first Merge of a conditional.
    """

    kind: str
    name: str
    ops: Mapping[str, str]
    raised: Node | None = None
    reason: RejectionReason | None = None

    def to_json(self) -> dict[str, Any]:
        """The region as a member of a command's JSON document."""
        return {
            "kind": self.kind,
            "name": self.name,
            "nodes": len(self.ops),
            "clustered": self.raised is not None,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class Clustering(Report):
    """The report of `cluster`, with its decisions.

    `nodes` is the number of nodes before; `outside` has a reason for each that is in no cluster,
    `absorbed` are constants that are only in copies now, `op_of` the op of each node that was.
    Where it was asked for, `edges` has the edges that join nothing, `gains` what each op that XLA
    does not compile costs, `what_if` the gain of some. `regions` are the loops and conditionals
    that were looked at, with a reason for each that is in no cluster.
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
        """How many nodes are in clusters."""
        return sum(len(cluster.nodes) for cluster in self.clusters) + len(self.absorbed)

    @property
    def coverage(self) -> float:
        """The share of nodes in clusters."""
        return self.clustered / self.nodes if self.nodes else 0.0

    def histogram(self) -> dict[str, int]:
        """How many nodes stay outside for each kind of reason, most first."""
        return dict(Counter(reason.kind for reason in self.outside.values()).most_common())

    def edge_histogram(self) -> dict[str, int]:
        """How many edges join nothing for each kind of reason, most first."""
        return dict(Counter(edge.reason.kind for edge in self.edges).most_common())
