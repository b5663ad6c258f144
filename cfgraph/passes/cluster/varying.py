"""Inputs that XLA needs as constants: do they stay the same while a loop runs?

The shape of a tensor is known where it is compiled, so what hangs on shapes alone does not vary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cfgraph.analysis.loops.frames import Frame, Frames
from cfgraph.ir.function_graph import Instances
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.evaluate_control import constant_slots
from cfgraph.ops.op import Op, lookup


class Varying(NamedTuple):
    """An input of a node that must be constant, and the node in a loop that it hangs on."""

    slot: int
    leaf: Node


def varying_constant(
    node: Node, op: type[Op], found: Frames, instances: Instances
) -> Varying | None:
    """The first input that must be constant and varies in a loop; None if all stay the same."""
    frame = found.of[node]
    if frame.parent is None:
        return None
    for slot in sorted(constant_slots(node, op, instances)):
        leaf = _varying_leaf(node.inputs[slot], frame, found)
        if leaf is not None:
            return Varying(slot, leaf)
    return None


def _varying_leaf(value: Output, frame: Frame, found: Frames) -> Node | None:
    todo = [(value, frame)]
    seen = {value}
    for item, here in todo:
        if here.parent is None:
            continue
        inputs = _hangs_on(item, found)
        if inputs is None:
            return item.node
        outside = here.parent if _role(item.node) == "enter" else here
        for before in inputs:
            if before not in seen:
                seen.add(before)
                todo.append((before, outside))
    return None


def _hangs_on(item: Output, found: Frames) -> Iterator[Output] | None:
    """The values that a value is made of; None where it is new in each iteration."""
    node, op = item.node, lookup(item.node.op)
    if op is None:
        return None
    if op.role == "enter":
        return iter(node.inputs) if node.attr("is_constant") else None
    if op.role or op.stateful or hasattr(op, "functional"):
        return None
    return iter(()) if op.of_shapes else iter(node.inputs)


def _role(node: Node) -> str:
    op = lookup(node.op)
    return op.role if op is not None else ""
