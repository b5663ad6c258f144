"""Groups of nodes that must, or preferably should, share a device: disjoint sets with union."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import cached_property

from cfgraph.ir.graph import Graph, Node
from cfgraph.passes.place.op_placement import ColocationEdge, PlacementFacts

_COLOCATION_PREFIX = b"loc:@"


class ColocationGroups:
    """The sets; each is known by its first node in the order of the graph.

    `together` are more nodes that go together.
    `ties` are the reasons, loose ones apart; `absent` are the nodes to be beside that are not in
    the graph, each with the first node that names it.
    """

    def __init__(
        self, graph: Graph, facts: PlacementFacts, together: Iterable[Sequence[Node]] = ()
    ) -> None:
        self.graph = graph
        self.ties: list[ColocationEdge] = []
        self.loose: list[ColocationEdge] = []
        self.absent: dict[str, Node] = {}
        self._parent: dict[Node, Node] = {}
        for node in graph:
            if node in facts.special:
                for tie in facts.ties(node):
                    (self.loose if tie.loose else self.ties).append(tie)
            if "_class" in node.attrs:
                self._beside(node, node.attrs["_class"])
        for nodes in together:
            self.ties.extend(
                ColocationEdge(nodes[0], node, "a rule to colocate") for node in nodes[1:]
            )
        for tie in self.ties:
            self.join(tie.source, tie.reader)

    @cached_property
    def _place(self) -> dict[Node, int]:
        return {node: place for place, node in enumerate(self.graph)}

    def of(self, node: Node) -> Node:
        """The first node of the set that a node is in."""
        parent = self._parent
        top = node
        while top in parent:
            top = parent[top]
        while node is not top:  # so that a chain is walked once
            above = parent[node]
            parent[node] = top
            node = above
        return top

    def join(self, one: Node, other: Node) -> None:
        """Make one set of two."""
        a, b = self.of(one), self.of(other)
        if a is not b:
            first, second = (a, b) if self._place[a] < self._place[b] else (b, a)
            self._parent[second] = first

    def firsts(self) -> dict[Node, Node]:
        """The first node of the set of every node."""
        joined = self._parent
        return {node: self.of(node) if node in joined else node for node in self.graph}

    def members(self, first: Node) -> list[Node]:
        """The nodes of a set, in the order of the graph; takes a walk through the graph."""
        return [node for node in self.graph if self.of(node) is first]

    def why(self, one: Node, other: Node) -> str:
        """What ties two nodes of a set to each other, edge by edge, as a text."""
        path = self._path(one, other)
        shown = path if len(path) <= 4 else [*path[:2], None, *path[-2:]]
        return ", ".join(
            "…" if tie is None else f"{tie.source.name} and {tie.reader.name} share {tie.why}"
            for tie in shown
        )

    def _path(self, one: Node, other: Node) -> list[ColocationEdge]:
        near: dict[Node, list[ColocationEdge]] = {}
        for tie in self.ties:
            near.setdefault(tie.source, []).append(tie)
            near.setdefault(tie.reader, []).append(tie)
        came: dict[Node, ColocationEdge | None] = {one: None}
        queue = deque([one])
        while queue and other not in came:
            node = queue.popleft()
            for tie in near.get(node, ()):
                reached = tie.reader if tie.source is node else tie.source
                if reached not in came:
                    came[reached] = tie
                    queue.append(reached)
        path: list[ColocationEdge] = []
        node = other
        while (tie_here := came.get(node)) is not None:
            path.append(tie_here)
            node = tie_here.source if tie_here.reader is node else tie_here.reader
        return path[::-1]

    def _beside(self, node: Node, constraints: object) -> None:
        """Read the `_class` of a node; those who name the same absent node stay together."""
        for wish in constraints if isinstance(constraints, Iterable) else ():
            if not isinstance(wish, bytes) or not wish.startswith(_COLOCATION_PREFIX):
                continue
            name = wish[len(_COLOCATION_PREFIX) :].decode("utf-8", "backslashreplace")
            other = self.graph.nodes.get(name) or self.absent.setdefault(name, node)
            if other is not node:
                self.ties.append(ColocationEdge(other, node, "a class"))
