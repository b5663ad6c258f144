"""The subject of a reduction: one graph, or two that are edited alike, with its size."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cfgraph.analysis.verify.verify import verify
from cfgraph.errors import CfgraphError
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.files import dumps
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import copy_graph
from cfgraph.ir.traversal import topological_order
from cfgraph.passes.lowering import lower

# an edit of one graph; None if it cannot be applied
GraphEdit = Callable[[Graph], Graph | None]
Size = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """The graphs that a test runs on; in a comparison the second one is compared with the first."""

    graphs: tuple[Graph, ...]

    def edited(self, edit: GraphEdit) -> Subject | None:
        """Return the subject with all graphs edited, None if one of them cannot be."""
        graphs: list[Graph] = []
        for graph in self.graphs:
            try:
                new = edit(graph)
            except (CfgraphError, ValueError):
                new = None
            if new is None:
                return None
            graphs.append(new)
        return Subject(tuple(graphs))

    def lowered(self) -> Subject | None:
        """Return the subject without function calls; None without calls, or with new faults."""
        if not any(graph.functions for graph in self.graphs):
            return None
        new = self.edited(_lowered)
        return new if new is not None and new.faults() <= self.faults() else None

    @property
    def nodes(self) -> int:
        """The number of nodes of the first graph, and of its functions."""
        return _node_count(self.graphs[0])

    def size(self) -> Size:
        """Return the size; a smaller one is better.

        Nodes that compute count first, then all nodes, edges, functions, the depths of the nodes
        that edges lead from, elements of constants, and annotations.
        """
        sizes = [_graph_size(graph) for graph in self.graphs]
        return tuple(map(sum, zip(*sizes, strict=True)))

    def faults(self) -> frozenset[tuple[int, str]]:
        """Return the codes of the errors and warnings of each graph."""
        return frozenset(
            (number, finding.code)
            for number, graph in enumerate(self.graphs)
            for finding in verify(graph)
            if finding.level != "note"
        )

    def encoded(self) -> tuple[bytes, ...]:
        """Return the graphs as bytes."""
        return tuple(dumps(graph) for graph in self.graphs)

    def digest(self) -> bytes:
        """Return a digest of the graphs."""
        return hashlib.sha256(b"|".join(self.encoded())).digest()


def _lowered(graph: Graph) -> Graph:
    copy = copy_graph(graph)
    lower(copy)
    return copy


def _node_count(graph: Graph) -> int:
    bodies = (function.definition.nodes for function in graph.functions.values())
    return len(graph) + sum(map(len, bodies))


def _graph_size(graph: Graph) -> Size:
    depths = _depths(graph)
    computing = sum(1 for node in graph if node.inputs)
    bodies = [function.definition.nodes for function in graph.functions.values()]
    computing += sum(1 for body in bodies for node in body if node.inputs)
    edges = sum(len(node.inputs) + len(node.controls) for node in graph)
    edges += sum(len(node.inputs) for body in bodies for node in body)
    depth = sum(depths[item.node] for node in graph for item in node.inputs)
    return (
        computing,
        _node_count(graph),
        edges,
        len(graph.functions),
        depth,
        sum(_elements(node) for node in graph),
        sum(bool(node.device) + sum(key[:1] == "_" for key in node.attrs) for node in graph),
    )


def _depths(graph: Graph) -> dict[Node, int]:
    """Return the length of the longest path to each node; back edges of loops do not count."""
    depths: dict[Node, int] = {}
    for node in topological_order(graph).nodes:
        depths[node] = 1 + max((depths.get(item.node, 0) for item in node.inputs), default=-1)
    return depths


def _elements(node: Node) -> int:
    """Count the elements of the constants of a node."""
    return sum(value.shape.elements or 0 for value in _tensors(node))


def _tensors(node: Node) -> Iterator[TensorValue]:
    value: Any
    for value in node.attrs.values():
        if isinstance(value, TensorValue):
            yield value
