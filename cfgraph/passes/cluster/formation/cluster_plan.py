"""The clusters of a graph, decided before the graph is changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cfgraph.ir.graph import Graph, Node
from cfgraph.passes.cluster.encapsulate import ClusterBody
from cfgraph.passes.cluster.formation.compilable import ClusterConstraints, CompilationRules
from cfgraph.passes.cluster.formation.grow import ClusterGrowth, ClusterSizes, node_weight
from cfgraph.passes.cluster.formation.liveness_rules import LivenessRule
from cfgraph.passes.cluster.formation.rejection_reasons import RejectionReason
from cfgraph.passes.cluster.formation.report import ClusterEdge, ClusterReport


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The clusters, in the order in which they run, and a reason for each node in none.

    `absorbed` are the constants that nothing but copies of them is read of.
    """

    growth: ClusterGrowth
    bodies: tuple[ClusterBody, ...]
    outside: Mapping[Node, RejectionReason]
    absorbed: tuple[Node, ...]

    @property
    def clustered(self) -> int:
        """How many nodes are in clusters."""
        return sum(len(body.members) for body in self.bodies) + len(self.absorbed)

    def told(
        self, body: ClusterBody, name: str, inside: Mapping[Node, Mapping[str, str]]
    ) -> ClusterReport:
        """What is said of a cluster before it is made; `inside` has the nodes of regions."""
        agreed, first = self.growth.liveness, body.members[0]
        ops = dict[str, str]()
        for node in body.members:
            ops.update(inside.get(node, {node.name: node.op}))
        return ClusterReport(
            name,
            tuple(ops),
            tuple(node.name for node in body.copies),
            dict(sorted(Counter(ops.values()).items())),
            agreed.frames.of[first].path,
            first.device,
            agreed.text(first),
        )

    def edges(self) -> Iterator[ClusterEdge]:
        """The edges between nodes that compile and are not in one cluster, each with a reason."""
        forming = self.growth
        of, groups = forming.waiting.of, forming.groups
        for node in forming.liveness.frames.order:
            sources = dict.fromkeys([*(item.node for item in node.inputs), *node.controls])
            for source in sources:
                one, other = of[source], of[node]
                if one != other and one in groups and other in groups:
                    reason = forming.rejection(one, other)
                    if reason is not None:
                        yield ClusterEdge(source.name, node.name, reason)


def plan_clusters(
    graph: Graph, liveness: LivenessRule, sizes: ClusterSizes, constraints: ClusterConstraints
) -> ClusterPlan:
    """Form the clusters of a graph whose control flow is lowered."""
    forming = ClusterGrowth(CompilationRules(graph, liveness.frames, constraints), liveness, sizes)
    place = {node: number for number, node in enumerate(liveness.frames.order)}
    outside = dict(forming.reasons)
    bodies = []
    for vertex in sorted(forming.groups, key=forming.waiting.rank.__getitem__):
        members = sorted(forming.waiting.nodes[vertex], key=place.__getitem__)
        size = sum(map(node_weight, members))
        # a region is worth it however few nodes it has: it may run them many times
        if size >= sizes.least or any(constraints.raised.get(node, 0) > 1 for node in members):
            bodies.append(
                ClusterBody(
                    tuple(members),
                    _copied_constants(forming, members, place),
                    forming.cheap_constants,
                )
            )
            continue
        kind = "alone" if len(members) == 1 else "too small"
        text = "no edge joins it to another" if len(members) == 1 else f"{size} that do something"
        outside.update(dict.fromkeys(members, RejectionReason(kind, text, {"size": size})))
    absorbed = _absorbed_constants(forming, bodies, constraints)
    gone = set(absorbed)
    shared = RejectionReason("shared", "others than clusters read it")
    outside.update((node, shared) for node in forming.cheap_constants if node not in gone)
    return ClusterPlan(forming, tuple(bodies), outside, absorbed)


def _copied_constants(
    growth: ClusterGrowth, members: list[Node], place: Mapping[Node, int]
) -> tuple[Node, ...]:
    """The cheap constants that a cluster reads."""
    found = {
        item.node for node in members for item in node.inputs if item.node in growth.cheap_constants
    }
    return tuple(sorted(found, key=place.__getitem__))


def _absorbed_constants(
    growth: ClusterGrowth, bodies: list[ClusterBody], constraints: ClusterConstraints
) -> tuple[Node, ...]:
    """The cheap constants that nobody reads but clusters that have copies."""
    copied: dict[Node, set[Node]] = {}
    for body in bodies:
        for node in body.copies:
            copied.setdefault(node, set()).update(body.members)
    return tuple(
        node
        for node, readers in copied.items()
        if node not in constraints.kept and all(use.node in readers for use in node.uses)
    )
