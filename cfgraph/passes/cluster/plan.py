"""Which clusters a graph will have, before anything is changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cfgraph.ir.graph import Graph, Node
from cfgraph.passes.cluster.agreement import Agreement
from cfgraph.passes.cluster.compilable import Compilable, Wishes
from cfgraph.passes.cluster.encapsulate import Body
from cfgraph.passes.cluster.formation import Formation, Sizes, weight
from cfgraph.passes.cluster.reasons import Reason
from cfgraph.passes.cluster.report import Cluster, Edge


@dataclass(frozen=True, slots=True)
class Plan:
    """The clusters, in the order in which they run, and a reason for each node in none.

    `absorbed` are the constants that nothing but copies of them is read of.
    """

    formation: Formation
    bodies: tuple[Body, ...]
    outside: Mapping[Node, Reason]
    absorbed: tuple[Node, ...]

    @property
    def clustered(self) -> int:
        """How many nodes are in clusters."""
        return sum(len(body.members) for body in self.bodies) + len(self.absorbed)

    def told(self, body: Body, name: str, inside: Mapping[Node, Mapping[str, str]]) -> Cluster:
        """What is said of a cluster before it is made; `inside` has the nodes of regions."""
        agreed, first = self.formation.agreed, body.members[0]
        ops = dict[str, str]()
        for node in body.members:
            ops.update(inside.get(node, {node.name: node.op}))
        return Cluster(
            name,
            tuple(ops),
            tuple(node.name for node in body.copies),
            dict(sorted(Counter(ops.values()).items())),
            agreed.frames.of[first].path,
            first.device,
            agreed.text(first),
        )

    def edges(self) -> Iterator[Edge]:
        """The edges between nodes that compile and are not in one cluster, each with a reason."""
        forming = self.formation
        of, groups = forming.waiting.of, forming.groups
        for node in forming.agreed.frames.order:
            sources = dict.fromkeys([*(item.node for item in node.inputs), *node.controls])
            for source in sources:
                one, other = of[source], of[node]
                if one != other and one in groups and other in groups:
                    reason = forming.objection(one, other)
                    if reason is not None:
                        yield Edge(source.name, node.name, reason)


def planned(graph: Graph, agreed: Agreement, sizes: Sizes, wishes: Wishes) -> Plan:
    """Form the clusters of a graph whose control flow is lowered."""
    forming = Formation(Compilable(graph, agreed.frames, wishes), agreed, sizes)
    place = {node: number for number, node in enumerate(agreed.frames.order)}
    outside = dict(forming.reasons)
    bodies = []
    for vertex in sorted(forming.groups, key=forming.waiting.rank.__getitem__):
        members = sorted(forming.waiting.nodes[vertex], key=place.__getitem__)
        size = sum(map(weight, members))
        # a region is worth it however few nodes it has: it may run them many times
        if size >= sizes.least or any(wishes.raised.get(node, 0) > 1 for node in members):
            bodies.append(Body(tuple(members), _copies(forming, members, place), forming.cheap))
            continue
        kind = "alone" if len(members) == 1 else "too small"
        text = "no edge joins it to another" if len(members) == 1 else f"{size} that do something"
        outside.update(dict.fromkeys(members, Reason(kind, text, {"size": size})))
    absorbed = _absorbed(forming, bodies, wishes)
    gone = set(absorbed)
    shared = Reason("shared", "others than clusters read it")
    outside.update((node, shared) for node in forming.cheap if node not in gone)
    return Plan(forming, tuple(bodies), outside, absorbed)


def _copies(forming: Formation, members: list[Node], place: Mapping[Node, int]) -> tuple[Node, ...]:
    """The cheap constants that a cluster reads."""
    found = {item.node for node in members for item in node.inputs if item.node in forming.cheap}
    return tuple(sorted(found, key=place.__getitem__))


def _absorbed(forming: Formation, bodies: list[Body], wishes: Wishes) -> tuple[Node, ...]:
    """The cheap constants that nobody reads but clusters that have copies."""
    copied: dict[Node, set[Node]] = {}
    for body in bodies:
        for node in body.copies:
            copied.setdefault(node, set()).update(body.members)
    return tuple(
        node
        for node, readers in copied.items()
        if node not in wishes.kept and all(use.node in readers for use in node.uses)
    )
