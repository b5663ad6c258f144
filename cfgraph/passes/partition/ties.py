"""Control edges into a loop that need not cross: they hang on the local driver instead.

What waits for the pivot of the body (an Identity of a Switch on the predicate) waits for the same
side of the local driver; what waits for the Merge of a loop variable, for the local gate. The
first is as live, and as late, as what it stands for if the LoopCond depends on that variable. The
gate of a control loop is live even if the loop is entered dead, and it waits for no variable. So a
constant Enter tells it whether the loop is alive, and an edge that may order effects crosses.
"""

from __future__ import annotations

from collections.abc import Callable

from cfgraph.analysis.frames import Frame
from cfgraph.ir.graph import Graph, Node, Output
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
        self._certain: set[Node] | None = None

    def local(self, node: Node, device: str, reader: Node, alive: EnteredAt) -> list[Node] | None:
        """What `reader` may wait for on its device; None if the edge must cross.

        `alive(enter, device)` is a constant tensor in the loop there, live if `enter` is.
        """
        frame = self._loops.found.of[node]
        if frame.parent is None:
            return None
        if self._loops.is_variable(node):
            return self._gate(node, frame, device, reader, alive)
        pivot = self._pivot(node)
        if pivot is None:
            return None
        merge = pivot.node.inputs[0].node
        machines = self._machines
        if not machines.is_before_condition(merge, frame) and self._ordered(merge, reader):
            return None
        return [machines.side(frame, device, pivot.port)]

    def _gate(
        self, merge: Node, frame: Frame, device: str, reader: Node, alive: EnteredAt
    ) -> list[Node] | None:
        if self._ordered(merge, reader):
            return None
        gate = self._machines.gate(frame, device)
        if not self._machines.is_control_loop(frame, device):
            return [gate]
        enter = next(i.node for i in merge.inputs if self._loops.roles[i.node.op] == "enter")
        if enter in self._certainly_live():
            return [gate]
        return [gate, alive(enter, device).node]

    def _pivot(self, node: Node) -> Output | None:
        """The output of the Switch on the loop's predicate that a node hands on and no more."""
        loops, here = self._loops, node
        while not here.controls and len(here.inputs) == 1 and loops.hands_on(here.output()):
            item = here.inputs[0]
            here = item.node
            if loops.is_driven(here):
                is_plain = not here.controls and loops.is_variable(here.inputs[0].node)
                return item if is_plain else None
        return None

    def _ordered(self, first: Node, second: Node) -> bool:
        if self._effects is None:
            self._effects = Effects(self._graph)
        return self._effects.are_ordered(first, second)

    # -- what is never dead -----------------------------------------------------------------------

    def _certainly_live(self) -> set[Node]:
        """The nodes that are live in each iteration of the loops around them, or in their last."""
        if self._certain is None:
            self._certain = certain = set[Node]()
            for node in self._loops.found.order:
                if self._is_certain(node, certain):
                    certain.add(node)
        return self._certain

    def _is_certain(self, node: Node, certain: set[Node]) -> bool:
        roles = self._loops.roles
        role = roles[node.op]
        if role in ("switch", "recv"):
            return False
        if role == "exit":
            switch = node.inputs[0].node
            return self._loops.is_driven(switch) and switch.inputs[0].node in certain
        forward = [i.node for i in node.inputs if roles[i.node.op] != "next_iteration"]
        if role == "merge":
            return self._loops.is_variable(node) and all(map(certain.__contains__, forward))
        if role == "trigger":
            return True
        return all(item.node in certain for item in node.inputs) and all(
            control in certain
            or (roles[control.op] == "switch" and self._fires_live(control, certain))
            for control in node.controls
        )

    def _fires_live(self, switch: Node, certain: set[Node]) -> bool:
        """A Switch whose inputs are live is live to who waits for it, whichever side is taken."""
        return all(item.node in certain for item in switch.inputs)
