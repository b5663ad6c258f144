"""Decide which loops may be distributed over devices: those driven by their LoopCond alone.

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
    """Queries on the loops of a graph that is not cut yet."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames
        self.roles = OpRoles()

    @cached_property
    def conditions(self) -> BranchConditions:
        """Liveness of each node."""
        return BranchConditions(self.frames)

    def is_variable(self, node: Node) -> bool:
        """Return true for the Merge of a loop variable: one of an Enter and a NextIteration."""
        roles = self.roles
        if roles[node.op] is not Role.MERGE:
            return False
        sources = {roles[tensor.node.op] for tensor in node.inputs}
        return sources == {Role.ENTER, Role.NEXT_ITERATION}

    def is_loop_switch(self, switch: Node) -> bool:
        """Return true for a Switch on the predicate of its own loop."""
        frame = self.frames.of[switch]
        if self.roles[switch.op] is not Role.SWITCH or not frame.loop_conds:
            return False
        origin = self.conditions.origin
        return origin(switch.inputs[1]) == origin(frame.loop_conds[0].output())

    def pivot(self, node: Node) -> Output | None:
        """Return the output of a loop variable's Switch if a node only forwards that, else None."""
        if node.controls or len(node.inputs) != 1:
            return None
        tensor = node.inputs[0]
        source = tensor.node
        if source.controls or not self.is_loop_switch(source):
            return None
        forwards = self.conditions.origin(node.output()) == tensor
        return tensor if forwards and self.is_variable(source.inputs[0].node) else None

    def undistributable_loops(self) -> set[Frame]:
        """Return the loops whose values are not all live in exactly the iterations that run.

        An Exit of such a loop may be dead, so the outer loop is one of them too.
        """
        rejected: set[Frame] = set()
        for frame in reversed(self.frames.all[1:]):
            if not frame.loop_conds:
                rejected.add(frame)
            elif frame in rejected or not self._is_distributable(frame):
                rejected.add(frame)
                if frame.exits and frame.parent and frame.parent.parent:
                    rejected.add(frame.parent)
        return rejected

    def _is_distributable(self, frame: Frame) -> bool:
        sides_of = self.conditions.sides
        condition = frame.loop_conds[0]
        entry = sides_of(condition)
        body = entry | {self.conditions.body(condition)}
        return all(
            bool(node.attr("is_constant"))
            or (sides_of(node) <= entry and self._feeds_variables(node))
            for node in frame.enters
        ) and all(
            sides_of(node) == body and self._feeds_variables(node) for node in frame.next_iterations
        )

    def _feeds_variables(self, node: Node) -> bool:
        return all(use.slot != CONTROL and self.is_variable(use.node) for use in node.uses)
