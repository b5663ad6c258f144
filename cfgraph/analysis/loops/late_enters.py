"""Enters that wait for an Exit of their own loop, which is still running then.

    Enter v ──▶ loop ──▶ Exit v ──▶ y ──▶ Enter c ──▶ the same loop

Such a loop can run: its iterations pass `v` on, up to the last one, before `c` arrives in the
first one. So all its iterations are in flight at once, and no Exit that `y` needs may need `c`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from cfgraph.analysis.loops.frame import Frame, Frames
from cfgraph.ir.graph import Node
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import ENTER, NEXT_ITERATION
from cfgraph.ir.traversal import reachable


@dataclass(frozen=True, slots=True)
class LateEnter:
    """An Enter that waits for Exits of the loop that it enters.

    `waiting` are the nodes that wait for the Enter in some iteration of the loop.
    """

    enter: Node
    exits: tuple[Node, ...]
    frame: Frame
    waiting: Collection[Node]

    @property
    def own_exit(self) -> Node | None:
        """An Exit that also waits for the Enter, unless the loop ends in its first iteration."""
        return next((leaving for leaving in self.exits if leaving in self.waiting), None)


def late_enters(
    graph_frames: Frames, loops: Iterable[Frame], send_of: Mapping[Node, Node]
) -> list[LateEnter]:
    """The Enters of some loops that wait for an Exit of the same instance of the loop.

    `send_of` maps each Recv to its Send.
    """
    recvs: dict[Node, list[Node]] = {}
    for recv, send in send_of.items():
        recvs.setdefault(send, []).append(recv)
    found = []
    for frame in loops:
        order = _OrderInLoop(graph_frames, frame, recvs)
        after = {leaving: reachable([leaving], order.readers_outside) for leaving in frame.exits}
        for enter in frame.enters:
            exits = tuple(leaving for leaving in frame.exits if enter in after[leaving])
            if exits:
                found.append(LateEnter(enter, exits, frame, reachable([enter], order.readers)))
    return found


@dataclass(frozen=True, slots=True)
class _OrderInLoop:
    """The order of nodes while one instance of a loop runs: later iterations of it are included,
    those of outer loops are not.
    """

    frames: Frames
    loop: Frame
    recvs: Mapping[Node, list[Node]]

    def readers(self, node: Node) -> Iterator[Node]:
        """The nodes that wait for a node."""
        if ROLES[node.op] is NEXT_ITERATION:
            continued = self.frames.of[node]
            if continued is not self.loop and self.loop.is_within(continued):
                return
        yield from (use.node for use in node.uses if use.node in self.frames.of)
        yield from self.recvs.get(node, ())

    def readers_outside(self, node: Node) -> Iterator[Node]:
        """The nodes that wait for a node without entering the loop."""
        entered = ROLES[node.op] is ENTER and self.frames.of_outputs[node] is self.loop
        return iter(()) if entered else self.readers(node)
