"""When a node is live: the sides of Switches that must be taken for it, where that is so simple.

A node that is not a Merge is live if its inputs are, an output of a Switch if that side is taken
too. A Merge of both sides of one predicate is live if what both sides have in common is. Of any
other Merge nothing is known but that. Loops are as the first seed draws them: a variable is live
as long as its first value was, and an Exit says that the loop came to its end.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cfgraph.analysis.loops.frames import Frames
from cfgraph.ir import registry
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.walk import Roles
from cfgraph.ops.op import Op, lookup


class Side(NamedTuple):
    """One side of a predicate that has so many; of 0, it stands for what is not known."""

    predicate: Output
    port: int
    of: int


Sides = frozenset[Side]
ALWAYS: Final[Sides] = frozenset()


class Alive:
    """The sides that each node needs, for a node in a loop in each iteration that there is."""

    def __init__(self, found: Frames) -> None:
        self.found = found
        self.roles = Roles()
        self._origins: dict[Output, Output] = {}
        self._of: dict[Node, Sides] = {}
        for node in found.order:
            self._of[node] = self._sides(node)

    def of(self, node: Node) -> Sides:
        """The sides that a node needs."""
        return self._of[node]

    def body(self, condition: Node) -> Side:
        """The side of a LoopCond on which the loop goes on."""
        return Side(self.origin(condition.output()), 1, 2)

    def origin(self, item: Output) -> Output:
        """The tensor that Identities, constant Enters and a LoopCond hand on."""
        trail = []
        while item not in self._origins:
            trail.append(item)
            source = _handed_on(item)
            if source is None:
                break
            item = source
        found = self._origins.get(item, item)
        self._origins.update(dict.fromkeys(trail, found))
        return found

    def _sides(self, node: Node) -> Sides:
        role = self.roles[node.op]
        if role == "trigger":
            return ALWAYS
        if role == "merge":
            return self._merge(node)
        sides = ALWAYS
        for item in node.inputs:
            sides = _both(sides, self._output(item))
        for control in node.controls:
            sides = _both(sides, self._of.get(control, ALWAYS))
        if role == "exit" and sides:
            ends = {self.origin(cond.output()) for cond in self.found.of[node].loop_conds}
            return frozenset(side for side in sides if side.predicate not in ends)
        return sides

    def _output(self, item: Output) -> Sides:
        sides, role = self._of.get(item.node, ALWAYS), self.roles[item.node.op]
        if role == "switch":
            count = registry.output_count(item.node) or 0
            return sides | {Side(self.origin(item.node.inputs[1]), item.port, count)}
        return sides | {Side(item, 0, 0)} if role == "recv" else sides

    def _merge(self, node: Node) -> Sides:
        roles = self.roles
        forward = [item for item in node.inputs if roles[item.node.op] != "next_iteration"]
        if not forward:
            return ALWAYS
        inputs = [self._output(item) for item in forward]
        common = frozenset.intersection(*inputs)
        if len(inputs) == 1 or _is_whole([sides - common for sides in inputs]):
            return common
        return common | {Side(node.output(), 0, 0)}


def _both(one: Sides, other: Sides) -> Sides:
    if one is other or not other:
        return one
    return one | other if one else other


def _is_whole(rests: list[Sides]) -> bool:
    """True if there is one input for each side of one predicate."""
    sides = [side for rest in rests for side in rest]
    if any(len(rest) != 1 for rest in rests) or len({side.predicate for side in sides}) != 1:
        return False
    return sorted(side.port for side in sides) == list(range(sides[0].of))


def _handed_on(item: Output) -> Output | None:
    """The input that an output is, for all iterations that can tell."""
    node = item.node
    op: type[Op] | None = lookup(node.op)
    if op is None or not node.inputs:
        return None
    if op.role == "enter":
        return node.inputs[0] if node.attr("is_constant") else None
    return node.inputs[item.port] if op.forwards or op.role == "loop_cond" else None
