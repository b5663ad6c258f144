"""Find and detach the uses of a stack or TensorArray handle; add the constants of list ops."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import int32
from cfgraph.ir.graph import CONTROL, Graph, Node, Output, Use
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import Shape
from cfgraph.ops.opdef.op import lookup, role_of


def handle_uses(handle: Output) -> tuple[list[Use], list[Node]]:
    """The uses of a handle, and the Identities and constant Enters that hand it on to them."""
    uses: list[Use] = []
    carriers: dict[Node, None] = {}
    todo = [handle]
    for item in todo:
        for use in item.node.readers(item.port):
            if not _forwards_handle(use.node):
                uses.append(use)
            elif use.node not in carriers:
                carriers[use.node] = None
                todo.append(use.node.output())
    return uses, list(carriers)


def detach_handle(
    graph: Graph, made: Node, handles: Sequence[Node], others: Collection[Node] = ()
) -> list[Node]:
    """Those of `made`, `handles` and `others` that can go; for the rest others still wait.

    What waits for `made` waits for a number that is dead where it was: the size it was made with.
    The handles that others wait for hand on that number.
    """
    stay = _nodes_still_read(made, handles, {made, *handles, *others})
    if stay:
        size = graph.add(
            "Identity",
            made.inputs[0],
            name=f"{made.name}/size",
            controls=made.controls,
            device=made.device,
        )
        for reader in list(made.control_readers):
            graph.remove_control(reader, made)
            graph.add_control(reader, size)
        for node in handles:
            if node in stay:
                _forward_size(graph, node, size if node.inputs[0].node is made else None)
    return [*others, *(node for node in reversed(handles) if node not in stay), made]


def _nodes_still_read(made: Node, handles: Sequence[Node], going: set[Node]) -> set[Node]:
    """The handles, and perhaps `made`, that nodes read which stay."""
    stay: set[Node] = set()
    before = -1
    while before != len(stay):
        before = len(stay)
        for node in (*reversed(handles), made):
            if any(_is_still_read(use, stay, going) for use in node.uses):
                stay.add(node)
    return stay


def _is_still_read(use: Use, stay: set[Node], going: set[Node]) -> bool:
    return use.node in stay or (use.slot == CONTROL and use.node not in going)


def _forward_size(graph: Graph, node: Node, size: Node | None) -> None:
    if size is not None:
        graph.set_input(node, 0, size.output())
    if role_of(node) is Role.ENTER:
        graph.set_attr(node, "T", int32)
    else:
        graph.set_op(node, "Identity", {"T": int32})


def _forwards_handle(node: Node) -> bool:
    op = lookup(node.op)
    if op is None or len(node.inputs) != 1:
        return False
    return op.aliasing.is_identity or (op.role is Role.ENTER and bool(node.attr("is_constant")))


def anchored_constant(graph: Graph, reader: Node, beside: Node, name: str, value: object) -> Node:
    """A constant of int32 for a reader, that runs when another node does."""
    always = not beside.inputs and not beside.controls
    return graph.add(
        "Const",
        name=f"{reader.name}/{name}",
        controls=() if always else [beside],
        device=reader.device,
        dtype=int32,
        value=TensorValue(np.array(value, np.int32)),
    )


def element_shape_constant(graph: Graph, reader: Node, beside: Node, shape: Shape) -> Node:
    """A shape as an op on lists reads it: -1 for what is not known."""
    dims = shape.dims
    value = -1 if dims is None else [-1 if size is None else size for size in dims]
    return anchored_constant(graph, reader, beside, "element_shape", value)
