"""The report of a clustering: clusters, and the reason why a node or an edge stays out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from cfgraph.passes.functionalize.report import RegionReport, RejectionReason
from cfgraph.passes.outcome import Report
from cfgraph.reports import Column, Count, Inline, Record

# kinds of reasons and their meaning; `--explain` and JSON use these words
NODE_REASONS: Final[Mapping[str, str]] = {
    "control flow": "forwards tokens between branches, iterations, or devices",
    "input": "is an input of the graph",
    "fed": "is fed",
    "not needed": "no fetch depends on it",
    "unknown op": "its op is not registered",
    "call": "calls a function that was not lowered",
    "asked": "excluded by only_ops or exclude_ops",
    "marked": "its attribute _XlaCompile is false",
    "effects": "has side effects that a cluster cannot have",
    "not traced": "its kernel cannot be traced",
    "no kernel": "XLA has no kernel for its op",
    "type": "XLA has no kernel for its op with this type",
    "reference": "reads or returns a reference",
    "device": "is not on a CPU or GPU",
    "pivot": "starts the body of a loop, which would wait for the cluster",
    "constant varies": "XLA needs a constant input, which varies in a loop",
    "constant state": "XLA needs its value as a constant, which only a run knows",
    "tangled loops": "is between an Exit and an Enter of one loop",
    "mismatch": "its inputs may differ in liveness",
    "too small": "its cluster is below the minimum size",
    "shared": "a constant that is also read outside clusters",
    "alone": "has no edge to another node that it could merge with",
}
REGION_REASONS: Final[Mapping[str, str]] = {
    "form": "its Switches and Merges do not form a single loop or conditional",
    "entered apart": "its inputs may differ in liveness",
    "several devices": "its nodes are on several devices",
    "inner loop": "contains a loop that is not compiled",
    "conditional": "contains a conditional that is not compiled",
    "shape changes": "a loop variable changes its shape",
    "list": "a stack or TensorArray cannot become a list of static size",
    "size": "exceeds the maximum size of a cluster",
    "fed": "a node inside is fed or fetched",
    "reference": "a reference crosses the boundary of a function",
    "dead value": "a fetch inside may be dead",
}
EDGE_REASONS: Final[Mapping[str, str]] = {
    "frame": "the ends run in different loops",
    "device": "the ends are on different devices",
    "deadness": "the ends are not live under the same condition",
    "size": "the cluster would exceed the maximum size",
    "effects": "a run may need one end without the effects or variables that the other needs",
    "resource": "a variable would be read after a write in the same cluster",
    "handles": "the cluster would receive one variable by two handles",
    "cycle": "the cluster would wait for itself by a path over other nodes",
    "late enter": "only one end waits for an Enter that waits for an Exit of its own loop",
}


_MAX_OPS: Final = 6


def frequent_ops(ops: Mapping[str, int]) -> str:
    """Return the most frequent ops, with their numbers."""
    often = sorted(ops.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{op} {count}" if count > 1 else op for op, count in often[:_MAX_OPS]]
    return ", ".join([*shown, *(["…"] if len(often) > _MAX_OPS else [])])


class ClusterInputs(Record):
    """The numbers of inputs of a cluster."""

    constants: Count
    arguments: Count
    resources: Count

    def __str__(self) -> str:
        return str(self.constants + self.arguments + self.resources)


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """One cluster: nodes, copied constants, frame, device, liveness condition, and inputs."""

    name: Annotated[str, Column(title="cluster")]
    nodes: Annotated[tuple[str, ...], Column(right=True, cell=len)]
    copies: Annotated[tuple[str, ...], Column(title="copied", right=True, cell=len)]
    ops: Annotated[Mapping[str, Count], Column(cell=frequent_ops)]
    frame: Annotated[
        str, Column(optional=True, names=True, cell=lambda frame: "" if frame == "/" else frame)
    ]
    device: Annotated[str, Column(optional=True)]
    condition: str  #: When it is live.
    inputs: Annotated[ClusterInputs, Column(right=True)]
    results: Annotated[Count, Column(title="outputs")]


@dataclass(frozen=True, slots=True)
class ClusterEdge:
    """An edge between compilable nodes of different clusters, and the reason against merging."""

    source: Annotated[str, Column(title="from", scoped=True)]
    target: Annotated[str, Column(title="to", scoped=True)]
    reason: Inline[RejectionReason]


@dataclass(frozen=True, slots=True)
class CompilationGain:
    """Number of nodes by which clustering would grow if XLA compiled some ops.

    `nodes` would be clustered in addition; `still_outside` has the reasons for nodes of these ops
    that would not be.
    """

    ops: Annotated[tuple[str, ...], Column(title="op")]
    clusters: Count
    clustered: Count
    more: Annotated[Count, Column(title="more nodes")]
    nodes: tuple[str, ...]
    still_outside: Mapping[str, RejectionReason] = field(default_factory=dict)


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
