"""Identities: a node whose value is that of another tensor is replaced by it.

    x * 1, x - 0, x + -0.0, x / 1        are x       (x + 0.0 is not: -0.0 becomes 0.0)
    Identity(x), Reshape(x) to its shape are x
    -(-x), not not x                     are x
    Transpose(Transpose(x, p), q)        is  x       if q undoes p
    abs(abs(x))                          is  abs(x)

Ops declare which (`AlgebraicFacts`, `Op.equal_input`, `Op.undoes`). The other operands must not
matter: they are live wherever x is, and what they wait for also runs before x.
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
        if source is None:
            continue
        argument = node.inputs[0].node
        # the node between, which cannot fail
        undone = argument if source.node is not argument and source not in node.inputs else None
        if context.can_forward(node, source, undone):
            context.forward(RULE, node, source)


def equal_tensor(context: RewriteContext, node: Node) -> Output | None:
    """The tensor that output 0 of a node always equals, bit by bit, or None."""
    op = lookup(node.op)
    assert op is not None
    inference = _inference_context(context, node)
    try:
        slot = op.equal_input(inference)
        if slot is not None:
            return node.inputs[slot]
        argument = node.inputs[0]
        inner = argument.node
        if inner.op != node.op or not context.is_pure(inner) or argument in context.fed:
            return None
        if inner.attrs.get("T") is not node.attrs.get("T"):
            return None
        if op.undoes(inference, _inference_context(context, inner)):
            return inner.inputs[0]
    except ValueError:
        # the shapes do not fit; a run reports the error
        return None
    return argument if op.algebra.idempotent else None


def _inference_context(context: RewriteContext, node: Node) -> InferenceContext:
    """The static shapes and values of the inputs of a node; of fed values nothing is known."""
    shapes = context.shapes
    return InferenceContext(
        node,
        tuple(shapes[tensor] for tensor in node.inputs),
        lambda slot: None if node.inputs[slot] in context.fed else shapes.value(node.inputs[slot]),
    )
