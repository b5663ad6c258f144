"""Liveness of nodes as sets of Switch sides that must be taken.

A node that is not a Merge is live if all of its inputs are; an output of a Switch also needs its
side to be taken. A Merge of all sides of one predicate needs what the sides have in common. For any
other Merge only that part is known; an opaque side stands for the rest. Loops are assumed to be
structured: a variable is live as long as its initial value was, and an Exit means that the loop has
ended."""

from __future__ import annotations

from typing import Final, NamedTuple

from cfgraph.analysis.loops.frame import Frames
from cfgraph.ir import registry
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.op import Op, lookup


class BranchSide(NamedTuple):
    """One of the `branches` sides of a predicate; 0 branches stand for an unknown condition."""

    predicate: Output
    port: int
    branches: int


BranchSides = frozenset[BranchSide]
ALWAYS_LIVE: Final[BranchSides] = frozenset()


class BranchConditions:
    """Sides that each node requires; for a node in a loop, in each iteration that runs."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames
        self._origins: dict[Output, Output] = {}
        self._sides: dict[Node, BranchSides] = {}
        for node in frames.order:
            check_deadline()
            self._sides[node] = self._node_sides(node)

    def sides(self, node: Node) -> BranchSides:
        """Return the sides that a node requires."""
        return self._sides[node]

    def body(self, condition: Node) -> BranchSide:
        """Return the side of a LoopCond that continues the loop."""
        return BranchSide(self.origin(condition.output()), 1, 2)

    def origin(self, tensor: Output) -> Output:
        """Return the tensor that is forwarded by Identities, constant Enters, and LoopConds."""
        trail = []
        while tensor not in self._origins:
            check_deadline()
            trail.append(tensor)
            source = _forwarded_input(tensor)
            if source is None:
                break
            tensor = source
        origin = self._origins.get(tensor, tensor)
        self._origins.update(dict.fromkeys(trail, origin))
        return origin

    def _node_sides(self, node: Node) -> BranchSides:
        role = ROLES[node.op]
        if role is Role.CONTROL_TRIGGER:
            return ALWAYS_LIVE
        if role is Role.MERGE:
            return self._merge_sides(node)
        sides = ALWAYS_LIVE
        for tensor in node.inputs:
            sides = _united(sides, self._output_sides(tensor))
        for control in node.controls:
            sides = _united(sides, self._sides.get(control, ALWAYS_LIVE))
        if role is Role.EXIT and sides:
            ends = {self.origin(cond.output()) for cond in self.frames.of[node].loop_conds}
            return frozenset(side for side in sides if side.predicate not in ends)
        return sides

    def _output_sides(self, tensor: Output) -> BranchSides:
        node = tensor.node
        sides, role = self._sides.get(node, ALWAYS_LIVE), ROLES[node.op]
        if role is Role.SWITCH:
            count = registry.output_count(node) or 0
            return sides | {BranchSide(self.origin(node.inputs[1]), tensor.port, count)}
        return sides | {BranchSide(tensor, 0, 0)} if role is Role.RECV else sides

    def _merge_sides(self, node: Node) -> BranchSides:
        forward = [t for t in node.inputs if ROLES[t.node.op] is not Role.NEXT_ITERATION]
        if not forward:
            return ALWAYS_LIVE
        inputs = [self._output_sides(tensor) for tensor in forward]
        common = frozenset.intersection(*inputs)
        if len(inputs) == 1 or _covers_predicate([sides - common for sides in inputs]):
            return common
        return common | {BranchSide(node.output(), 0, 0)}


def _united(a: BranchSides, b: BranchSides) -> BranchSides:
    if a is b or not b:
        return a
    return a | b if a else b


def _covers_predicate(differences: list[BranchSides]) -> bool:
    """Return true if the inputs differ in one predicate, each side of which has one input."""
    sides = [side for difference in differences for side in difference]
    if any(len(difference) != 1 for difference in differences):
        return False
    if len({side.predicate for side in sides}) != 1:
        return False
    return sorted(side.port for side in sides) == list(range(sides[0].branches))


def _forwarded_input(tensor: Output) -> Output | None:
    """Return the input that an output equals in all iterations, or None if there is none."""
    node = tensor.node
    op: type[Op] | None = lookup(node.op)
    if op is None or not node.inputs:
        return None
    if op.role is Role.ENTER:
        return node.inputs[0] if node.attr("is_constant") else None
    forwards = op.aliasing.is_identity or op.role is Role.LOOP_COND
    return node.inputs[tensor.port] if forwards else None
