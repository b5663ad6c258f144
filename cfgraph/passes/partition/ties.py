"""Control edges into a loop that need not cross: they hang on the local driver instead.

What waits for the pivot of the body (an Identity of a Switch on the predicate) waits for the same
side of the local driver; what waits for the Merge of a loop variable, for the local gate. The
first is as live, and as late, as what it stands for if the LoopCond depends on that variable. The
gate of a control loop is live even if the loop is entered dead, and it waits for no variable. So a
constant Enter tells it whether the loop is alive, and an edge that may order effects crosses.
"""

from __future__ import annotations

from collections.abc import Callable

from cfgraph.analysis.loops.frames import Frame
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.passes.partition.alive import ALWAYS
from cfgraph.passes.partition.effects import Effects
from cfgraph.passes.partition.machines import Machines
from cfgraph.passes.partition.maker import Maker
from cfgraph.passes.partition.spread import Loops

EnteredAt = Callable[[Node, str], Output]


class Ties:
    """Finds for a node and a device what can be waited for there in its stead."""

    def __init__(self, graph: Graph, maker: Maker, loops: Loops, machines: Machines) -> None:
        self._graph = graph
        self._maker = maker
        self._loops = loops
        self._machines = machines
        self._effects: Effects | None = None

    def local(
        self, node: Node, device: str, reader: Node, alive_at: EnteredAt
    ) -> list[Node] | None:
        """What `reader` may wait for on its device; None if the edge must cross.

        `alive_at(enter, device)` is a constant tensor in the loop there, live if `enter` is.
        """
        frame = self._loops.found.of[node]
        if frame.parent is None:
            return None
        if self._loops.is_variable(node):
            return self._gate(node, frame, device, reader, alive_at)
        pivot = self._loops.pivot(node)
        if pivot is None:
            return None
        merge = pivot.node.inputs[0].node
        machines = self._machines
        if not machines.is_before_condition(merge, frame) and self._ordered(merge, reader):
            return None
        return [machines.side(frame, device, pivot.port)]

    def _gate(
        self, merge: Node, frame: Frame, device: str, reader: Node, alive_at: EnteredAt
    ) -> list[Node] | None:
        if self._ordered(merge, reader):
            return None
        alive, gate = self._loops.alive, self._machines.gate(frame, device)
        is_own = not self._machines.is_control_loop(frame, device)
        have, wanted = alive.of(gate) if is_own else ALWAYS, alive.of(merge)
        if have == wanted:
            return [gate]
        if not have <= wanted:
            return None
        enter = next(i.node for i in merge.inputs if self._loops.roles[i.node.op] == "enter")
        return [gate, alive_at(enter, device).node]

    def _ordered(self, first: Node, second: Node) -> bool:
        if self._effects is None:
            self._effects = Effects(self._graph)
        return self._effects.are_ordered(first, second)
