"""The order in which predicates are found: sources first, and a loop before its Exits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from cfgraph.analysis.frames import Frames
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.walk import Roles


def loops_first(
    found: Frames, cut: Collection[Output], roles: Roles, senders: Mapping[Node, Node]
) -> list[Node]:
    """All nodes: an Exit after the NextIterations of its frame, a Recv after its Send.

    Where that makes a cycle, some node comes before what it needs.
    """
    if len(found.all) == 1 and not senders:
        return list(found.order)
    walk = _Walk(found, cut, roles, senders)
    for node in found.order:
        walk.visit(node)
    return walk.order


class _Walk:
    """A depth-first walk against the edges, with its own stack."""

    def __init__(
        self,
        found: Frames,
        cut: Collection[Output],
        roles: Roles,
        senders: Mapping[Node, Node],
    ) -> None:
        self.found = found
        self.cut = cut
        self.roles = roles
        self.senders = senders
        self.order: list[Node] = []
        self.seen: set[Node] = set()

    def visit(self, start: Node) -> None:
        """Place a node after all that it needs; what waits for itself is placed anyhow."""
        if start in self.seen:
            return
        self.seen.add(start)
        trail: list[tuple[Node, Iterator[Node]]] = [(start, self.needs(start))]
        while trail:
            for source in trail[-1][1]:
                if source not in self.seen:
                    self.seen.add(source)
                    trail.append((source, self.needs(source)))
                    break
            else:
                self.order.append(trail.pop()[0])

    def needs(self, node: Node) -> Iterator[Node]:
        """What must come first: of an Exit all that decides whether its loop goes on."""
        found, roles = self.found, self.roles
        role = roles[node.op]
        for item in node.inputs:
            source = item[0]
            closes = role == "merge" and roles[source.op] == "next_iteration"
            if source in found.of and not closes and not (self.cut and item in self.cut):
                yield source
        for source in node.controls:
            if source in found.of:
                yield source
        if role == "exit":
            yield from found.of[node].next_iterations
            yield from found.of[node].enters
        elif role == "recv" and node in self.senders:
            yield self.senders[node]
