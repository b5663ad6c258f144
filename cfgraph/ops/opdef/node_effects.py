"""Effects of single nodes: the state that a node changes or depends on.

State is accessed through a handle (a resource or a reference). Making a handle is not an effect,
and neither is drawing a random number. `analysis/effects.py` identifies the resource behind each
handle; functional ops have the effects of the functions that they call.
"""

from __future__ import annotations

from cfgraph.ir import registry
from cfgraph.ir.graph import Node
from cfgraph.ops.opdef.op import lookup


def has_effect(node: Node) -> bool:
    """True for a node that reads or writes state or does I/O, and for an unknown op."""
    op = lookup(node.op)
    return op is None or (op.effects.stateful and not op.effects.random and not makes_handle(node))


def may_write(node: Node) -> bool:
    """True for a stateful node that does not only read, and for an unknown op."""
    op = lookup(node.op)
    return op is None or (op.effects.stateful and not op.effects.reads_only)


def makes_handle(node: Node) -> bool:
    """True for a node whose only outputs are the handles of a variable, a table, or a queue."""
    types = registry.output_types(node) or ()
    return not node.inputs and bool(types) and all(dtype.is_handle for dtype in types)
