"""Operands that a picture folds into their readers: constants, variables, and their reads."""

from __future__ import annotations

from collections.abc import Collection

from cfgraph.analysis.resource_handles import is_variable
from cfgraph.console.selection import NodeSelection
from cfgraph.ir.graph import Node
from cfgraph.ops.families.constants import Const, Identity
from cfgraph.ops.families.resource_variables import ReadVariableOp
from cfgraph.ops.opdef.op import is_a, role_of


def folded_operands(
    selection: NodeSelection, exposed: Collection[str], rest: Collection[Node] = ()
) -> dict[Node, Node]:
    """Return the operands to fold, each with the first node that is drawn and reads it.

    A node outside of `rest` is preferred. Operands of control flow are drawn, and so are the nodes
    that `exposed` names.
    """
    handles = {
        node
        for node, types in selection.view.arguments.items()
        if types.outputs and types.outputs[0] is not None and types.outputs[0].name == "resource"
    }
    operands: dict[Node, None] = {}
    for node in selection.view.frames.order:
        is_operand = (
            is_a(node, ReadVariableOp, Identity) and node.inputs[0].node in operands
            if node.inputs
            else is_a(node, Const) or is_variable(node) or node in handles
        )
        if is_operand and selection.view.title(node) not in exposed:
            operands[node] = None
    drawn = set(selection.nodes)
    readers: dict[Node, Node] = {}
    for node in reversed(operands):
        uses = [use.node for use in node.uses if use.slot >= 0 and use.node in drawn]
        shown = [use for use in uses if use not in operands]
        targets = [readers.get(use, use) for use in uses if use in readers or use not in operands]
        if node in drawn and targets and not any(role_of(use) for use in shown):
            readers[node] = next((use for use in targets if use not in rest), targets[0])
    return readers
