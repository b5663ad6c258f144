"""Rollback: a pass that raises leaves its graph unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cfgraph.ir.graph import Graph
from cfgraph.ir.node import Node


class _GraphState:
    """Shallow copies of everything in a graph that a pass may edit in place."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = dict(graph.nodes)
        self.fields = [_node_fields(node) for node in graph]
        self.functions = dict(graph.functions)
        self.gradient_functions = dict(graph.gradient_functions)
        self.versions, self.origin = graph.versions, graph.origin
        self.name_suffixes = dict(graph.name_suffixes)

    def restore(self, graph: Graph) -> None:
        """Undo all edits; the nodes are the same objects as before."""
        for node, fields in zip(self.nodes.values(), self.fields, strict=True):
            node.name, node.op, node.device, node.origin = fields[:4]
            node.attrs, node.inputs, node.controls, node.uses = fields[4:]
        graph.nodes = self.nodes
        graph.functions = self.functions
        graph.gradient_functions = self.gradient_functions
        graph.versions, graph.origin = self.versions, self.origin
        graph.name_suffixes = self.name_suffixes
        # derived data of the edited graph are stale, and so are those of its devices
        graph.edits += 1
        graph.moves += 1


def _node_fields(node: Node) -> tuple[Any, ...]:
    identity = (node.name, node.op, node.device, node.origin)
    return (*identity, dict(node.attrs), node.inputs, node.controls, dict(node.uses))


@contextmanager
def unchanged_on_error(graph: Graph) -> Iterator[None]:
    """Undo all edits of a graph if the body raises."""
    state = _GraphState(graph)
    try:
        yield
    except BaseException:
        state.restore(graph)
        raise
