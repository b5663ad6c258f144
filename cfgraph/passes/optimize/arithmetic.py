"""Identities: a node whose value is that of another tensor is replaced by it.

    x * 1, x - 0, x + -0.0, x / 1        are x       (x + 0.0 is not: -0.0 becomes 0.0)
    Identity(x), Reshape(x) to its shape are x
    -(-x), not not x                     are x
    abs(abs(x))                          is  abs(x)

Ops declare which (`AlgebraicFacts`, `Op.equal_input`). The other operands must not matter: they are
live wherever x is, and what they wait for also runs before x.
"""

from __future__ import annotations

from typing import Final

from cfgraph.ir.graph import Node, Output
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.op import lookup
from cfgraph.ops.opdef.shape_functions import InferenceContext
from cfgraph.passes.optimize.rewriting import RewriteContext

RULE: Final = "arithmetic"


def arithmetic(context: RewriteContext) -> None:
    """Replace nodes by tensors with the same value."""
    for node in context.nodes():
        check_deadline()
        if not node.inputs or not node.readers(0) or not context.is_pure(node):
            continue
        source = equal_tensor(context, node)
        if source is not None and context.can_forward(node, source):
            context.forward(RULE, node, source)


def equal_tensor(context: RewriteContext, node: Node) -> Output | None:
    """The tensor that output 0 of a node always equals, bit by bit, or None."""
    op = lookup(node.op)
    assert op is not None
    shapes = context.shapes
    inference = InferenceContext(
        node,
        tuple(shapes[tensor] for tensor in node.inputs),
        lambda slot: None if node.inputs[slot] in context.fed else shapes.value(node.inputs[slot]),
    )
    try:
        slot = op.equal_input(inference)
    except ValueError:
        # the shapes do not fit; a run reports the error
        return None
    if slot is not None:
        return node.inputs[slot]
    argument = node.inputs[0]
    if argument.node.op != node.op or not context.is_pure(argument.node) or argument in context.fed:
        return None
    if argument.node.attrs.get("T") is not node.attrs.get("T"):
        return None
    if op.algebra.involutive:
        return argument.node.inputs[0]
    return argument if op.algebra.idempotent else None
