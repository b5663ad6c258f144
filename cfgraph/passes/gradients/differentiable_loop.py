"""Loops that have a gradient: loop variables, invariants, and Exits of the regular form.

Only parts on a path from an x to a y have to be regular; the other parts need no gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cfgraph.analysis.loops.frames import Frame
from cfgraph.analysis.loops.while_loop import WhileLoop, while_loop
from cfgraph.errors import Unsupported
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.opdef.op import back_edge_of

IsActive = Callable[[Output], bool]


def differentiable_loop(frame: Frame, is_active: IsActive) -> WhileLoop:
    """The loop of a frame with its active variables and invariants.

    Raises Unsupported, naming the node, for a loop of another form.
    """
    loop = while_loop(frame)
    if loop is None:
        message = f"the loop {frame.path} has {len(frame.loop_conds)} LoopConds, expected one"
        raise Unsupported(message, node=frame.enters[0], frame=frame.path, code="CFG504")
    active = replace(
        loop,
        variables=tuple(item for item in loop.variables if is_active(item.merge.output())),
        invariants=tuple(node for node in loop.invariants if is_active(node.output())),
    )
    _require_regular(active, is_active)
    return active


def _require_regular(loop: WhileLoop, is_active: IsActive) -> None:
    for merge in loop.irregular_merges:
        if back_edge_of(merge) is not None and is_active(merge.output()):
            raise _unsupported_form(loop, merge, "merges more than an Enter and a NextIteration")
    exits = {node for variable in loop.variables for node in variable.exits}
    for node in loop.frame.exits:
        if node not in exits and is_active(node.output()):
            raise _unsupported_form(loop, node, "does not forward the final value of a variable")
    enters = {*loop.invariants, *(variable.enter for variable in loop.variables)}
    for enter in loop.frame.enters:
        if enter not in enters and is_active(enter.output()):
            raise _unsupported_form(loop, enter, "enters the first iteration alone")


def _unsupported_form(loop: WhileLoop, node: Node, problem: str) -> Unsupported:
    message = f"{node.op} in the loop {loop.frame.path} {problem}"
    hint = "the loop cannot be run backwards"
    return Unsupported(message, node=node, frame=loop.frame.path, hint=hint, code="CFG504")
