"""A second graph with the same nodes."""

from __future__ import annotations

from collections.abc import Iterable

from cfgraph.ir.graph import Graph, Node, Output


def copy_of(graph: Graph, nodes: Iterable[Node] | None = None) -> Graph:
    """A graph with the same nodes, library and versions; attribute values are shared.

    `nodes` restricts it to some nodes, which must hold all that they read.
    """
    copy = Graph()
    copy.functions = dict(graph.functions)
    copy.gradient_functions = dict(graph.gradient_functions)
    copy.versions, copy.origin = graph.versions, graph.origin
    chosen = list(graph if nodes is None else nodes)
    made: dict[Node, Node] = {}
    for node in chosen:
        twin = copy.create(node.name, node.op, attrs=dict(node.attrs), device=node.device)
        twin.origin = node.origin
        made[node] = twin
    for node in chosen:
        inputs = [Output(made[item.node], item.port) for item in node.inputs]
        copy.connect(made[node], inputs, [made[control] for control in node.controls])
    return copy
