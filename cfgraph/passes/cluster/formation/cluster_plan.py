"""Plan the clusters of a graph before the graph is changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from cfgraph.ir.graph import Graph, Node
from cfgraph.passes.cluster.formation.compilable import ClusterConstraints, CompilationRules
from cfgraph.passes.cluster.formation.grow import ClusterGrowth, node_weight
from cfgraph.passes.cluster.formation.liveness_rules import LivenessRule
from cfgraph.passes.cluster.formation.merge_conflicts import ClusterSizes
from cfgraph.passes.cluster.formation.report import ClusterEdge, ClusterReport, RejectionReason


@dataclass(frozen=True, slots=True)
class ClusterBody:
    """Members of a cluster in execution order, and the constants copied into it.

    Edges from `transparent` nodes, which include all copied constants, are replaced by edges from
    the control inputs of these nodes.
    """

    members: tuple[Node, ...]
    copies: tuple[Node, ...]
    transparent: Collection[Node] = ()


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """Clusters in execution order, and a reason for each node outside.

    `absorbed` are constants that are read only by clusters with their own copy.
    """

    growth: ClusterGrowth
    bodies: tuple[ClusterBody, ...]
    outside: Mapping[Node, RejectionReason]
    absorbed: tuple[Node, ...]

    @property
    def clustered(self) -> int:
        """Return the number of nodes in clusters."""
        return sum(len(body.members) for body in self.bodies) + len(self.absorbed)

    def cluster_report(
        self, body: ClusterBody, original_ops: Mapping[Node, Mapping[str, str]]
    ) -> ClusterReport:
        """Describe a planned cluster, which has no name yet.

        `original_ops` has the original nodes, by name with their ops, of functionalized regions.
        """
        liveness, first = self.growth.liveness, body.members[0]
        ops = dict[str, str]()
        for node in body.members:
            ops.update(original_ops.get(node, {node.name: node.op}))
        return ClusterReport(
            "",
            tuple(ops),
            tuple(node.name for node in body.copies),
            dict(sorted(Counter(ops.values()).items())),
            liveness.frames.of[first].path,
            first.device,
            liveness.condition(first),
        )

    def edges(self) -> Iterator[ClusterEdge]:
        """Yield the edges between compilable nodes of different clusters, each with a reason."""
        growth = self.growth
        vertex_of, candidates = growth.dependencies.vertex_of, growth.candidates
        for node in growth.liveness.frames.order:
            sources = dict.fromkeys([*(tensor.node for tensor in node.inputs), *node.controls])
            for source in sources:
                a, b = vertex_of[source], vertex_of[node]
                if a != b and a in candidates and b in candidates:
                    reason = growth.rejection(a, b)
                    if reason is not None:
                        yield ClusterEdge(source.name, node.name, reason)


def plan_clusters(
    graph: Graph, liveness: LivenessRule, sizes: ClusterSizes, constraints: ClusterConstraints
) -> ClusterPlan:
    """Plan the clusters of a graph in lowered form."""
    growth = ClusterGrowth(CompilationRules(graph, liveness.frames, constraints), liveness, sizes)
    position = {node: number for number, node in enumerate(liveness.frames.order)}
    outside = dict(growth.reasons)
    bodies = []
    for vertex in sorted(growth.candidates, key=growth.dependencies.rank.__getitem__):
        members = sorted(growth.dependencies.nodes[vertex], key=position.__getitem__)
        size = sum(map(node_weight, members))
        # a region is worth a cluster of any size: it may run its nodes many times
        is_region = any(constraints.functionalized.get(node, 0) > 1 for node in members)
        if size >= sizes.least or is_region:
            copies = _copied_constants(growth, members, position)
            bodies.append(ClusterBody(tuple(members), copies, growth.cheap_constants))
        else:
            outside.update(dict.fromkeys(members, _size_rejection(members, size)))
    absorbed = _absorbed_constants(bodies, constraints)
    removed = set(absorbed)
    shared = RejectionReason("shared", "it is read outside clusters")
    outside.update((node, shared) for node in growth.cheap_constants if node not in removed)
    return ClusterPlan(growth, tuple(bodies), outside, absorbed)


def _size_rejection(members: list[Node], size: int) -> RejectionReason:
    if len(members) == 1:
        return RejectionReason("alone", "no edge to merge along", {"size": size})
    return RejectionReason("too small", f"{size} computing nodes", {"size": size})


def _copied_constants(
    growth: ClusterGrowth, members: list[Node], position: Mapping[Node, int]
) -> tuple[Node, ...]:
    """Return the cheap constants that a cluster reads."""
    sources = {tensor.node for node in members for tensor in node.inputs}
    copied = sources.intersection(growth.cheap_constants)
    return tuple(sorted(copied, key=position.__getitem__))


def _absorbed_constants(
    bodies: list[ClusterBody], constraints: ClusterConstraints
) -> tuple[Node, ...]:
    """Return the constants read only by clusters that contain a copy."""
    members_with_copy: dict[Node, set[Node]] = {}
    for body in bodies:
        for node in body.copies:
            members_with_copy.setdefault(node, set()).update(body.members)
    return tuple(
        node
        for node, members in members_with_copy.items()
        if node not in constraints.fetched and all(use.node in members for use in node.uses)
    )
