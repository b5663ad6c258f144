"""What comes before what: which of some nodes have run when a node runs.

Within an iteration that is said by the edges. Across iterations, an Exit waits for what is handed
on to variables that it hangs on: whatever comes before such a NextIteration, in any iteration, has
run when the loop is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from cfgraph.analysis.deadness.order import loops_first
from cfgraph.analysis.deadness.rendezvous import senders
from cfgraph.analysis.frames import Frame, Frames
from cfgraph.ir.graph import Node
from cfgraph.ir.walk import Roles

_NO_CUT: Collection[object] = ()


class Before:
    """For every node, as the bits of a number, which of the `marked` nodes come before it.

    Two nodes of one loop are compared within an iteration of it.
    """

    def __init__(self, found: Frames, marked: Sequence[Node]) -> None:
        self.found = found
        self.roles = Roles()
        self.senders = senders(found, self.roles)
        self.order = loops_first(found, frozenset(), self.roles, self.senders)
        self.place = {node: place for place, node in enumerate(self.order)}
        self.bit = {node: 1 << place for place, node in enumerate(marked)}
        self.leaves_after: dict[Node, list[Node]] = {}
        wanted = self._around(marked)
        for frame, inside in self._loops() if wanted else ():
            if frame in wanted:
                self._wait_for_rounds(frame, inside)
        self.of: dict[Node, int] = {}
        for node in self.order:
            mask = 0
            for source in self._sources(node):
                mask |= self.of.get(source, 0) | self.bit.get(source, 0)
            self.of[node] = mask

    def up_to(self, node: Node) -> int:
        """The marked nodes that come before a node, and the node itself if it is one."""
        return self.of.get(node, 0) | self.bit.get(node, 0)

    def _around(self, nodes: Iterable[Node]) -> set[Frame]:
        """The loops that some nodes are in, at any depth."""
        around: set[Frame] = set()
        for node in nodes:
            frame = self.found.of[node]
            while frame.parent is not None and frame not in around:
                around.add(frame)
                frame = frame.parent
        return around

    def _loops(self) -> Iterator[tuple[Frame, list[Node]]]:
        """All loops, inner ones first, with their nodes and those of the loops inside, in order."""
        inside: dict[Frame, list[Node]] = {frame: list(frame.nodes) for frame in self.found.all}
        for frame in reversed(self.found.all):
            if frame.parent is not None:
                nodes = sorted(inside.pop(frame), key=self.place.__getitem__)
                yield frame, nodes
                if frame.parent.parent is not None:
                    inside[frame.parent].extend(nodes)

    def _sources(self, node: Node) -> Iterator[Node]:
        """What a node waits for, but for what comes from the iteration before."""
        roles, is_merge = self.roles, self.roles[node.op] == "merge"
        for item in node.inputs:
            if not (is_merge and roles[item.node.op] == "next_iteration"):
                yield item.node
        yield from node.controls
        yield from self.leaves_after.get(node, ())
        if node in self.senders:
            yield self.senders[node]

    def _wait_for_rounds(self, frame: Frame, inside: Iterable[Node]) -> None:
        """Find the NextIterations that each Exit of a loop waits for."""
        variables = {node: place for place, node in enumerate(frame.merges)}
        reads: dict[Node, int] = {}
        for node in inside:
            mask = 1 << variables[node] if node in variables else 0
            for source in self._sources(node):
                mask |= reads.get(source, 0)
            reads[node] = mask
        back = [
            [item.node for item in merge.inputs if self.roles[item.node.op] == "next_iteration"]
            for merge in frame.merges
        ]
        for leaving in frame.exits:
            rounds = _closure(reads.get(leaving, 0), back, reads)
            self.leaves_after[leaving] = [node for place in rounds for node in back[place]]


def _closure(mask: int, back: list[list[Node]], reads: dict[Node, int]) -> list[int]:
    """The variables of a mask, and all those that they get their values from in time."""
    todo, seen = mask, 0
    places: list[int] = []
    while todo:
        bit = todo & -todo
        place = bit.bit_length() - 1
        places.append(place)
        seen |= bit
        for node in back[place]:
            todo |= reads.get(node, 0)
        todo &= ~seen
    return places
