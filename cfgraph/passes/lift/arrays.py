"""Let a TensorArray be a value: a tensor list that goes the way of its flow.

    TensorArrayV3 ──handle──▶ Write, Read, …        TensorListReserve ──▶ SetItem, GetItem, …
                  ──flow────▶ Write ──flow──▶ …     the list itself is what flows

An array that only a fill of all its elements writes is the list of that tensor's slices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from cfgraph.ir import registry
from cfgraph.ir.dtypes import variant
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.op import is_a, lookup
from cfgraph.ops.shape_inference import Shapes
from cfgraph.ops.tensor_array_bulk import TensorArrayGatherV3, TensorArrayScatterV3
from cfgraph.ops.tensor_array_ops import (
    TensorArrayReadV3,
    TensorArraySizeV3,
    TensorArrayV3,
    TensorArrayWriteV3,
)
from cfgraph.passes.cluster.agreement import Agreement
from cfgraph.passes.lift.array_sizes import names_all
from cfgraph.passes.lift.constants import shape_constant
from cfgraph.passes.lift.flows import require_one_way
from cfgraph.passes.lift.handles import uses_of, without_handle
from cfgraph.passes.lift.refused import refused

_FLOW: Final = 1
_LENGTH: Final = "TensorListLength"
_WRITERS: Final = (TensorArrayWriteV3, TensorArrayScatterV3)
_DONE: Final = (
    TensorArrayReadV3,
    TensorArrayWriteV3,
    TensorArrayScatterV3,
    TensorArrayGatherV3,
    TensorArraySizeV3,
)


@dataclass(slots=True)
class ArrayUse:
    """An array: the ops that use it by its handle, and what its flow passes on the way.

    `filled` is the one node that writes, if it writes all elements from the first on; `whole` are
    the nodes that gather all.
    """

    made: Node
    users: list[Node] = field(default_factory=list)
    carriers: list[Node] = field(default_factory=list)
    handles: list[Node] = field(default_factory=list)
    filled: Node | None = None
    whole: frozenset[Node] = frozenset()


def arrays(graph: Graph) -> Iterator[Node]:
    """The arrays of a graph."""
    return (node for node in graph if is_a(node, TensorArrayV3))


def array_use(made: Node, agreed: Agreement, kept: Collection[Node], shapes: Shapes) -> ArrayUse:
    """Who uses an array. Raises Refused where it cannot be a value."""
    use = ArrayUse(made)
    if made.attr("dynamic_size"):
        raise refused("list", f"the size of {made.name} is not fixed", node=made.name)
    if made.attr("dtype").kind not in ("float", "int", "uint", "complex", "bool"):
        raise refused("list", f"{made.name} holds {made.attr('dtype')}", node=made.name)
    uses, use.handles = uses_of(made.output())
    for reader, slot in uses:
        if not is_a(reader, *_DONE) or slot != 0:
            raise refused("list", f"{reader.name} ({reader.op}) uses it", node=reader.name)
        use.users.append(reader)
    _follow_flow(use)
    flows = [made, *use.carriers, *(node for node in use.users if is_a(node, *_WRITERS))]
    asked = [node for node in (*flows, *use.handles) if node in kept]
    if asked:
        raise refused("list", f"{asked[0].name} is fetched", node=asked[0].name)
    sizes = [node for node in use.users if is_a(node, TensorArraySizeV3)]
    gathers = [node for node in use.users if is_a(node, TensorArrayGatherV3)]
    use.whole = frozenset(n for n in gathers if names_all(n.inputs[1], made, sizes, shapes))
    fill = use.filled = None if sizes else _fill(use, shapes)
    if fill and not all(agreed.same(fill, place) for place in (fill.inputs[2], made)):
        raise refused("list", f"{fill.name} may be dead while what it writes is not")
    if fill is None and any(is_a(node, TensorArrayScatterV3) for node in use.users):
        raise refused("list", "it is written at chosen places", node=made.name)
    return use


def _fill(use: ArrayUse, shapes: Shapes) -> Node | None:
    """The one node that writes, if it is the first on the flow and writes all elements."""
    writers = [node for node in use.users if is_a(node, *_WRITERS)]
    if len(writers) != 1 or not is_a(writers[0], TensorArrayScatterV3):
        return None
    (fill,) = writers
    if [reader.node for reader in use.made.readers(_FLOW)] != [fill]:
        return None
    return fill if names_all(fill.inputs[1], use.made, (), shapes) else None


def _follow_flow(use: ArrayUse) -> None:
    users, todo = set(use.users), [use.made.output(_FLOW)]
    seen = set(todo)
    for item in todo:
        for reader, slot in item.node.uses:
            if slot < 0 or reader.inputs[slot] != item:
                continue
            if reader in users:
                new = [reader.output()] if is_a(reader, *_WRITERS) else []
            elif (_carries(reader) and slot == 0) or _merges(reader):
                use.carriers.append(reader)
                new = [reader.output(port) for port in _ports(reader)]
            else:
                raise refused("list", f"{reader.name} reads its flow", node=reader.name)
            for one in new:
                if one not in seen:
                    seen.add(one)
                    todo.append(one)
    use.carriers = list(dict.fromkeys(use.carriers))
    writers = {node for node in users if is_a(node, *_WRITERS)}
    require_one_way(todo, writers, set(use.carriers))
    for node in use.carriers:
        for item in node.inputs[: len(node.inputs) if _merges(node) else 1]:
            late = lookup(item.node.op)
            if item not in seen and not (late is not None and late.role == "next_iteration"):
                raise refused("list", f"{node.name} joins flows of two arrays", node=node.name)


def _carries(node: Node) -> bool:
    op = lookup(node.op)
    roles = ("enter", "switch", "exit", "next_iteration")
    return op is not None and (op.role in roles or (op.forwards and len(node.inputs) == 1))


def _merges(node: Node) -> bool:
    op = lookup(node.op)
    return op is not None and op.role == "merge"


def _ports(node: Node) -> range:
    op = lookup(node.op)
    return range(2 if op is not None and op.role == "switch" else 1)


def array_as_list(graph: Graph, use: ArrayUse) -> dict[Node, dict[str, str]]:
    """Replace an array by a list; the nodes that handle it now, and what they stand for."""
    made, filled, shape = use.made, use.filled, use.made.attr("element_shape")
    new: dict[Node, dict[str, str]] = {}
    for node in use.carriers:
        graph.set_attr(node, "T", variant)
        new[node] = {node.name: node.op}
    gone = without_handle(graph, made, use.handles)
    rest = {node.name: node.op for node in gone}
    if filled is None:
        start = graph.add(
            "TensorListReserve",
            shape_constant(graph, made, made.inputs[0].node, shape),
            made.inputs[0],
            name=f"{made.name}/list",
            controls=made.controls,
            device=made.device,
            element_dtype=made.attr("dtype"),
        )
        new[start] = rest
        graph.replace_uses(made.output(_FLOW), start.output())
    for user in use.users:
        new[user] = {user.name: user.op, **(rest if user is filled else {})}
        _become(graph, user, use)
    graph.remove(*gone)
    return new


def _become(graph: Graph, user: Node, use: ArrayUse) -> None:
    """Turn an op on an array into that on a list; its name and its readers stay."""
    shape = use.made.attr("element_shape")
    if user is use.filled:
        op, inputs = _written(graph, user, shape)
    else:
        op, inputs = _used(graph, user, shape, whole=user in use.whole)
    dtype = user.attrs.get("dtype") or user.attrs.get("T")
    sources = [item if isinstance(item, Output) else item.output() for item in inputs]
    attrs = {} if op == _LENGTH else {"element_dtype": dtype}
    graph.set_op(user, op, registry.complete(user.name, op, tuple(sources), attrs))
    graph.set_inputs(user, sources)


def _written(graph: Graph, user: Node, shape: Shape) -> tuple[str, list[Output | Node]]:
    value = user.inputs[2]
    return "TensorListFromTensor", [value, shape_constant(graph, user, value.node, shape)]


def _used(
    graph: Graph, user: Node, shape: Shape, *, whole: bool
) -> tuple[str, list[Output | Node]]:
    if is_a(user, TensorArrayWriteV3):
        _, index, value, flow = user.inputs
        return "TensorListSetItem", [flow, index, value]
    if is_a(user, TensorArraySizeV3):
        return _LENGTH, [user.inputs[1]]
    _, index, flow = user.inputs
    if is_a(user, TensorArrayReadV3):
        return "TensorListGetItem", [flow, index, shape_constant(graph, user, flow.node, shape)]
    said = user.attr("element_shape")
    wanted = shape_constant(graph, user, flow.node, shape if said.dims is None else said)
    if whole:
        return "TensorListStack", [flow, wanted]
    return "TensorListGather", [flow, index, wanted]
