"""The order in which TensorFlow's analysis of deadness visits nodes: loop after loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import groupby

from cfgraph.analysis.frames import Frame, Frames
from cfgraph.errors import Unsupported
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.walk import Roles


def place(node: Node, found: Frames) -> Frame:
    """The frame that TensorFlow counts a node to: for an Enter the one it leads into."""
    frame = found.of[node]
    inside = found.of_outputs[node]
    return inside if inside.depth > frame.depth else frame


def outermost(frame: Frame) -> Frame:
    """The loop around a frame that is in no other; the root frame itself."""
    while frame.parent is not None and frame.parent.parent is not None:
        frame = frame.parent
    return frame


def batches(graph: Graph, found: Frames) -> Iterator[tuple[Frame, list[Node]]]:
    """All nodes, sources first, by outermost loops; nodes in no loop have batches of their own.

    Raises Unsupported where two loops wait for each other, which TensorFlow does not take.
    """
    order = _Order(graph, found).run()
    for loop, nodes in groupby(order, lambda node: outermost(place(node, found))):
        yield loop, list(nodes)


class _Order:
    """Breadth first; the Enters of a loop wait for each other, its Exits for all that is inside."""

    def __init__(self, graph: Graph, found: Frames) -> None:
        self.graph = graph
        self.found = found
        self.roles = Roles()
        self.ready: deque[Node] = deque()
        self.enters: dict[Frame, list[Node]] = {}
        self.exits: list[Node] = []

    def run(self) -> list[Node]:
        order: list[Node] = []
        missing = {node: self.waits(node) for node in self.graph}
        for node, count in missing.items():
            if not count:
                self.park(node)
        while self.ready or self.release():
            node = self.ready.popleft()
            order.append(node)
            for use in node.uses:
                if use.slot < 0 or not self.is_back_edge(node, use.node):
                    missing[use.node] -= 1
                    if not missing[use.node]:
                        self.park(use.node)
        if len(order) < len(missing):
            left = next(node for node in missing if node not in set(order))
            message = "loops wait for each other, which TensorFlow's analysis does not take"
            raise Unsupported(message, node=left)
        return order

    def waits(self, node: Node) -> int:
        """The number of edges into a node that come first."""
        data = sum(not self.is_back_edge(item.node, node) for item in node.inputs)
        return data + len(node.controls)

    def is_back_edge(self, source: Node, reader: Node) -> bool:
        roles = self.roles
        return roles[source.op] == "next_iteration" and roles[reader.op] == "merge"

    def park(self, node: Node) -> None:
        """A node has all it needs; at the border of an outermost loop it still waits."""
        inside = place(node, self.found)
        role = self.roles[node.op]
        if inside.depth == 1 and role == "enter":
            self.enters.setdefault(inside, []).append(node)
        elif inside.depth == 1 and role == "exit":
            self.exits.append(node)
        else:
            self.ready.append(node)

    def release(self) -> bool:
        """Nothing else is ready: let Exits go, or the Enters of one loop."""
        if self.exits:
            self.ready.extend(self.exits)
            self.exits = []
            return True
        for frame, waiting in self.enters.items():
            if len(waiting) == len(frame.enters):
                self.ready.extend(self.enters.pop(frame))
                return True
        return False
