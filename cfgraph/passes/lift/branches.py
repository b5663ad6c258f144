"""The conditionals of a frame as they can be called: Merges whose inputs one predicate decides.

    x ──▶ Switch ──false──▶ … ──▶ Merge         StatelessIf(pred, x)
    pred ──▶ ┘  └──true──▶ … ──▶  ┘

What lies behind a Switch of the predicate, before any Merge, is in a branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cfgraph.analysis.loops.frames import Frame
from cfgraph.analysis.loops.path_conditions import PathConditions
from cfgraph.ir import registry
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.op import role
from cfgraph.passes.lift.refused import refused

BOTH = -1


@dataclass(slots=True, eq=False)
class Decided:
    """What a predicate decides: its Switches, and for each node behind them on which side it is.

    `pred` is the predicate as the first Switch reads it; a Switch that reads its negation is in
    `negated`.
    """

    pred: Output
    switches: dict[Node, bool] = field(default_factory=dict)
    sides: dict[Node, int] = field(default_factory=dict)

    def side(self, item: Output) -> int | None:
        """The side that a tensor is on: 1 where the predicate holds; None for neither."""
        negated = self.switches.get(item.node)
        if negated is None:
            return self.sides.get(item.node)
        return 1 - item.port if negated else item.port

    def through(self, item: Output) -> Output:
        """What a tensor is in its branch: a Switch hands on what it reads."""
        while item.node in self.switches:
            item = item.node.inputs[0]
        return item


ByNode = Mapping[Node, Sequence[Decided]]


class Cone(NamedTuple):
    """The nodes of branches, the tensors that they read from outside, and what they wait for."""

    inside: list[Node]
    outside: list[Output]
    waits: list[Node]


@dataclass(slots=True)
class Branches:
    """Merges that one call stands for, and what decides them."""

    decided: Decided
    merges: list[Node]

    def value(self, merge: Node, side: int) -> Output:
        """What a Merge gives on one side."""
        return merge.inputs[self.slot(merge, side)]

    def slot(self, merge: Node, side: int) -> int:
        """The input of a Merge that is live on one side."""
        return 0 if self.decided.side(merge.inputs[0]) == side else 1

    def cone(self) -> Cone:
        """The nodes of the branches, and what they read and wait for outside."""
        inside: dict[Node, None] = {}
        outside: dict[Output, None] = {}
        waits: dict[Node, None] = {}
        switches, sides = self.decided.switches, self.decided.sides
        todo: list[Output | Node] = [item for merge in self.merges for item in merge.inputs]
        for place in todo:
            node = place.node if isinstance(place, Output) else place
            if node in switches:
                data = node.inputs[0]
                todo += [data if isinstance(place, Output) else data.node, *node.controls]
            elif node in inside:
                continue
            elif node in sides:
                inside[node] = None
                todo += [*node.inputs, *node.controls]
            elif isinstance(place, Output):
                outside[place] = None
            else:
                waits[node] = None
        for merge in self.merges:
            waits.update(dict.fromkeys(merge.controls))
        return Cone(list(inside), list(outside), list(waits))


def decided(frame: Frame, order: Iterable[Node]) -> ByNode:
    """What the predicates of a frame decide, by node; that of the loop itself is left out."""
    guards = PathConditions()
    loops = {guards.source(cond.output())[0] for cond in frame.loop_conds}
    found: dict[Output, Decided] = {}
    signs: dict[Output, bool] = {}
    members = set(frame.nodes)
    for node in order:
        if node not in members or role(node) != "switch" or not _is_plain(node):
            continue
        source, negated = guards.source(node.inputs[1])
        if source in loops:
            continue
        one = found.setdefault(source, Decided(node.inputs[1]))
        one.switches[node] = negated != signs.setdefault(source, negated)
    by_node: dict[Node, list[Decided]] = {}
    for one in found.values():
        _spread(one, members)
        for node in (*one.switches, *one.sides):
            by_node.setdefault(node, []).append(one)
    return by_node


def _is_plain(switch: Node) -> bool:
    dtype = switch.inputs[0].dtype
    return registry.output_count(switch) == 2 and dtype is not None and not dtype.is_ref


def _spread(one: Decided, members: set[Node]) -> None:
    """Find on which side the nodes are that lie behind the Switches."""
    todo: list[tuple[Node, int]] = []
    for switch in one.switches:
        todo += _readers(one, switch, None, members)
    for node, side in todo:
        before = one.sides.get(node)
        now = side if before in (None, side) else BOTH
        if now != before:
            one.sides[node] = now
            todo += _readers(one, node, now, members)


def _readers(
    one: Decided, node: Node, side: int | None, members: set[Node]
) -> Iterator[tuple[Node, int]]:
    for reader, slot in node.uses:
        if reader not in members or role(reader) or (slot < 0 and side is None):
            continue
        found = one.side(reader.inputs[slot]) if side is None else side
        if found is not None:
            yield reader, found


def branches_of(merge: Node, every: ByNode) -> Branches:
    """What decides a Merge. Raises Refused where no one predicate does."""
    if len(merge.inputs) != 2 or merge.inputs[0].dtype is None or merge.inputs[0].dtype.is_ref:
        raise refused("form", f"{merge.name} joins {len(merge.inputs)} tensors")
    for one in every.get(merge.inputs[0].node, ()):
        sides = [one.side(item) for item in merge.inputs]
        if sorted(side for side in sides if side is not None) == [0, 1]:
            return Branches(one, [merge])
    raise refused("form", f"no one predicate says which input of {merge.name} is live")
