"""Replace a TensorArray by a tensor list that follows its flow.

    TensorArrayV3 ──handle──▶ Write, Read, …        TensorListReserve ──▶ SetItem, GetItem, …
                  ──flow────▶ Write ──flow──▶ …     the list itself takes the place of the flow

A TensorArray written only by one scatter of all its elements becomes the list of the slices of the
scattered tensor. The flow must be linear, so that a list on it contains all writes:

    ──▶ Write ──▶ Write ──▶ Read        a chain, or the two sides of a Switch
    ──▶ Write                           a fork: a reader next to a writer must not influence what
     └▶ Read                            is written, unless the writer waits for that reader"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from cfgraph.ir import registry
from cfgraph.ir.dtypes import variant
from cfgraph.ir.graph import Graph, Node, Output, Use
from cfgraph.ir.role import Role
from cfgraph.ir.shapes import Shape
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
from cfgraph.passes.cluster.formation.liveness_rules import LivenessRule
from cfgraph.passes.cluster.formation.rejection_reasons import not_functionalizable
from cfgraph.passes.cluster.functionalize.handle_uses import (
    detach_handle,
    element_shape_constant,
    handle_uses,
)

_FLOW_PORT: Final = 1
_LENGTH_OP: Final = "TensorListLength"
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


def tensor_arrays(graph: Graph) -> Iterator[Node]:
    """The arrays of a graph."""
    return (node for node in graph if is_a(node, TensorArrayV3))


def tensor_array_use(
    made: Node, liveness: LivenessRule, kept: Collection[Node], shapes: StaticShapes
) -> TensorArrayUse:
    """Who uses an array. Raises Refused where it cannot be a value."""
    use = TensorArrayUse(made)
    if made.attr("dynamic_size"):
        raise not_functionalizable("list", f"the size of {made.name} is not fixed", node=made.name)
    if made.attr("dtype").kind not in ("float", "int", "uint", "complex", "bool"):
        raise not_functionalizable(
            "list", f"{made.name} holds {made.attr('dtype')}", node=made.name
        )
    uses, use.handles = handle_uses(made.output())
    for reader, slot in uses:
        if not is_a(reader, *_SUPPORTED_OPS) or slot != 0:
            raise not_functionalizable(
                "list", f"{reader.name} ({reader.op}) uses it", node=reader.name
            )
        use.users.append(reader)
    _trace_flow(use)
    flows = [made, *use.carriers, *(node for node in use.users if is_a(node, *_WRITE_OPS))]
    asked = [node for node in (*flows, *use.handles) if node in kept]
    if asked:
        raise not_functionalizable("list", f"{asked[0].name} is fetched", node=asked[0].name)
    sizes = [node for node in use.users if is_a(node, TensorArraySizeV3)]
    gathers = [node for node in use.users if is_a(node, TensorArrayGatherV3)]
    use.whole = frozenset(
        n for n in gathers if covers_all_indices(n.inputs[1], made, sizes, shapes)
    )
    fill = use.filled = None if sizes else _complete_fill(use, shapes)
    if fill and not all(liveness.equal(fill, place) for place in (fill.inputs[2], made)):
        raise not_functionalizable("list", f"{fill.name} may be dead while what it writes is not")
    if fill is None and any(is_a(node, TensorArrayScatterV3) for node in use.users):
        raise not_functionalizable("list", "it is written at chosen places", node=made.name)
    return use


def _complete_fill(use: TensorArrayUse, shapes: StaticShapes) -> Node | None:
    """The one node that writes, if it is the first on the flow and writes all elements."""
    writers = [node for node in use.users if is_a(node, *_WRITE_OPS)]
    if len(writers) != 1 or not is_a(writers[0], TensorArrayScatterV3):
        return None
    (fill,) = writers
    if [reader.node for reader in use.made.readers(_FLOW_PORT)] != [fill]:
        return None
    return fill if covers_all_indices(fill.inputs[1], use.made, (), shapes) else None


def _trace_flow(use: TensorArrayUse) -> None:
    users, todo = set(use.users), [use.made.output(_FLOW_PORT)]
    seen = set(todo)
    for item in todo:
        for reader, slot in item.node.uses:
            if slot < 0 or reader.inputs[slot] != item:
                continue
            if reader in users:
                new = [reader.output()] if is_a(reader, *_WRITE_OPS) else []
            elif (_forwards_flow(reader) and slot == 0) or _is_merge(reader):
                use.carriers.append(reader)
                new = [reader.output(port) for port in _flow_ports(reader)]
            else:
                raise not_functionalizable(
                    "list", f"{reader.name} reads its flow", node=reader.name
                )
            for one in new:
                if one not in seen:
                    seen.add(one)
                    todo.append(one)
    use.carriers = list(dict.fromkeys(use.carriers))
    writers = {node for node in users if is_a(node, *_WRITE_OPS)}
    require_linear_flow(todo, writers, set(use.carriers))
    for node in use.carriers:
        for item in node.inputs[: len(node.inputs) if _is_merge(node) else 1]:
            late = lookup(item.node.op)
            if item not in seen and not (late is not None and late.role is Role.NEXT_ITERATION):
                raise not_functionalizable(
                    "list", f"{node.name} joins flows of two arrays", node=node.name
                )


def _forwards_flow(node: Node) -> bool:
    op = lookup(node.op)
    roles = (Role.ENTER, Role.SWITCH, Role.EXIT, Role.NEXT_ITERATION)
    return op is not None and (
        op.role in roles or (op.aliasing.is_identity and len(node.inputs) == 1)
    )


def _is_merge(node: Node) -> bool:
    op = lookup(node.op)
    return op is not None and op.role is Role.MERGE


def _flow_ports(node: Node) -> range:
    op = lookup(node.op)
    return range(2 if op is not None and op.role is Role.SWITCH else 1)


def tensor_array_to_list(graph: Graph, use: TensorArrayUse) -> dict[Node, dict[str, str]]:
    """Replace an array by a list; the nodes that handle it now, and what they stand for."""
    made, filled, shape = use.made, use.filled, use.made.attr("element_shape")
    new: dict[Node, dict[str, str]] = {}
    for node in use.carriers:
        graph.set_attr(node, "T", variant)
        new[node] = {node.name: node.op}
    gone = detach_handle(graph, made, use.handles)
    rest = {node.name: node.op for node in gone}
    if filled is None:
        start = graph.add(
            "TensorListReserve",
            element_shape_constant(graph, made, made.inputs[0].node, shape),
            made.inputs[0],
            name=f"{made.name}/list",
            controls=made.controls,
            device=made.device,
            element_dtype=made.attr("dtype"),
        )
        new[start] = rest
        graph.replace_uses(made.output(_FLOW_PORT), start.output())
    for user in use.users:
        new[user] = {user.name: user.op, **(rest if user is filled else {})}
        _replace_with_list_op(graph, user, use)
    graph.remove(*gone)
    return new


def _replace_with_list_op(graph: Graph, user: Node, use: TensorArrayUse) -> None:
    """Turn an op on an array into that on a list; its name and its readers stay."""
    shape = use.made.attr("element_shape")
    if user is use.filled:
        op, inputs = _fill_as_list_op(graph, user, shape)
    else:
        op, inputs = _use_as_list_op(graph, user, shape, whole=user in use.whole)
    dtype = user.attrs.get("dtype") or user.attrs.get("T")
    sources = [item if isinstance(item, Output) else item.output() for item in inputs]
    attrs = {} if op == _LENGTH_OP else {"element_dtype": dtype}
    graph.set_op(user, op, registry.infer_attrs(user.name, op, tuple(sources), attrs))
    graph.set_inputs(user, sources)


def _fill_as_list_op(graph: Graph, user: Node, shape: Shape) -> tuple[str, list[Output | Node]]:
    value = user.inputs[2]
    return "TensorListFromTensor", [value, element_shape_constant(graph, user, value.node, shape)]


def _use_as_list_op(
    graph: Graph, user: Node, shape: Shape, *, whole: bool
) -> tuple[str, list[Output | Node]]:
    if is_a(user, TensorArrayWriteV3):
        _, index, value, flow = user.inputs
        return "TensorListSetItem", [flow, index, value]
    if is_a(user, TensorArraySizeV3):
        return _LENGTH_OP, [user.inputs[1]]
    _, index, flow = user.inputs
    if is_a(user, TensorArrayReadV3):
        return "TensorListGetItem", [
            flow,
            index,
            element_shape_constant(graph, user, flow.node, shape),
        ]
    said = user.attr("element_shape")
    wanted = element_shape_constant(graph, user, flow.node, shape if said.dims is None else said)
    if whole:
        return "TensorListStack", [flow, wanted]
    return "TensorListGather", [flow, index, wanted]


def covers_all_indices(
    indices: Output, made: Node, sizes: Collection[Node], shapes: StaticShapes
) -> bool:
    """True for 0, 1, 2, … up to the size of an array; `sizes` are the nodes that ask for that."""
    node = strip_identities(indices).node
    if not is_a(node, Range):
        return False
    start, limit, step = (strip_identities(item) for item in node.inputs)
    if (_constant_int(start, shapes), _constant_int(step, shapes)) != (0, 1):
        return False
    return limit.node in sizes or _is_same_number(limit, strip_identities(made.inputs[0]), shapes)


def _is_same_number(one: Output, other: Output, shapes: StaticShapes) -> bool:
    """True if two numbers are equal: known ones, or computed alike from the same tensors."""
    todo = [(one, other)]
    seen = set(todo)
    for mine, theirs in todo:
        if mine == theirs or _is_same_constant(mine, theirs, shapes):
            continue
        if mine.port != theirs.port or not _is_same_computation(mine.node, theirs.node):
            return False
        for pair in zip(mine.node.inputs, theirs.node.inputs, strict=True):
            if pair not in seen:
                seen.add(pair)
                todo.append(pair)
    return True


def _is_same_computation(one: Node, other: Node) -> bool:
    """True for nodes that make the same of the same inputs; those without any are not told."""
    op = lookup(one.op)
    if op is None or op.effects.stateful or op.role or not one.inputs or one.op != other.op:
        return False
    if len(one.inputs) != len(other.inputs):
        return False
    mine, theirs = ({k: v for k, v in node.attrs.items() if k[0] != "_"} for node in (one, other))
    return mine == theirs


def _is_same_constant(one: Output, other: Output, shapes: StaticShapes) -> bool:
    mine, theirs = shapes.value(one), shapes.value(other)
    if mine is None or theirs is None or mine.shape != theirs.shape:
        return False
    return mine.dtype == theirs.dtype and bool((mine == theirs).all())


def _constant_int(item: Output, shapes: StaticShapes) -> int | None:
    value = shapes.value(item)
    return None if value is None or value.ndim else int(value)


def require_linear_flow(
    flows: Iterable[Output], writers: Collection[Node], carriers: Collection[Node]
) -> None:
    """Raise Refused where a flow that is written on has another reader, or comes again."""
    order = list(flows)
    leading = _carriers_before_writers(order, writers, carriers)
    for item in order:
        readers = item.node.readers(item.port)
        later = [use for use in readers if use.node in writers or use.node in leading]
        if not later:
            continue
        if role_of(item.node) is Role.ENTER and item.node.attr("is_constant"):
            text = f"each iteration writes on what {item.node.name} brings"
            raise not_functionalizable("list", text, node=item.node.name)
        for use in readers:
            if use is not later[0] and not _is_harmless_reader(use, later[0], writers, carriers):
                names = f"{later[0].node.name} and {use.node.name}"
                raise not_functionalizable(
                    "list", f"{names} go on from one state of it", node=item.node.name
                )


def _carriers_before_writers(
    flows: list[Output], writers: Collection[Node], carriers: Collection[Node]
) -> set[Node]:
    """The carriers behind which something is written."""
    found: set[Node] = set()
    todo = [item.node for item in flows if any(use.node in writers for use in _flow_uses(item))]
    for node in todo:
        if node in carriers and node not in found:
            found.add(node)
            todo += [item.node for item in node.inputs]
    return found


def _flow_uses(item: Output) -> list[Use]:
    return item.node.readers(item.port)


def _is_harmless_reader(
    use: Use, later: Use, writers: Collection[Node], carriers: Collection[Node]
) -> bool:
    """True for a node that only reads, and is done when the writer writes or waits for no writer.

    An element is written once, so that what was there when the flow came by is there for good.
    """
    reader, writer = use.node, later.node
    if reader in writers or reader in carriers:
        return False
    if writer in writers and reader in _transitive_predecessors(writer, within=True):
        return True
    beside = [item.node for slot, item in enumerate(reader.inputs) if slot != use.slot]
    cones = (_transitive_predecessors(node, within=False) for node in (*beside, *reader.controls))
    return not any(cone.intersection(writers) for cone in cones)


def _transitive_predecessors(node: Node, *, within: bool) -> set[Node]:
    """A node with all that it waits for; `within` one iteration, or in those before as well."""
    found, queue = {node}, [node]
    for here in queue:
        if within and role_of(here) is Role.NEXT_ITERATION:
            continue
        near = {*(item.node for item in here.inputs), *here.controls} - found
        found |= near
        queue += near
    return found
