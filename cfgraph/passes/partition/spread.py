"""Which loops may be spread over devices: those that their LoopCond drives alone.

A device without the LoopCond runs as many iterations as the LoopCond says. So every NextIteration
must be dead where the LoopCond is false, and every value must be there in every iteration: an
Enter that is not constant and a NextIteration feed nothing but the Merge of a loop variable.
"""

from __future__ import annotations

from cfgraph.analysis.frames import Frame, Frames
from cfgraph.ir.graph import CONTROL, Node, Output
from cfgraph.ir.walk import Roles
from cfgraph.ops.op import Op, lookup


class Loops:
    """What there is to know of the loops of a graph before it is cut."""

    def __init__(self, found: Frames) -> None:
        self.found = found
        self.roles = Roles()
        self._dead_with: dict[Node, int] | None = None

    def is_variable(self, node: Node) -> bool:
        """True for the Merge of a loop variable: a NextIteration feeds it."""
        roles = self.roles
        return roles[node.op] == "merge" and any(
            roles[item.node.op] == "next_iteration" for item in node.inputs
        )

    def is_driven(self, switch: Node) -> bool:
        """True for a Switch on the predicate of the loop that it is in."""
        frame = self.found.of[switch]
        if self.roles[switch.op] != "switch" or not frame.loop_conds or len(switch.inputs) < 2:
            return False
        return self._origin(switch.inputs[1]) == self._origin(frame.loop_conds[0].output())

    def _origin(self, item: Output) -> Output:
        """The tensor that an Identity or a LoopCond hands on."""
        while item.node.inputs and self.hands_on(item):
            item = item.node.inputs[item.port]
        return item

    def hands_on(self, item: Output) -> bool:
        """True if an output is one of the node's inputs, unchanged."""
        op: type[Op] | None = lookup(item.node.op)
        return op is not None and (op.forwards or op.role == "loop_cond")

    def must_stay_together(self, frame: Frame) -> bool:
        """True for a loop whose devices could not tell when it ends."""
        if not frame.loop_conds:
            return True
        if not all(map(self._starts_variable, frame.enters)):
            return True
        return not all(self._goes_on(node, frame) for node in frame.next_iterations)

    def _starts_variable(self, enter: Node) -> bool:
        return bool(enter.attr("is_constant")) or self._feeds_variables(enter)

    def _goes_on(self, node: Node, frame: Frame) -> bool:
        return bool(self._governed(node) >> frame.depth & 1) and self._feeds_variables(node)

    def _feeds_variables(self, node: Node) -> bool:
        return all(use.slot != CONTROL and self.is_variable(use.node) for use in node.uses)

    # -- which LoopConds, being false, make a node dead -------------------------------------------

    def _governed(self, node: Node) -> int:
        """The depths (bits) of the frames around a node whose false LoopCond makes it dead."""
        if self._dead_with is None:
            self._dead_with = {}
            for each in self.found.order:
                self._dead_with[each] = self._bits(each)
        return self._dead_with[node]

    def _bits(self, node: Node) -> int:
        of, role = self.found.of, self.roles[node.op]
        frame = of[node]
        if frame is self.found.root or role == "trigger":
            return 0
        bits = self._all(node) if role == "merge" else self._any(node)
        return bits & ((1 << frame.depth) - 1) if role == "exit" else bits

    def _any(self, node: Node) -> int:
        known = self._dead_with
        assert known is not None
        bits = 0
        for item in node.inputs:
            bits |= self._output(item)
        for control in node.controls:
            bits |= known.get(control, 0)
        return bits

    def _all(self, merge: Node) -> int:
        forward = [i for i in merge.inputs if self.roles[i.node.op] != "next_iteration"]
        bits = -1
        for item in forward:
            bits &= self._output(item)
        return bits if forward else 0

    def _output(self, item: Output) -> int:
        known = self._dead_with
        assert known is not None
        bits = known.get(item.node, 0)
        if item.port == 1 and self.is_driven(item.node):
            bits |= 1 << self.found.of[item.node].depth
        return bits
