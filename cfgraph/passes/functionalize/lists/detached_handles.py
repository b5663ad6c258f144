"""Find and detach the handle of a stack or TensorArray; add the constants of list ops."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from cfgraph.analysis.resource_handles import handle_uses
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import int32
from cfgraph.ir.graph import CONTROL, Graph, Node, Output, Use
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import Shape
from cfgraph.ops.opdef.op import is_identity, role_of


def unchanged_handle_uses(
    handle: Output, *, in_branches: bool = False
) -> tuple[list[Use], list[Node]]:
    """Return the uses of a handle, and the Identities and constant Enters that forward it.

    With `in_branches`, also Switches, behind which uses may be dead where the handle is live.
    """
    uses, handles = handle_uses(handle, _branch_outputs if in_branches else _unchanged_outputs)
    return uses, list(dict.fromkeys(tensor.node for tensor in handles[1:]))


def detach_handle(
    graph: Graph, resource: Node, handles: Sequence[Node], users: Collection[Node] = ()
) -> list[Node]:
    """Return the nodes among `resource`, `handles`, and `users` that can be removed.

    Some may still be needed, since control edges from them show when the resource is live. Handles
    that are needed forward the size input of `resource` from then on, which has its liveness; a new
    Identity of this input replaces the resource.
    """
    needed = _nodes_still_read(resource, handles, {resource, *handles, *users})
    if needed:
        size = graph.add(
            "Identity",
            resource.inputs[0],
            name=f"{resource.name}/size",
            controls=resource.controls,
            device=resource.device,
        )
        for reader in list(resource.control_readers):
            graph.remove_control(reader, resource)
            graph.add_control(reader, size)
        for node in handles:
            if node in needed:
                is_first = node.inputs[0].node is resource
                _forward_size(graph, node, size if is_first else None)
    return [*users, *(node for node in reversed(handles) if node not in needed), resource]


def _nodes_still_read(resource: Node, handles: Sequence[Node], removed: set[Node]) -> set[Node]:
    """Return the handles, and possibly the resource, with consumers that are not removed."""
    needed: set[Node] = set()
    before = -1
    while before != len(needed):
        before = len(needed)
        for node in (*reversed(handles), resource):
            if any(_is_still_read(use, needed, removed) for use in node.uses):
                needed.add(node)
    return needed


def _is_still_read(use: Use, needed: set[Node], removed: set[Node]) -> bool:
    return use.node in needed or (use.slot == CONTROL and use.node not in removed)


def _forward_size(graph: Graph, node: Node, size: Node | None) -> None:
    if size is not None:
        graph.set_input(node, 0, size.output())
    if role_of(node) in (Role.ENTER, Role.SWITCH):
        graph.set_attr(node, "T", int32)
    else:
        graph.set_op(node, "Identity", {"T": int32})


def _unchanged_outputs(node: Node, slot: int) -> list[Output]:
    """The output of an Identity or a constant Enter, which is its input in every iteration."""
    is_constant = role_of(node) is Role.ENTER and bool(node.attr("is_constant"))
    if len(node.inputs) != 1 or not (is_constant or is_identity(node)):
        return []
    return [node.output()]


def _branch_outputs(node: Node, slot: int) -> list[Output]:
    """The outputs of a Switch, or what forwards its input otherwise."""
    if role_of(node) is Role.SWITCH and slot == 0:
        return [node.output(0), node.output(1)]
    return _unchanged_outputs(node, slot)


def anchored_constant(graph: Graph, reader: Node, anchor: Node, name: str, value: object) -> Node:
    """Add an int32 constant for a reader that is live when `anchor` is."""
    is_always_live = not anchor.inputs and not anchor.controls
    return graph.add(
        "Const",
        name=f"{reader.name}/{name}",
        controls=() if is_always_live else [anchor],
        device=reader.device,
        dtype=int32,
        value=TensorValue(np.array(value, np.int32)),
    )


def element_shape_constant(graph: Graph, reader: Node, anchor: Node, shape: Shape) -> Node:
    """Add a shape as list ops expect it: -1 for unknown rank or unknown dimensions."""
    dims = shape.dims
    value = -1 if dims is None else [-1 if size is None else size for size in dims]
    return anchored_constant(graph, reader, anchor, "element_shape", value)
