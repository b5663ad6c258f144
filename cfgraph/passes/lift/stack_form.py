"""Stacks that can be values: pushed in each iteration of one loop, popped in each of another."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from cfgraph.analysis.loops.frames import Frame, Frames
from cfgraph.ir.graph import Node
from cfgraph.ops.op import Op, is_a
from cfgraph.ops.stacks import StackPopV2, StackPushV2, StackV2
from cfgraph.passes.cluster.agreement import Agreement
from cfgraph.passes.lift.handles import uses_of
from cfgraph.passes.lift.refused import refused


@dataclass(frozen=True, slots=True)
class StackForm:
    """A stack, its one push and its one pop, with the loops around each, outer ones first."""

    made: Node
    push: Node
    pop: Node
    push_loops: tuple[Frame, ...]
    pop_loops: tuple[Frame, ...]
    handles: tuple[Node, ...]


def is_stack(node: Node) -> bool:
    """True for a stack whose handle is a value."""
    return is_a(node, StackV2)


def stack_form(made: Node, agreed: Agreement, kept: Collection[Node]) -> StackForm:
    """Read a stack. Raises Refused where it is not pushed in one loop and popped in another."""
    uses, handles = uses_of(made.output())
    found: dict[type[Op], list[Node]] = {StackPushV2: [], StackPopV2: []}
    for reader, slot in uses:
        kind = next((kind for kind in found if slot == 0 and is_a(reader, kind)), None)
        if kind is None:
            raise refused("list", f"{reader.name} ({reader.op}) uses it", node=reader.name)
        found[kind].append(reader)
    pushes, pops = found[StackPushV2], found[StackPopV2]
    if len(pushes) != 1 or len(pops) != 1:
        text = f"{len(pushes)} nodes push to it and {len(pops)} pop from it"
        raise refused("list", text, node=made.name)
    (push,), (pop,) = pushes, pops
    asked = [node for node in (made, *handles, push, pop) if node in kept]
    if asked:
        raise refused("list", f"{asked[0].name} is fetched", node=asked[0].name)
    home = agreed.frames.of_outputs[made]
    loops = [_loops(node, home, agreed.frames) for node in (push, pop)]
    if loops[0][0] is loops[1][0]:
        text = f"{push.name} and {pop.name} are in one loop, {loops[0][0].path}"
        raise refused("list", text, node=made.name)
    _require_order(push, pop, loops[0][0], loops[1][0], agreed.frames)
    for node, around in zip((push, pop), loops, strict=True):
        _require_each_iteration(node, around, agreed)
    return StackForm(made, push, pop, loops[0], loops[1], tuple(handles))


def _loops(node: Node, home: Frame, found: Frames) -> tuple[Frame, ...]:
    """The loops around a node, from the frame in which the stack is made."""
    chain, here = list[Frame](), found.of[node]
    while here is not home:
        chain.append(here)
        if here.parent is None:
            raise refused("list", f"{node.name} is not in a loop around", node=node.name)
        here = here.parent
    if not chain:
        raise refused("list", f"{node.name} is in no loop", node=node.name)
    return tuple(reversed(chain))


def _require_order(push: Node, pop: Node, first: Frame, then: Frame, found: Frames) -> None:
    """Raise Refused where the loop that pushes waits for the one that pops."""
    todo = dict.fromkeys((*first.enters, *first.nodes))
    for node in (queue := list(todo)):
        # the nodes of lists that were made before are in no frame; their loops are behind them
        here = found.of.get(node)
        if here is not None and here.is_within(then):
            text = f"{push.name} waits for the loop in which {pop.name} is"
            raise refused("list", text, node=push.name)
        for near in (*(item.node for item in node.inputs), *node.controls):
            if near not in todo:
                todo[near] = None
                queue.append(near)


def _require_each_iteration(node: Node, loops: tuple[Frame, ...], agreed: Agreement) -> None:
    """Raise Refused unless the body of each loop comes to a node exactly once."""
    for frame in loops:
        if len(frame.loop_conds) != 1 or not frame.next_iterations:
            raise refused("list", f"the loop {frame.path} has no one condition")
    last = loops[-1].next_iterations[0]
    if not agreed.alike(node, last):
        text = f"{node.name} does not run in each iteration"
        raise refused("list", text, node=node.name)
