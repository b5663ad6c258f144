"""The loops that may be distributed over devices: those driven by their LoopCond alone.

A device without the LoopCond runs as many iterations as the LoopCond says and waits for every value
in each of them. All variables must therefore be live when the LoopCond is, and continue exactly
where it is true. A non-constant Enter, or a NextIteration, must feed nothing but variables."""

from __future__ import annotations

from functools import cached_property

from cfgraph.analysis.loops.frames import Frame, Frames
from cfgraph.ir.graph import CONTROL, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.topological_order import OpRoles
from cfgraph.passes.partition.branch_conditions import BranchConditions


class DistributedLoops:
    """What there is to know of the loops of a graph before it is cut."""

    def __init__(self, found: Frames) -> None:
        self.found = found
        self.roles = OpRoles()

    @cached_property
    def alive(self) -> BranchConditions:
        """When each node is live."""
        return BranchConditions(self.found)

    def is_variable(self, node: Node) -> bool:
        """True for the Merge of a loop variable: a NextIteration feeds it, and an Enter."""
        roles = self.roles
        if roles[node.op] is not Role.MERGE:
            return False
        sources = {roles[item.node.op] for item in node.inputs}
        return sources == {Role.ENTER, Role.NEXT_ITERATION}

    def is_loop_switch(self, switch: Node) -> bool:
        """True for a Switch on the predicate of the loop that it is in."""
        frame = self.found.of[switch]
        if self.roles[switch.op] is not Role.SWITCH or not frame.loop_conds:
            return False
        origin = self.alive.origin
        return origin(switch.inputs[1]) == origin(frame.loop_conds[0].output())

    def pivot(self, node: Node) -> Output | None:
        """The output of a Switch of a variable on the loop's predicate that a node only hands on.

        None for any other node.
        """
        if node.controls or len(node.inputs) != 1:
            return None
        item = node.inputs[0]
        source = item.node
        if source.controls or not self.is_loop_switch(source):
            return None
        only_hands_on = self.alive.origin(node.output()) == item
        return item if only_hands_on and self.is_variable(source.inputs[0].node) else None

    def undistributable_loops(self) -> set[Frame]:
        """The loops whose devices could not tell which values come in which iteration.

        An Exit of such a loop may come or not, so the loop around it is one of them too.
        """
        found: set[Frame] = set()
        for frame in reversed(self.found.all[1:]):
            if not frame.loop_conds:
                found.add(frame)
            elif frame in found or not self._is_distributable(frame):
                found.add(frame)
                if frame.exits and frame.parent and frame.parent.parent:
                    found.add(frame.parent)
        return found

    def _is_distributable(self, frame: Frame) -> bool:
        alive = self.alive
        condition = frame.loop_conds[0]
        needed, body = alive.of(condition), alive.body(condition)
        goes_on = needed | {body}
        return all(
            bool(node.attr("is_constant"))
            or (alive.of(node) <= needed and self._feeds_variables(node))
            for node in frame.enters
        ) and all(
            alive.of(node) == goes_on and self._feeds_variables(node)
            for node in frame.next_iterations
        )

    def _feeds_variables(self, node: Node) -> bool:
        return all(use.slot != CONTROL and self.is_variable(use.node) for use in node.uses)
