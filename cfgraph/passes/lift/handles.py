"""Who uses a stack or an array by its handle, where nothing but loops stands between."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cfgraph.ir.dtypes import int32
from cfgraph.ir.graph import CONTROL, Graph, Node, Output, Use
from cfgraph.ops.op import lookup, role


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


def without_handle(
    graph: Graph, made: Node, handles: Sequence[Node], others: Collection[Node] = ()
) -> list[Node]:
    """Those of `made`, `handles` and `others` that can go; for the rest others still wait.

    What waits for `made` waits for a number that is dead where it was: the size it was made with.
    The handles that others wait for hand on that number.
    """
    stay = _waited_for(made, handles, {made, *handles, *others})
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
                _hand_on_number(graph, node, size if node.inputs[0].node is made else None)
    return [*others, *(node for node in reversed(handles) if node not in stay), made]


def _waited_for(made: Node, handles: Sequence[Node], going: set[Node]) -> set[Node]:
    """The handles, and perhaps `made`, that nodes read which stay."""
    stay: set[Node] = set()
    before = -1
    while before != len(stay):
        before = len(stay)
        for node in (*reversed(handles), made):
            if any(_stays(use, stay, going) for use in node.uses):
                stay.add(node)
    return stay


def _stays(use: Use, stay: set[Node], going: set[Node]) -> bool:
    return use.node in stay or (use.slot == CONTROL and use.node not in going)


def _hand_on_number(graph: Graph, node: Node, size: Node | None) -> None:
    if size is not None:
        graph.set_input(node, 0, size.output())
    if role(node) == "enter":
        graph.set_attr(node, "T", int32)
    else:
        graph.set_op(node, "Identity", {"T": int32})


def _hands_on(node: Node) -> bool:
    op = lookup(node.op)
    if op is None or len(node.inputs) != 1:
        return False
    return op.forwards or (op.role == "enter" and bool(node.attr("is_constant")))
