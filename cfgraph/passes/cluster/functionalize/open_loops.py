"""Loops that are not functionalized yet, innermost first, over one analysis of the graph.

A functionalized loop is a call in the frame around it. All that changes there are the call and
the Exits, which are Identities of its results: frames and conditions of all other nodes remain, so
that the outer loop can follow without another analysis."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from cfgraph.analysis.loops.frames import Frame, Frames, nodes_by_frame
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.traversal import topological_order


class OpenLoops:
    """The loops of a graph; `order` has the nodes of each frame in topological order."""

    def __init__(self, graph: Graph, frames: Frames) -> None:
        self.order: dict[Frame, Sequence[Node]] = dict(nodes_by_frame(frames))
        self._graph = graph
        self._frames = frames
        self._loops = frames.all[1:]
        self._inner = Counter(frame.parent for frame in self._loops)
        self._number = {frame: number for number, frame in enumerate(self._loops)}
        self._outer: list[Frame] = []
        self._added: defaultdict[Frame, list[Node]] = defaultdict(list)
        self._position = {node: position for position, node in enumerate(graph)}

    def innermost(self) -> Iterator[Frame]:
        """Yield the loops without loops in them; a loop follows when all in it were closed."""
        level = [frame for frame in self._loops if not self._inner[frame]]
        while level:
            yield from level
            level, self._outer = sorted(self._outer, key=self._number.__getitem__), []

    def close(self, frame: Frame, call: Node) -> None:
        """Record the call that a loop became: it runs in the outer frame, as its Exits do."""
        parent = frame.parent
        assert parent is not None
        new = [*frame.exits, call]
        self._frames.of.update(dict.fromkeys(new, parent))
        self._frames.of_outputs.update(dict.fromkeys(new, parent))
        self._position[call] = len(self._position)
        self._added[parent] += new
        self._inner[parent] -= 1
        if not self._inner[parent] and parent.parent is not None:
            self._outer.append(parent)
            self._list_nodes(parent)

    def _list_nodes(self, frame: Frame) -> None:
        """List the nodes of a frame again, after the loops in it became calls."""
        nodes = [*frame.nodes, *self._added.pop(frame)]
        present = [node for node in nodes if self._graph.nodes.get(node.name) is node]
        frame.nodes = sorted(present, key=self._position.__getitem__)
        self.order[frame] = topological_order(frame.nodes).nodes
