"""Happens-before relation of nodes, and a postorder that visits loops before their Exits.

Within an iteration the edges define the relation. Across iterations, an Exit waits for the values
passed to the loop variables that it depends on: a node that precedes such a NextIteration in any
iteration has run when the loop exits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from cfgraph.analysis.loops.frames import Frame, Frames
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import EXIT, MERGE, NEXT_ITERATION, RECV, SEND
from cfgraph.ir.topological_order import OpRoles

_KEY_ATTRS = ("tensor_name", "send_device", "recv_device")


def unique_sends_by_recv(frames: Frames, roles: OpRoles) -> dict[Node, Node]:
    """The Send of each Recv, if it is the only one with this key and frame."""
    sends: dict[tuple[object, ...], list[Node]] = {}
    recvs: list[tuple[tuple[object, ...], Node]] = []
    for node in frames.of:
        role = roles[node.op]
        if role in (SEND, RECV):
            key = (*(node.attrs.get(name) for name in _KEY_ATTRS), frames.of[node])
            if role is SEND and node.inputs:
                sends.setdefault(key, []).append(node)
            elif role is RECV:
                recvs.append((key, node))
    return {recv: sends[key][0] for key, recv in recvs if len(sends.get(key, ())) == 1}


def loop_aware_postorder(
    graph_frames: Frames, cut: Collection[Output], roles: OpRoles, senders: Mapping[Node, Node]
) -> list[Node]:
    """All nodes in postorder, an Exit after the NextIterations of its frame, a Recv after its Send.

    On a cycle, some node precedes one that it depends on.
    """
    if len(graph_frames.all) == 1 and not senders:
        return list(graph_frames.order)
    walk = _PostorderWalk(graph_frames, cut, roles, senders)
    for node in graph_frames.order:
        walk.visit(node)
    return walk.order


class _PostorderWalk:
    """Depth-first walk against the edges, with an explicit stack."""

    def __init__(
        self,
        graph_frames: Frames,
        cut: Collection[Output],
        roles: OpRoles,
        senders: Mapping[Node, Node],
    ) -> None:
        self.frames = graph_frames
        self.cut = cut
        self.roles = roles
        self.senders = senders
        self.order: list[Node] = []
        self.seen: set[Node] = set()

    def visit(self, start: Node) -> None:
        """Append a node after its dependencies, ignoring back edges of cycles."""
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
        """Dependencies of a node; an Exit also depends on everything that drives its loop."""
        graph_frames, roles = self.frames, self.roles
        role = roles[node.op]
        for tensor in node.inputs:
            source = tensor[0]
            closes = role is MERGE and roles[source.op] is NEXT_ITERATION
            if source in graph_frames.of and not closes and not (self.cut and tensor in self.cut):
                yield source
        for source in node.controls:
            if source in graph_frames.of:
                yield source
        if role is EXIT:
            yield from graph_frames.of[node].next_iterations
            yield from graph_frames.of[node].enters
        elif role is RECV and node in self.senders:
            yield self.senders[node]


_NO_CUT: Collection[object] = ()


class HappensBefore:
    """Map of every node to a bit mask of the `marked` nodes that precede it.

    Two nodes of one loop are compared within one iteration.
    """

    def __init__(self, graph_frames: Frames, marked: Sequence[Node]) -> None:
        self.frames = graph_frames
        self.roles = OpRoles()
        self.senders = unique_sends_by_recv(graph_frames, self.roles)
        self.order = loop_aware_postorder(graph_frames, frozenset(), self.roles, self.senders)
        self.position = {node: index for index, node in enumerate(self.order)}
        self.bit = {node: 1 << index for index, node in enumerate(marked)}
        self.exit_predecessors: dict[Node, list[Node]] = {}
        targets = self._enclosing_loops(marked)
        for frame, members in self._loops() if targets else ():
            if frame in targets:
                self._add_loop_carried_order(frame, members)
        self.of: dict[Node, int] = {}
        for node in self.order:
            mask = 0
            for source in self._sources(node):
                mask |= self.of.get(source, 0) | self.bit.get(source, 0)
            self.of[node] = mask

    def predecessors(self, node: Node) -> int:
        """The marked nodes that precede a node, including the node itself."""
        return self.of.get(node, 0) | self.bit.get(node, 0)

    def _enclosing_loops(self, nodes: Iterable[Node]) -> set[Frame]:
        """The loops that contain one of the nodes, at any depth."""
        enclosing: set[Frame] = set()
        for node in nodes:
            frame = self.frames.of[node]
            while frame.parent is not None and frame not in enclosing:
                enclosing.add(frame)
                frame = frame.parent
        return enclosing

    def _loops(self) -> Iterator[tuple[Frame, list[Node]]]:
        """All loops, inner ones first, with the nodes of the loop and its inner loops, in order."""
        members: dict[Frame, list[Node]] = {frame: list(frame.nodes) for frame in self.frames.all}
        for frame in reversed(self.frames.all):
            if frame.parent is not None:
                nodes = sorted(members.pop(frame), key=self.position.__getitem__)
                yield frame, nodes
                if frame.parent.parent is not None:
                    members[frame.parent].extend(nodes)

    def _sources(self, node: Node) -> Iterator[Node]:
        """The dependencies of a node within an iteration."""
        roles, is_merge = self.roles, self.roles[node.op] is MERGE
        for tensor in node.inputs:
            if not (is_merge and roles[tensor.node.op] is NEXT_ITERATION):
                yield tensor.node
        yield from node.controls
        yield from self.exit_predecessors.get(node, ())
        if node in self.senders:
            yield self.senders[node]

    def _add_loop_carried_order(self, frame: Frame, members: Iterable[Node]) -> None:
        """Find the NextIterations that each Exit of a loop waits for."""
        variables = {node: variable for variable, node in enumerate(frame.merges)}
        reads: dict[Node, int] = {}
        for node in members:
            mask = 1 << variables[node] if node in variables else 0
            for source in self._sources(node):
                mask |= reads.get(source, 0)
            reads[node] = mask
        back = [
            [tensor.node for tensor in merge.inputs if self.roles[tensor.node.op] is NEXT_ITERATION]
            for merge in frame.merges
        ]
        for leaving in frame.exits:
            rounds = _loop_carried_closure(reads.get(leaving, 0), back, reads)
            self.exit_predecessors[leaving] = [
                node for variable in rounds for node in back[variable]
            ]


def _loop_carried_closure(mask: int, back: list[list[Node]], reads: dict[Node, int]) -> list[int]:
    """The variables of a mask and, transitively, all variables that they are computed from."""
    todo, seen = mask, 0
    closure: list[int] = []
    while todo:
        bit = todo & -todo
        variable = bit.bit_length() - 1
        closure.append(variable)
        seen |= bit
        for node in back[variable]:
            todo |= reads.get(node, 0)
        todo &= ~seen
    return closure
