"""Replace a TensorArray by a tensor list that follows its flow.

    TensorArrayV3 ──handle──▶ Write, Read, …        TensorListReserve ──▶ SetItem, GetItem, …
                  ──flow────▶ Write ──flow──▶ …     the list itself takes the place of the flow

A TensorArray written only by one scatter of all its elements becomes the list of the slices of the
scattered tensor. A list grows where the TensorArray does. The flow must be linear, so that a list
on it contains all writes:

    ──▶ Write ──▶ Write ──▶ Read        a chain, or the two sides of a Switch
    ──▶ Write                           a fork: a reader next to a writer must not influence what
     └▶ Read                            is written, unless the writer waits for that reader"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Final

import numpy as np

from cfgraph.analysis.liveness_rules import LivenessRule
from cfgraph.ir import registry
from cfgraph.ir.dtypes import NUMERIC_KINDS, variant
from cfgraph.ir.graph import Graph, Node, Output, Use
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ir.traversal import reachable
from cfgraph.ops.families.constants import Const
from cfgraph.ops.families.ranges import Range
from cfgraph.ops.families.tensor_array_ops import (
    TensorArrayGatherV3,
    TensorArrayReadV3,
    TensorArrayScatterV3,
    TensorArraySizeV3,
    TensorArrayV3,
    TensorArrayWriteV3,
)
from cfgraph.ops.opdef.op import is_a, lookup, role_of, strip_identities
from cfgraph.ops.shape_inference import StaticShapes
from cfgraph.passes.functionalize.lists.detached_handles import (
    detach_handle,
    element_shape_constant,
    unchanged_handle_uses,
)
from cfgraph.passes.functionalize.report import region_rejected

_FLOW_PORT: Final = 1
_LENGTH_OP: Final = "TensorListLength"
_SET_OP: Final = "TensorListSetItem"
_WRITE_OPS: Final = (TensorArrayWriteV3, TensorArrayScatterV3)
_SUPPORTED_OPS: Final = (
    TensorArrayReadV3,
    TensorArrayWriteV3,
    TensorArrayScatterV3,
    TensorArrayGatherV3,
    TensorArraySizeV3,
)


@dataclass(slots=True)
class TensorArrayUse:
    """A TensorArray, the ops that use its handle, and the nodes that forward handle and flow.

    `fill` is the only writer, if it writes all elements; `full_gathers` are the nodes that gather
    all elements in order. `shape` is the shape of an element, declared or of all that are written.
    """

    array: Node
    users: list[Node] = field(default_factory=list)
    carriers: list[Node] = field(default_factory=list)
    handles: list[Node] = field(default_factory=list)
    fill: Node | None = None
    full_gathers: frozenset[Node] = frozenset()
    shape: Shape = UNKNOWN_SHAPE


def tensor_arrays(graph: Graph) -> Iterator[Node]:
    """Yield the TensorArrays of a graph."""
    return (node for node in graph if is_a(node, TensorArrayV3))


def tensor_array_use(
    array: Node, liveness: LivenessRule, fetched: Collection[Node], shapes: StaticShapes
) -> TensorArrayUse:
    """Return the uses of a TensorArray; raise RegionRejected if it cannot be a list."""
    use = TensorArrayUse(array)
    if array.attr("dtype").kind not in NUMERIC_KINDS:
        text = f"{array.name} contains {array.attr('dtype')}"
        raise region_rejected("list", text, node=array.name)
    uses, use.handles = unchanged_handle_uses(array.output(), in_branches=True)
    for reader, slot in uses:
        if not is_a(reader, *_SUPPORTED_OPS) or slot != 0:
            text = f"{reader.name} ({reader.op}) uses it"
            raise region_rejected("list", text, node=reader.name)
        use.users.append(reader)
    _require_liveness_of_flow(use, liveness)
    _trace_flow(use)
    flows = [array, *use.carriers, *(node for node in use.users if is_a(node, *_WRITE_OPS))]
    for node in (*flows, *use.handles):
        if node in fetched:
            raise region_rejected("list", f"{node.name} is fetched", node=node.name)
    sizes = [node for node in use.users if is_a(node, TensorArraySizeV3)]
    gathers = [node for node in use.users if is_a(node, TensorArrayGatherV3)]
    use.full_gathers = frozenset(
        n
        for n in gathers
        if covers_all_indices(n.inputs[1], array, _sizes_for(n, array, sizes), shapes)
    )
    fill = use.fill = None if sizes else _complete_fill(use, shapes)
    if fill and not all(liveness.equal(fill, source) for source in (fill.inputs[2], array)):
        raise region_rejected("list", f"{fill.name} may be dead when its value is live")
    if fill is None and any(is_a(node, TensorArrayScatterV3) for node in use.users):
        raise region_rejected("list", "it is scattered to some of its indices", node=array.name)
    use.shape = _element_shape(use, shapes)
    return use


def _require_liveness_of_flow(use: TensorArrayUse, liveness: LivenessRule) -> None:
    """Raise RegionRejected if only a branch of the handle keeps a node from running."""
    if any(role_of(node) is Role.SWITCH for node in use.handles):
        for user in use.users:
            if not liveness.equal(user, user.inputs[-1]):
                text = f"{user.name} runs where its handle is live, not where its flow is"
                raise region_rejected("list", text, node=user.name)


def _sizes_for(gather: Node, array: Node, sizes: Collection[Node]) -> Collection[Node]:
    """The nodes that return the size that a gather finds: of a growing array, those at its flow."""
    if not array.attr("dynamic_size"):
        return sizes
    flow = strip_identities(gather.inputs[2])
    return [node for node in sizes if strip_identities(node.inputs[1]) == flow]


def _element_shape(use: TensorArrayUse, shapes: StaticShapes) -> Shape:
    """The declared shape of an element, or the static shape that all written elements have."""
    declared = use.array.attr("element_shape")
    written = {
        shapes[node.inputs[2]][1:] if is_a(node, TensorArrayScatterV3) else shapes[node.inputs[2]]
        for node in use.users
        if is_a(node, *_WRITE_OPS)
    }
    shape = written.pop() if len(written) == 1 else UNKNOWN_SHAPE
    return shape if shape.is_full and declared.accepts(shape) else declared


def _complete_fill(use: TensorArrayUse, shapes: StaticShapes) -> Node | None:
    """Return the only writer, if it is the first on the flow and writes all elements."""
    writers = [node for node in use.users if is_a(node, *_WRITE_OPS)]
    if len(writers) != 1 or not is_a(writers[0], TensorArrayScatterV3):
        return None
    (fill,) = writers
    if [reader.node for reader in use.array.readers(_FLOW_PORT)] != [fill]:
        return None
    return fill if covers_all_indices(fill.inputs[1], use.array, (), shapes) else None


def _trace_flow(use: TensorArrayUse) -> None:
    users, todo = set(use.users), [use.array.output(_FLOW_PORT)]
    seen = set(todo)
    for flow in todo:
        for reader, slot in flow.node.uses:
            if slot < 0 or reader.inputs[slot] != flow:
                continue
            if reader in users:
                new = [reader.output()] if is_a(reader, *_WRITE_OPS) else []
            elif (_forwards_flow(reader) and slot == 0) or _is_merge(reader):
                use.carriers.append(reader)
                new = [reader.output(port) for port in _flow_ports(reader)]
            else:
                text = f"{reader.name} reads its flow"
                raise region_rejected("list", text, node=reader.name)
            for output in new:
                if output not in seen:
                    seen.add(output)
                    todo.append(output)
    use.carriers = list(dict.fromkeys(use.carriers))
    writers = {node for node in users if is_a(node, *_WRITE_OPS)}
    require_linear_flow(todo, writers, set(use.carriers))
    for node in use.carriers:
        for flow in node.inputs[: len(node.inputs) if _is_merge(node) else 1]:
            if flow not in seen and role_of(flow.node) is not Role.NEXT_ITERATION:
                text = f"{node.name} merges the flows of two TensorArrays"
                raise region_rejected("list", text, node=node.name)


def _forwards_flow(node: Node) -> bool:
    op = lookup(node.op)
    roles = (Role.ENTER, Role.SWITCH, Role.EXIT, Role.NEXT_ITERATION)
    return op is not None and (
        op.role in roles or (op.aliasing.is_identity and len(node.inputs) == 1)
    )


def _is_merge(node: Node) -> bool:
    return role_of(node) is Role.MERGE


def _flow_ports(node: Node) -> range:
    return range(2 if role_of(node) is Role.SWITCH else 1)


def tensor_array_to_list(graph: Graph, use: TensorArrayUse) -> dict[Node, dict[str, str]]:
    """Replace a TensorArray by a list.

    Returns the nodes that handle the list, each with the original nodes that it replaces.
    """
    array, fill, shape = use.array, use.fill, use.shape
    new: dict[Node, dict[str, str]] = {}
    for node in use.carriers:
        graph.set_attr(node, "T", variant)
        new[node] = {node.name: node.op}
    removed = detach_handle(graph, array, use.handles)
    removed_ops = {node.name: node.op for node in removed}
    if fill is None:
        start = graph.add(
            "TensorListReserve",
            element_shape_constant(graph, array, array.inputs[0].node, shape),
            array.inputs[0],
            name=f"{array.name}/list",
            controls=array.controls,
            device=array.device,
            element_dtype=array.attr("dtype"),
        )
        new[start] = removed_ops
        graph.replace_uses(array.output(_FLOW_PORT), start.output())
    for user in use.users:
        new[user] = {user.name: user.op, **(removed_ops if user is fill else {})}
        _replace_with_list_op(graph, user, use)
    graph.remove(*removed)
    return new


def _replace_with_list_op(graph: Graph, user: Node, use: TensorArrayUse) -> None:
    """Replace the op of a node by its counterpart for lists; name and consumers stay."""
    shape = use.shape
    if user is use.fill:
        op, inputs = _fill_as_list_op(graph, user, shape)
    else:
        op, inputs = _use_as_list_op(graph, user, shape, is_full=user in use.full_gathers)
    dtype = user.attrs.get("dtype") or user.attrs.get("T")
    sources = [each if isinstance(each, Output) else each.output() for each in inputs]
    attrs = {} if op == _LENGTH_OP else {"element_dtype": dtype}
    if op == _SET_OP and use.array.attr("dynamic_size"):
        attrs["resize_if_index_out_of_bounds"] = True
    graph.set_op(user, op, registry.infer_attrs(user.name, op, tuple(sources), attrs))
    graph.set_inputs(user, sources)


def _fill_as_list_op(graph: Graph, user: Node, shape: Shape) -> tuple[str, list[Output | Node]]:
    value = user.inputs[2]
    return "TensorListFromTensor", [value, element_shape_constant(graph, user, value.node, shape)]


def _use_as_list_op(
    graph: Graph, user: Node, shape: Shape, *, is_full: bool
) -> tuple[str, list[Output | Node]]:
    if is_a(user, TensorArrayWriteV3):
        _, index, value, flow = user.inputs
        return _SET_OP, [flow, index, value]
    if is_a(user, TensorArraySizeV3):
        return _LENGTH_OP, [user.inputs[1]]
    _, index, flow = user.inputs
    if is_a(user, TensorArrayReadV3):
        element_shape = element_shape_constant(graph, user, flow.node, shape)
        return "TensorListGetItem", [flow, index, element_shape]
    own_shape = user.attr("element_shape")
    element_shape = element_shape_constant(
        graph, user, flow.node, shape if own_shape.dims is None else own_shape
    )
    if is_full:
        return "TensorListStack", [flow, element_shape]
    return "TensorListGather", [flow, index, element_shape]


def covers_all_indices(
    indices: Output, array: Node, sizes: Collection[Node], shapes: StaticShapes
) -> bool:
    """Return true for 0, 1, 2, … up to the size of an array, which `sizes` nodes return."""
    source, grows = strip_identities(indices), array.attr("dynamic_size")
    node, values = source.node, shapes.value(source)
    if values is None and is_a(node, Const):
        values = node.attr("value").array
    if values is not None:
        size = None if grows else _constant_int(array.inputs[0], shapes)
        return size is not None and np.array_equal(values, np.arange(size))
    if not is_a(node, Range):
        return False
    start, limit, step = (strip_identities(tensor) for tensor in node.inputs)
    if (_constant_int(start, shapes), _constant_int(step, shapes)) != (0, 1):
        return False
    if limit.node in sizes or grows:
        return limit.node in sizes
    return _is_same_number(limit, strip_identities(array.inputs[0]), shapes)


def _is_same_number(a: Output, b: Output, shapes: StaticShapes) -> bool:
    """Return true if two numbers are constants or pure computations of equal value."""
    todo = [(a, b)]
    seen = set(todo)
    for x, y in todo:
        if x == y or _is_same_constant(x, y, shapes):
            continue
        if x.port != y.port or not _is_same_computation(x.node, y.node):
            return False
        for pair in zip(x.node.inputs, y.node.inputs, strict=True):
            if pair not in seen:
                seen.add(pair)
                todo.append(pair)
    return True


def _is_same_computation(a: Node, b: Node) -> bool:
    """Return true for nodes with inputs that compute equal values from equal inputs."""
    op = lookup(a.op)
    if op is None or op.effects.stateful or op.role or not a.inputs or a.op != b.op:
        return False
    if len(a.inputs) != len(b.inputs):
        return False
    x, y = ({k: v for k, v in node.attrs.items() if k[0] != "_"} for node in (a, b))
    return x == y


def _is_same_constant(a: Output, b: Output, shapes: StaticShapes) -> bool:
    x, y = shapes.value(a), shapes.value(b)
    if x is None or y is None or x.shape != y.shape:
        return False
    return x.dtype == y.dtype and bool((x == y).all())


def _constant_int(tensor: Output, shapes: StaticShapes) -> int | None:
    value = shapes.value(tensor)
    return None if value is None or value.ndim else int(value)


def require_linear_flow(
    flows: Iterable[Output], writers: Collection[Node], carriers: Collection[Node]
) -> None:
    """Raise RegionRejected if a flow that is written later has another reader that matters."""
    order = list(flows)
    leading = _carriers_before_writers(order, writers, carriers)
    for flow in order:
        readers = _flow_uses(flow)
        next_states = [use for use in readers if use.node in writers or use.node in leading]
        if not next_states:
            continue
        if role_of(flow.node) is Role.ENTER and flow.node.attr("is_constant"):
            text = f"each iteration writes to the same state, from {flow.node.name}"
            raise region_rejected("list", text, node=flow.node.name)
        for state, use in product(next_states, readers):
            if use is not state and not _is_harmless_reader(use, state, writers, carriers):
                text = f"{state.node.name} and {use.node.name} continue from the same state"
                raise region_rejected("list", text, node=flow.node.name)


def _carriers_before_writers(
    flows: list[Output], writers: Collection[Node], carriers: Collection[Node]
) -> set[Node]:
    """Return the carriers upstream of writers."""
    written = [flow.node for flow in flows if any(use.node in writers for use in _flow_uses(flow))]
    sources = reachable(written, lambda n: [x.node for x in n.inputs] if n in carriers else ())
    return {node for node in sources if node in carriers}


def _flow_uses(flow: Output) -> list[Use]:
    return flow.node.readers(flow.port)


def _is_harmless_reader(
    use: Use, later: Use, writers: Collection[Node], carriers: Collection[Node]
) -> bool:
    """Return true for a node that only reads, and precedes the writer or depends on no writer.

    An element is written once, so an element read from a later state is the same. Of two Switches,
    one may lead to the other branch.
    """
    reader, writer = use.node, later.node
    if _are_opposite(reader, writer):
        return True
    if reader in writers or reader in carriers:
        return False
    if writer in writers and reader in _transitive_predecessors(writer, same_iteration=True):
        return True
    inputs = [tensor.node for slot, tensor in enumerate(reader.inputs) if slot != use.slot]
    cones = (
        _transitive_predecessors(node, same_iteration=False) for node in (*inputs, *reader.controls)
    )
    return not any(cone.intersection(writers) for cone in cones)


def _are_opposite(first: Node, second: Node) -> bool:
    """Return true for two Switches on one predicate that are not read on the same side."""
    if not all(role_of(node) is Role.SWITCH for node in (first, second)):
        return False
    predicates = {strip_identities(node.inputs[1]) for node in (first, second)}
    return len(predicates) == 1 and not any(
        first.readers(port) and second.readers(port) for port in (0, 1)
    )


def _transitive_predecessors(node: Node, *, same_iteration: bool) -> set[Node]:
    """Return a node and its predecessors, across iterations unless `same_iteration`."""

    def predecessors(current: Node) -> list[Node]:
        is_end = same_iteration and role_of(current) is Role.NEXT_ITERATION
        return [] if is_end else current.predecessors

    return set(reachable([node], predecessors))
