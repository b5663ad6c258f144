"""Loop variables that a body hands on as they came: they have one value, that they enter with."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from cfgraph.analysis.frames import Frames
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.op import lookup

_MAX_STEPS: Final = 200
_MOVES: Final = ("switch", "enter", "exit", "next_iteration", "loop_cond")


def entered(merge: Node, frames: Frames, cut: Collection[Output]) -> tuple[Output, ...]:
    """What the Enters of a loop variable read; nothing where the variable may change.

    All that comes round must stem from the Merge itself, through ops that hand a value on, and
    through the Merges of conditionals and of inner loops. A walk of too many steps finds nothing.
    """
    starts: list[Output] = []
    todo: list[Output] = []
    for item in merge.inputs:
        role = _role(item.node)
        if item in cut or item.node not in frames.of or role not in ("enter", "next_iteration"):
            return ()
        (starts if role == "enter" else todo).append(item.node.inputs[0])
    seen = {Output(merge)}
    while todo:
        item = todo.pop()
        if item in seen:
            continue
        seen.add(item)
        sources = () if item in cut else _handed_on(item)
        if not sources or item.node not in frames.of or len(seen) > _MAX_STEPS:
            return ()
        todo.extend(sources)
    return tuple(starts)


def left(leaving: Node, frames: Frames, cut: Collection[Output]) -> tuple[Output, ...]:
    """What an Exit hands out where that is a variable that does not change: what has entered."""
    item = leaving.inputs[0]
    for _ in range(_MAX_STEPS):
        node, port = item
        if item in cut or node not in frames.of:
            return ()
        if _role(node) == "merge":
            return () if port else entered(node, frames, cut)
        sources = _handed_on(item)
        if not sources or _role(node) in ("enter", "exit", "next_iteration"):
            return ()
        item = sources[0]
    return ()


def _role(node: Node) -> str:
    op = lookup(node.op)
    return op.role if op else ""


def _handed_on(item: Output) -> tuple[Output, ...]:
    """The inputs one of which an output is; none where it is something new."""
    node, port = item
    op = lookup(node.op)
    if op is None:
        return ()
    if op.role == "merge":
        return () if port else node.inputs
    if op.role in _MOVES:
        return node.inputs[:1]
    return (node.inputs[min(port, len(node.inputs) - 1)],) if op.forwards and node.inputs else ()
