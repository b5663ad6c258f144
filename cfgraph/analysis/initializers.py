"""What is to run before a graph does: the nodes that give variables and tables their values."""

from __future__ import annotations

from collections.abc import Collection

from cfgraph.analysis.effects import Effects
from cfgraph.analysis.inputs import must_be_fed
from cfgraph.analysis.needed import needed
from cfgraph.ir.graph import Graph, Node
from cfgraph.ops.op import lookup


def initializers(
    graph: Graph, wanted: Collection[Node], unrunnable: Collection[Node] = ()
) -> list[Node]:
    """The first node, in graph order, that initializes each resource that is among `wanted`.

    One that takes no feed and is not `unrunnable`; a single node that waits for them all, as an
    `init` does, stands for several.
    """
    effects, known = Effects(), set(wanted)
    found: dict[Node, Node] = {}
    for node in graph:
        op = lookup(node.op)
        if op is None or not op.initializes or not node.inputs or node in unrunnable:
            continue
        resource = effects.origin(node.inputs[0]).node
        if resource in known and resource not in found and _takes_no_feed(graph, node):
            found[resource] = node
    every = list(found.values())
    if len(every) > 1:
        group = _group_of(graph, every)
        return every if group is None else [group]
    return every


def _group_of(graph: Graph, nodes: Collection[Node]) -> Node | None:
    """A node that does nothing but wait for all of these, and takes no feed."""
    for node in graph:
        waits = not node.inputs and set(node.controls).issuperset(nodes)
        if waits and _takes_no_feed(graph, node):
            return node
    return None


def _takes_no_feed(graph: Graph, node: Node) -> bool:
    return not any(must_be_fed(item) for item in needed(graph, [node]))
