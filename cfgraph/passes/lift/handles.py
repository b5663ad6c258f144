"""Who uses a stack or an array by its handle, where nothing but loops stands between."""

from __future__ import annotations

from cfgraph.ir.graph import Node, Output, Use
from cfgraph.ops.op import lookup


def uses_of(handle: Output) -> tuple[list[Use], list[Node]]:
    """The uses of a handle, and the Identities and constant Enters that hand it on to them."""
    uses: list[Use] = []
    carriers: dict[Node, None] = {}
    todo = [handle]
    for item in todo:
        for use in item.node.readers(item.port):
            if not _hands_on(use.node):
                uses.append(use)
            elif use.node not in carriers:
                carriers[use.node] = None
                todo.append(use.node.output())
    return uses, list(carriers)


def _hands_on(node: Node) -> bool:
    op = lookup(node.op)
    if op is None or len(node.inputs) != 1:
        return False
    return op.forwards or (op.role == "enter" and bool(node.attr("is_constant")))
