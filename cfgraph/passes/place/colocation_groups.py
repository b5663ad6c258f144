"""Groups of nodes that must, or preferably should, share a device (disjoint sets with union)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import cached_property

from cfgraph.ir.graph import Graph, Node
from cfgraph.passes.place.op_placement import ColocationEdge, PlacementFacts

_COLOCATION_PREFIX = b"loc:@"


class ColocationGroups:
    """Disjoint groups, each represented by its first node in graph order.

    `edges` are the reasons to share a device, without the `preferences`. Nodes in one sequence of
    `colocated` share a device in addition. `missing` maps each name in a `_class` attribute that is
    not in the graph to the first node with that attribute.
    """

    def __init__(
        self, graph: Graph, facts: PlacementFacts, colocated: Iterable[Sequence[Node]] = ()
    ) -> None:
        self.graph = graph
        self.edges: list[ColocationEdge] = []
        self.preferences: list[ColocationEdge] = []
        self.missing: dict[str, Node] = {}
        self._parent: dict[Node, Node] = {}
        for node in graph:
            if node in facts.special:
                for edge in facts.colocation_edges(node):
                    (self.preferences if edge.is_preference else self.edges).append(edge)
            if "_class" in node.attrs:
                self._add_class_edges(node, node.attrs["_class"])
        for nodes in colocated:
            self.edges.extend(
                ColocationEdge(nodes[0], node, "a rule to colocate") for node in nodes[1:]
            )
        for edge in self.edges:
            self.merge(edge.source, edge.reader)

    @cached_property
    def _position(self) -> dict[Node, int]:
        return {node: number for number, node in enumerate(self.graph)}

    def representative(self, node: Node) -> Node:
        """Return the first node of the group of a node."""
        parent = self._parent
        root = node
        while root in parent:
            root = parent[root]
        while node is not root:  # path compression
            above = parent[node]
            parent[node] = root
            node = above
        return root

    def merge(self, a: Node, b: Node) -> None:
        """Merge the groups of two nodes."""
        a, b = self.representative(a), self.representative(b)
        if a is not b:
            first, second = (a, b) if self._position[a] < self._position[b] else (b, a)
            self._parent[second] = first

    def representatives(self) -> dict[Node, Node]:
        """Return the representative of every node."""
        merged = self._parent
        return {node: self.representative(node) if node in merged else node for node in self.graph}

    def members(self, representative: Node) -> list[Node]:
        """Return the nodes of a group in graph order; walks the whole graph."""
        return [node for node in self.graph if self.representative(node) is representative]

    def explanation(self, a: Node, b: Node) -> str:
        """Describe, edge by edge, why two nodes are in one group."""
        path = self._path(a, b)
        shown = path if len(path) <= 4 else [*path[:2], None, *path[-2:]]
        return ", ".join(
            "…"
            if edge is None
            else f"{edge.source.name} and {edge.reader.name} share {edge.shared}"
            for edge in shown
        )

    def _path(self, a: Node, b: Node) -> list[ColocationEdge]:
        edges_of: dict[Node, list[ColocationEdge]] = {}
        for edge in self.edges:
            edges_of.setdefault(edge.source, []).append(edge)
            edges_of.setdefault(edge.reader, []).append(edge)
        previous: dict[Node, ColocationEdge | None] = {a: None}
        queue = deque([a])
        while queue and b not in previous:
            node = queue.popleft()
            for edge in edges_of.get(node, ()):
                neighbor = edge.reader if edge.source is node else edge.source
                if neighbor not in previous:
                    previous[neighbor] = edge
                    queue.append(neighbor)
        path: list[ColocationEdge] = []
        node = b
        while (last := previous.get(node)) is not None:
            path.append(last)
            node = last.source if last.reader is node else last.reader
        return path[::-1]

    def _add_class_edges(self, node: Node, classes: object) -> None:
        """Read the `_class` of a node; nodes that name the same missing node are one group."""
        for entry in classes if isinstance(classes, Iterable) else ():
            if not isinstance(entry, bytes) or not entry.startswith(_COLOCATION_PREFIX):
                continue
            name = entry[len(_COLOCATION_PREFIX) :].decode("utf-8", "backslashreplace")
            target = self.graph.nodes.get(name) or self.missing.setdefault(name, node)
            if target is not node:
                self.edges.append(ColocationEdge(target, node, "a class"))
