"""Updates of variables that outputs wait for without reading a value of them.

x ──▶ assign v                      x
        ┆            becomes        ┆
z ──▶   y                     z ──▶ y
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from cfgraph.analysis.effects import EffectAnalysis
from cfgraph.analysis.resource_handles import is_variable
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import ancestors, reachable
from cfgraph.ops.opdef.op import role_of


def awaited_updates(graph: Graph, outputs: Collection[Node]) -> list[Node]:
    """The nodes that write variables, and that only control edges connect to the outputs."""
    writers = {
        access.node
        for access in EffectAnalysis().accesses(graph)
        if access.writes and access.name in graph and is_variable(graph[access.name])
    }
    if not writers:
        return []

    def read(node: Node) -> Iterator[Node]:
        yield from (tensor.node for tensor in node.inputs)
        yield from (control for control in node.controls if control not in writers)

    needed = reachable(outputs, read)
    return [node for node in ancestors(graph, outputs) if node in writers and node not in needed]


def drop_updates(graph: Graph, updates: Collection[Node]) -> None:
    """Let what waits for these updates wait for their inputs instead."""
    for update in updates:
        inputs = [tensor for tensor in update.inputs if tensor.node.predecessors]
        varying = [tensor for tensor in inputs if not _is_constant_enter(tensor.node)]
        sources = [_live_with(graph, tensor) for tensor in varying or inputs]
        sources += [control for control in update.controls if control.predecessors]
        for node in update.control_readers:
            others = [control for control in node.controls if control is not update]
            graph.set_controls(node, list(dict.fromkeys([*others, *sources])))


def _is_constant_enter(node: Node) -> bool:
    """True for a node that is live in each iteration of its loop."""
    return role_of(node) is Role.ENTER and bool(node.attr("is_constant"))


def _live_with(graph: Graph, tensor: Output) -> Node:
    """A node that is live where a tensor is, which a Switch by itself is not."""
    if role_of(tensor.node) is not Role.SWITCH:
        return tensor.node
    name = f"{tensor.node.name}/pivot"
    return graph.add("Identity", tensor, name=name, device=tensor.node.device)
