"""Replace stacks and TensorArrays by tensor lists, and check the lists that a graph already has.

Loops that use a list instead of a resource have no side effects. Nodes that pass a list to each
other, or merge two lists, belong to one group."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from cfgraph.ir import registry
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import lookup, role_of
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.passes.cluster.formation.liveness_rules import LivenessRule
from cfgraph.passes.cluster.formation.rejection_reasons import (
    NotFunctionalizable,
    RejectionReason,
    not_functionalizable,
)
from cfgraph.passes.cluster.formation.report import RegionReport
from cfgraph.passes.cluster.functionalize.stack_to_list import is_stack, stack_to_list, stack_use
from cfgraph.passes.cluster.functionalize.tensor_array_to_list import (
    tensor_array_to_list,
    tensor_array_use,
    tensor_arrays,
)


@dataclass(slots=True)
class FunctionalizedLists:
    """The lists that stacks and arrays became, by the name of what made those, and the refused.

    Each node that handles a list stands for nodes that were: their names and ops.
    """

    nodes: dict[str, dict[Node, dict[str, str]]] = field(default_factory=dict)
    left_unchanged: dict[str, RegionReport] = field(default_factory=dict)

    def live_nodes(self, graph: Graph) -> dict[str, list[Node]]:
        """For each list the nodes that handle it and are still in the graph."""
        return {
            name: [node for node in nodes if graph.nodes.get(node.name) is node]
            for name, nodes in self.nodes.items()
        }

    def original_ops(self) -> dict[Node, dict[str, str]]:
        """What each node that handles a list stands for."""
        return {node: ops for nodes in self.nodes.values() for node, ops in nodes.items()}

    def computing(self, graph: Graph) -> list[Node]:
        """The nodes that handle lists outside of regions, and are no control flow."""
        groups = self.live_nodes(graph).values()
        return [node for nodes in groups for node in nodes if not role_of(node)]


def functionalize_lists(
    graph: Graph,
    liveness: LivenessRule,
    refused: Mapping[str, RejectionReason],
    kept: Collection[Node],
) -> FunctionalizedLists:
    """Replace the stacks and arrays of a graph by lists, where that can be; `kept` nodes stay."""
    lists = FunctionalizedLists()
    given = list(tensor_list_groups(graph))
    made = [*tensor_arrays(graph), *filter(is_stack, graph)]
    if not made and not given:
        return lists
    shapes = infer_shapes(graph)
    for group in given:
        name, ops = group[0].name, {node.name: node.op for node in group}
        try:
            if name in refused:
                raise NotFunctionalizable(refused[name])
            require_static_size(group, shapes, kept)
            lists.nodes[name] = {node: {node.name: node.op} for node in group}
        except NotFunctionalizable as error:
            lists.left_unchanged[name] = RegionReport("list", name, ops, None, error.reason)
    for node in made:
        name, op = node.name, node.op
        try:
            if name in refused:
                raise NotFunctionalizable(refused[name])
            if is_stack(node):
                lists.nodes[name] = stack_to_list(graph, stack_use(node, liveness, kept), shapes)
            else:
                lists.nodes[name] = tensor_array_to_list(
                    graph, tensor_array_use(node, liveness, kept, shapes)
                )
        except NotFunctionalizable as error:
            lists.left_unchanged[name] = RegionReport("list", name, {name: op}, None, error.reason)
    return lists


_FORWARDING_ROLES: Final = (Role.ENTER, Role.SWITCH, Role.MERGE, Role.EXIT, Role.NEXT_ITERATION)
_MAX_ELEMENTS_INPUT: Final = 1


def tensor_list_groups(graph: Graph) -> Iterator[list[Node]]:
    """The nodes that handle lists, in groups."""
    seen: set[Node] = set()
    for node in graph:
        if node in seen or not any(map(_is_tensor_list, _node_outputs(node))):
            continue
        group = dict.fromkeys([node])
        todo = [node]
        for here in todo:
            for near in _list_neighbors(here):
                if near not in group:
                    group[near] = None
                    todo.append(near)
        seen.update(group)
        yield list(group)


def require_static_size(group: list[Node], shapes: StaticShapes, kept: Collection[Node]) -> None:
    """Raise Refused unless each node of a group does to lists what a compiler can."""
    done = set()
    for node in group:
        op = lookup(node.op)
        does = op.compilation.row_operation if op is not None else ""
        carries = op is not None and (op.role in _FORWARDING_ROLES or op.aliasing.is_identity)
        if not does and not carries:
            raise not_functionalizable(
                "list", f"{node.name} ({node.op}) handles it", node=node.name
            )
        if node in kept and any(map(_is_tensor_list, _node_outputs(node))):
            raise not_functionalizable("list", f"{node.name} is fetched", node=node.name)
        if does == "empty":
            limit = shapes.value(node.inputs[_MAX_ELEMENTS_INPUT])
            if limit is None or limit < 0:
                text = f"how many elements {node.name} will have is not known"
                raise not_functionalizable("list", text, node=node.name)
        done.add(does)
    if {"push", "all"} <= done:
        raise not_functionalizable(
            "list", "how many of its elements there are in the end is not known"
        )


def _list_neighbors(node: Node) -> Iterator[Node]:
    for item in node.inputs:
        if _is_tensor_list(item):
            yield item.node
    yield from list_readers(node)


def list_readers(node: Node) -> Iterator[Node]:
    """The nodes that read a list that a node gives."""
    for use in node.uses:
        if use.slot >= 0 and _is_tensor_list(use.node.inputs[use.slot]):
            yield use.node


def _node_outputs(node: Node) -> list[Output]:
    count = registry.output_count(node) or 0
    return [node.output(port) for port in range(min(count, 2) if role_of(node) else count)]


def _is_tensor_list(item: Output) -> bool:
    dtype = item.dtype
    return dtype is not None and dtype.kind == "variant"
