"""Liveness of nodes as sets of Switch sides that must be taken, where that is simple enough.

A node that is not a Merge is live if all of its inputs are; an output of a Switch also needs its
side to be taken. A Merge of all sides of one predicate needs what the sides have in common. For any
other Merge only that part is known. Loops are assumed to be structured: a variable is live as long
as its initial value was, and an Exit means that the loop has ended."""

from __future__ import annotations

from typing import Final, NamedTuple

from cfgraph.analysis.loops.frames import Frames
from cfgraph.ir import registry
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.topological_order import OpRoles
from cfgraph.ops.opdef.op import Op, lookup


class BranchSide(NamedTuple):
    """One side of a predicate that has so many; of 0, it stands for what is not known."""

    predicate: Output
    port: int
    of: int


BranchSides = frozenset[BranchSide]
ALWAYS_LIVE: Final[BranchSides] = frozenset()


class BranchConditions:
    """The sides that each node needs, for a node in a loop in each iteration that there is."""

    def __init__(self, found: Frames) -> None:
        self.found = found
        self.roles = OpRoles()
        self._origins: dict[Output, Output] = {}
        self._of: dict[Node, BranchSides] = {}
        for node in found.order:
            self._of[node] = self._sides(node)

    def of(self, node: Node) -> BranchSides:
        """The sides that a node needs."""
        return self._of[node]

    def body(self, condition: Node) -> BranchSide:
        """The side of a LoopCond on which the loop goes on."""
        return BranchSide(self.origin(condition.output()), 1, 2)

    def origin(self, item: Output) -> Output:
        """The tensor that Identities, constant Enters and a LoopCond hand on."""
        trail = []
        while item not in self._origins:
            trail.append(item)
            source = _forwarded_input(item)
            if source is None:
                break
            item = source
        found = self._origins.get(item, item)
        self._origins.update(dict.fromkeys(trail, found))
        return found

    def _sides(self, node: Node) -> BranchSides:
        role = self.roles[node.op]
        if role is Role.CONTROL_TRIGGER:
            return ALWAYS_LIVE
        if role is Role.MERGE:
            return self._merge(node)
        sides = ALWAYS_LIVE
        for item in node.inputs:
            sides = _united(sides, self._output(item))
        for control in node.controls:
            sides = _united(sides, self._of.get(control, ALWAYS_LIVE))
        if role is Role.EXIT and sides:
            ends = {self.origin(cond.output()) for cond in self.found.of[node].loop_conds}
            return frozenset(side for side in sides if side.predicate not in ends)
        return sides

    def _output(self, item: Output) -> BranchSides:
        sides, role = self._of.get(item.node, ALWAYS_LIVE), self.roles[item.node.op]
        if role is Role.SWITCH:
            count = registry.output_count(item.node) or 0
            return sides | {BranchSide(self.origin(item.node.inputs[1]), item.port, count)}
        return sides | {BranchSide(item, 0, 0)} if role is Role.RECV else sides

    def _merge(self, node: Node) -> BranchSides:
        roles = self.roles
        forward = [item for item in node.inputs if roles[item.node.op] is not Role.NEXT_ITERATION]
        if not forward:
            return ALWAYS_LIVE
        inputs = [self._output(item) for item in forward]
        common = frozenset.intersection(*inputs)
        if len(inputs) == 1 or _covers_predicate([sides - common for sides in inputs]):
            return common
        return common | {BranchSide(node.output(), 0, 0)}


def _united(one: BranchSides, other: BranchSides) -> BranchSides:
    if one is other or not other:
        return one
    return one | other if one else other


def _covers_predicate(rests: list[BranchSides]) -> bool:
    """True if there is one input for each side of one predicate."""
    sides = [side for rest in rests for side in rest]
    if any(len(rest) != 1 for rest in rests) or len({side.predicate for side in sides}) != 1:
        return False
    return sorted(side.port for side in sides) == list(range(sides[0].of))


def _forwarded_input(item: Output) -> Output | None:
    """The input that an output is, for all iterations that can tell."""
    node = item.node
    op: type[Op] | None = lookup(node.op)
    if op is None or not node.inputs:
        return None
    if op.role is Role.ENTER:
        return node.inputs[0] if node.attr("is_constant") else None
    return node.inputs[item.port] if op.aliasing.is_identity or op.role is Role.LOOP_COND else None
