"""Identifiers of graphs and nodes, those of Model Explorer's own view of a GraphDef.

The graph is `main` and a function has its name; a node is its index, and in a function the first
node stands for the arguments. A loop of Enter and Exit is a further graph, of the frame's path,
with the indices of `main`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from cfgraph.analysis.loops.frame import Frame
from cfgraph.analysis.loops.frames import frames
from cfgraph.ir.graph import Graph, Node

MAIN: Final = "main"
ARGUMENTS: Final = "0"


def node_ids(
    graph: Graph, arguments: Collection[Node] = (), *, is_function: bool = False
) -> dict[Node, str]:
    """The identifier of each node; the `arguments` of a function share the first one."""
    ids = dict.fromkeys(arguments, ARGUMENTS)
    nodes = [node for node in graph if node not in ids]
    return ids | {node: str(index) for index, node in enumerate(nodes, int(is_function))}


def loop_nodes(frame: Frame) -> list[Node]:
    """The nodes of a loop's graph: those that run in its frame, and its Enters."""
    return [*frame.enters, *frame.nodes]


def graph_members(graph: Graph) -> dict[str, dict[str, str]]:
    """The nodes of `main` and of each loop: identifiers by name, by the graph's identifier."""
    ids = node_ids(graph)
    members = {MAIN: {node.name: id for node, id in ids.items()}}
    for frame in frames(graph).all[1:]:
        members[frame.path] = {node.name: ids[node] for node in loop_nodes(frame)}
    return members
