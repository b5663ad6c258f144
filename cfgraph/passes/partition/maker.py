"""New nodes on a device, with names that can be written to a file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cfgraph.ir.graph import Graph, Node, Output


class Maker:
    """Adds nodes to a graph. `beside` holds the Sends, by the node whose output they hand over."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self.beside: dict[Node, list[Node]] = {}

    def make(
        self,
        name: str,
        op: str,
        device: str,
        inputs: Iterable[Output] = (),
        controls: Iterable[Node] = (),
        **attrs: Any,
    ) -> Node:
        """Add a node under a name that is made unique, and does not begin with `_`."""
        graph = self.graph
        name = graph.unique_name(name.lstrip("_/->") or op)
        node = graph.create(name, op, inputs, controls, attrs, device)
        self.nodes.append(node)
        return node
