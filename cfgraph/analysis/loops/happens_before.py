"""Happens-before relation of nodes, and a postorder that visits loops before their Exits.

Within an iteration the edges define the relation. Across iterations, an Exit waits for the values
passed to the loop variables that it depends on: a node that precedes such a NextIteration in any
iteration has run when the loop exits. A node waits for those of the previous iteration through the
loop variables that it depends on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain, compress
from operator import and_, or_

from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import ENTER, EXIT, MERGE, NEXT_ITERATION, RECV, SEND

_KEY_ATTRS = ("tensor_name", "send_device", "recv_device")


def unique_sends_by_recv(frames: Frames) -> dict[Node, Node]:
    """The Send of each Recv, if it is the only one with this key and frame."""
    sends: dict[tuple[object, ...], list[Node]] = {}
    recvs: list[tuple[tuple[object, ...], Node]] = []
    for node in frames.of:
        role = ROLES[node.op]
        if role in (SEND, RECV):
            key = (*(node.attrs.get(name) for name in _KEY_ATTRS), frames.of[node])
            if role is SEND and node.inputs:
                sends.setdefault(key, []).append(node)
            elif role is RECV:
                recvs.append((key, node))
    return {recv: sends[key][0] for key, recv in recvs if len(sends.get(key, ())) == 1}


def loop_aware_postorder(
    graph_frames: Frames, cut: Collection[Output], senders: Mapping[Node, Node]
) -> list[Node]:
    """All nodes in postorder, an Exit after the NextIterations of its frame, a Recv after its Send.

    On a cycle, some node precedes one that it depends on.
    """
    if len(graph_frames.all) == 1 and not senders:
        return list(graph_frames.order)
    walk = _PostorderWalk(graph_frames, cut, senders)
    for node in graph_frames.order:
        walk.visit(node)
    return walk.order


class _PostorderWalk:
    """Depth-first walk against the edges, with an explicit stack."""

    def __init__(
        self,
        graph_frames: Frames,
        cut: Collection[Output],
        senders: Mapping[Node, Node],
    ) -> None:
        self.frames = graph_frames
        self.cut = cut
        self.senders = senders
        self.order: list[Node] = []
        self.seen: set[Node] = set()
        # what drives each loop; the Exits share an iterator, since all that it yields is seen
        self._drivers: dict[Frame, Iterator[Node]] = {}

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
        graph_frames = self.frames
        role = ROLES[node.op]
        for tensor in node.inputs:
            source = tensor[0]
            closes = role is MERGE and ROLES[source.op] is NEXT_ITERATION
            if source in graph_frames.of and not closes and not (self.cut and tensor in self.cut):
                yield source
        for source in node.controls:
            if source in graph_frames.of:
                yield source
        if role is EXIT:
            frame = graph_frames.of[node]
            drivers = self._drivers.get(frame)
            if drivers is None:
                drivers = self._drivers[frame] = chain(frame.next_iterations, frame.enters)
            yield from drivers
        elif role is RECV and node in self.senders:
            yield self.senders[node]


_NO_CUT: Collection[object] = ()


class HappensBefore:
    """Map of every node to a bit mask of the `marked` nodes that precede it.

    Two nodes of one loop are compared within one iteration; `previous_iteration` has the order
    between an iteration and the next one.
    """

    def __init__(self, graph_frames: Frames, marked: Sequence[Node]) -> None:
        self.frames = graph_frames
        self.senders = unique_sends_by_recv(graph_frames)
        self.order = loop_aware_postorder(graph_frames, frozenset(), self.senders)
        self.position = {node: index for index, node in enumerate(self.order)}
        self.bit = {node: 1 << index for index, node in enumerate(marked)}
        self.exit_predecessors: dict[Node, list[Node]] = {}
        # by loop: the variables that each marked node depends on, as a bit mask of its Merges
        self._variables: dict[Frame, dict[Node, int]] = {}
        # by loop: the marked nodes that precede the next value of each variable
        self._before_variables: dict[Frame, list[int]] = {}
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
        """The marked nodes that precede a node, and the node itself, as a bit mask."""
        return self.of.get(node, 0) | self.bit.get(node, 0)

    def previous_iteration(self, frame: Frame, node: Node) -> int:
        """Mask of the marked nodes that precede a marked node of a loop in the previous iteration.

        A node waits for the back edges of the loop variables that it depends on. A node that
        depends on none starts with the iteration, which each device of the loop starts alone.
        """
        by_variable = self._before_variables.get(frame)
        if by_variable is None:
            by_variable = [self._before_variable(merge) for merge in frame.merges]
            self._before_variables[frame] = by_variable
        variables = self._variables[frame][node]
        return reduce(or_, compress(by_variable, map(int, reversed(f"{variables:b}"))), 0)

    def _before_variable(self, merge: Node) -> int:
        """The marked nodes that precede the value of a loop variable for the next iteration."""
        back = self._back_edges(merge)
        if back:
            return reduce(and_, map(self.predecessors, back), -1)
        # a variable that only enters has no next value to depend on
        return -1 if all(ROLES[tensor.node.op] is ENTER for tensor in merge.inputs) else 0

    def back_edge(self, frame: Frame, node: Node) -> Node | None:
        """A NextIteration whose value a marked node of a loop depends on, if there is one."""
        variables = self._variables[frame][node]
        for index, merge in enumerate(frame.merges):
            if variables >> index & 1 and (back := self._back_edges(merge)):
                return back[0]
        return None

    def _back_edges(self, merge: Node) -> list[Node]:
        sources = (tensor.node for tensor in merge.inputs)
        return [source for source in sources if ROLES[source.op] is NEXT_ITERATION]

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
        is_merge = ROLES[node.op] is MERGE
        for tensor in node.inputs:
            if not (is_merge and ROLES[tensor.node.op] is NEXT_ITERATION):
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
        self._variables[frame] = {node: mask for node, mask in reads.items() if node in self.bit}
        back = [self._back_edges(merge) for merge in frame.merges]
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
