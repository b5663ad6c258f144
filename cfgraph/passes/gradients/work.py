"""What one computation of gradients shares: the graph, what is known of it, and new names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.passes.gradients.knowledge import Knowledge


class Work:
    """A graph that gets gradients.

    `scope` begins the names of all new nodes; `prefix` those of the nodes being added now, which
    ask for `device`. `made` are the nodes that belong to the gradients; others that are added, like
    the counter of a loop, belong to the graph itself.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.known = Knowledge(graph)
        self.scope = _free_scope(graph)
        self.prefix = self.scope
        self.device = ""
        self.made: set[Node] = set()

    def at(self, node: Node) -> None:
        """Let the nodes added from now on be named after this one, and run beside it."""
        self.prefix = f"{self.scope}/{node.name}_grad"
        self.device = node.device

    def add(
        self,
        op: str,
        inputs: Iterable[Output],
        name: str,
        controls: Iterable[Node] = (),
        **attrs: Any,
    ) -> Node:
        """Add a node of the gradients."""
        node = self.add_forward(op, inputs, name, controls, **attrs)
        self.made.add(node)
        return node

    def add_forward(
        self,
        op: str,
        inputs: Iterable[Output],
        name: str,
        controls: Iterable[Node] = (),
        **attrs: Any,
    ) -> Node:
        """Add a node to what is differentiated."""
        node = self.graph.add(
            op,
            *inputs,
            name=f"{self.prefix}/{name}",
            controls=controls,
            device=self.device,
            attrs=attrs,
        )
        self.known.learn(node)
        return node


def _free_scope(graph: Graph) -> str:
    """`gradients`, or `gradients_1`, … where names begin with that."""
    taken = {name.split("/", 1)[0] for name in graph.nodes}
    number, scope = 0, "gradients"
    while scope in taken:
        number += 1
        scope = f"gradients_{number}"
    return scope
