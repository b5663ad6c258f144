"""Replace stacks and TensorArrays by tensor lists, and check the lists that a graph already has.

Loops that use a list instead of a resource have no side effects. Nodes that pass a list to each
other, or merge two lists, belong to one group."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from cfgraph.analysis.liveness_rules import LivenessRule
from cfgraph.ir.dtypes import NUMERIC_KINDS
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import FORWARDING_ROLES, Role
from cfgraph.ir.traversal import reachable
from cfgraph.ops.opdef.op import Op, lookup, role_of, row_operation
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.passes.functionalize.lists.gradient_arrays import separate_gradient_arrays
from cfgraph.passes.functionalize.lists.stack_to_list import is_stack, stack_to_list, stack_use
from cfgraph.passes.functionalize.lists.tensor_array_to_list import (
    tensor_array_to_list,
    tensor_array_use,
    tensor_arrays,
)
from cfgraph.passes.functionalize.report import (
    RegionRejected,
    RegionReport,
    RejectionReason,
    region_rejected,
)


@dataclass(slots=True)
class FunctionalizedLists:
    """Lists that replaced stacks and TensorArrays, and reports on resources left unchanged.

    `nodes` maps the name of the node that created a stack or TensorArray to the nodes that handle
    the list, each with the names and ops of the original nodes that it replaces. `replaced` is the
    number of stacks and TensorArrays that became lists.
    """

    nodes: dict[str, dict[Node, dict[str, str]]] = field(default_factory=dict)
    replaced: int = 0
    rejected: dict[str, RegionReport] = field(default_factory=dict)

    def __contains__(self, node: Node) -> bool:
        return any(node in nodes for nodes in self.nodes.values())

    def live_nodes(self, graph: Graph) -> dict[str, list[Node]]:
        """Return the nodes of each list that are still in the graph."""
        return {
            name: [node for node in nodes if graph.nodes.get(node.name) is node]
            for name, nodes in self.nodes.items()
        }

    def original_ops(self) -> dict[Node, dict[str, str]]:
        """Return the original nodes that each node on a list replaces."""
        return {node: ops for nodes in self.nodes.values() for node, ops in nodes.items()}

    def computing(self, graph: Graph) -> list[Node]:
        """Return the nodes outside of regions that handle lists, except control flow."""
        groups = self.live_nodes(graph).values()
        return [node for nodes in groups for node in nodes if not role_of(node)]


def has_lists(graph: Graph) -> bool:
    """Return true if a graph has stacks, TensorArrays, or TensorLists."""
    stacks = (node for node in graph if is_stack(node))
    return any(True for _ in chain(tensor_arrays(graph), stacks, tensor_list_groups(graph)))


def functionalize_lists(
    graph: Graph,
    liveness: LivenessRule,
    rejected: Mapping[str, RejectionReason],
    fetched: Collection[Node],
    *,
    traced: bool = False,
) -> FunctionalizedLists:
    """Replace the stacks and TensorArrays of a graph by lists where possible.

    `traced` lists may be extended: cfgraph compiles a cluster for the lengths of the lists in a run
    on kernels, and runs it on kernels again if a list grows further.
    """
    lists = FunctionalizedLists()
    groups = list(tensor_list_groups(graph))
    resources = [*tensor_arrays(graph), *filter(is_stack, graph)]
    if not resources and not groups:
        return lists
    shapes = infer_shapes(graph)
    if traced:
        separate_gradient_arrays(graph, shapes)
        resources = [*tensor_arrays(graph), *filter(is_stack, graph)]
        shapes = infer_shapes(graph)
    for group in groups:
        name, ops = group[0].name, {node.name: node.op for node in group}
        try:
            if name in rejected:
                raise RegionRejected(rejected[name])
            require_static_size(group, shapes, fetched, traced=traced)
            lists.nodes[name] = {node: {node.name: node.op} for node in group}
        except RegionRejected as error:
            lists.rejected[name] = RegionReport("list", name, ops, None, error.reason)
    for is_last in (False, True):
        if is_last and resources and lists.replaced:
            shapes = infer_shapes(graph)  # what is read from a list has a shape now
        later: list[Node] = []
        for node in resources:
            name, op = node.name, node.op
            try:
                if name in rejected:
                    raise RegionRejected(rejected[name])
                if is_stack(node):
                    stack = stack_use(node, liveness, fetched)
                    lists.nodes[name] = stack_to_list(graph, stack, shapes)
                else:
                    use = tensor_array_use(node, liveness, fetched, shapes)
                    if not (is_last or use.shape.is_full):
                        later.append(node)
                        continue
                    lists.nodes[name] = tensor_array_to_list(graph, use)
                lists.replaced += 1
            except RegionRejected as error:
                report = RegionReport("list", name, {name: op}, None, error.reason)
                lists.rejected[name] = report
        resources = later
    return lists


_MAX_ELEMENTS_INPUT: Final = 1
_TRACED_OPERATIONS: Final = ("shape", "sum", "zeros")


def tensor_list_groups(graph: Graph) -> Iterator[list[Node]]:
    """Yield the groups of nodes that handle a common list."""
    seen: set[Node] = set()
    for node in graph:
        if node in seen or not _returns_list(node):
            continue
        group = reachable([node], _list_neighbors)
        seen.update(group)
        yield list(group)


def require_static_size(
    group: list[Node],
    shapes: StaticShapes | None,
    fetched: Collection[Node],
    *,
    traced: bool = False,
) -> None:
    """Raise RegionRejected unless the operations of a group allow a static list size.

    That of a `traced` list follows from a run, without `shapes`.
    """
    operations = set()
    for node in group:
        op, operation = lookup(node.op), row_operation(node)
        if operation in _TRACED_OPERATIONS and not traced:
            operation = ""
        if not operation and (op is None or not _forwards_list(op)):
            text = f"{node.name} ({node.op}) uses it"
            raise region_rejected("list", text, node=node.name)
        if node in fetched and _returns_list(node):
            raise region_rejected("list", f"{node.name} is fetched", node=node.name)
        dtype = node.attrs.get("element_dtype") if operation else None
        if dtype is not None and dtype.kind not in NUMERIC_KINDS:
            raise region_rejected("list", f"{node.name} contains {dtype}", node=node.name)
        may_extend = operation == "put" and node.attr("resize_if_index_out_of_bounds")
        if may_extend and not traced:
            text = f"{node.name} may extend it"
            raise region_rejected("list", text, node=node.name)
        if operation == "empty" and not traced:
            maximum = node.inputs[_MAX_ELEMENTS_INPUT]
            limit = None if shapes is None else shapes.value(maximum)
            if limit is None or limit < 0:
                text = f"the maximum number of elements of {node.name} is unknown"
                raise region_rejected("list", text, node=node.name)
        operations.add(operation)
    if {"push", "all"} <= operations and not traced:
        raise region_rejected("list", "its final number of elements is unknown")


def _forwards_list(op: type[Op]) -> bool:
    """True for an op whose results are lists that it receives, or those of functions."""
    return (
        op.role in FORWARDING_ROLES
        or op.role is Role.ARG
        or op.aliasing.is_identity
        or op.calls.inlined
    )


def _list_neighbors(node: Node) -> Iterator[Node]:
    for tensor in node.inputs:
        if _is_tensor_list(tensor):
            yield tensor.node
    yield from list_readers(node)


def list_readers(node: Node) -> Iterator[Node]:
    """Yield the nodes that read a list from a node."""
    for use in node.uses if _returns_list(node) else ():
        if use.slot >= 0 and _is_tensor_list(use.node.inputs[use.slot]):
            yield use.node


def _returns_list(node: Node) -> bool:
    return any(dtype.kind == "variant" for dtype in node.output_types or ())


def _is_tensor_list(tensor: Output) -> bool:
    dtype = tensor.dtype
    return dtype is not None and dtype.kind == "variant"
