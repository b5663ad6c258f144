"""Leave a clustered graph in good order: launches in place, neighbours named by what they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from cfgraph.ir.graph import Graph, Node
from cfgraph.passes.lower.inline import COLOCATION_PREFIX
from cfgraph.passes.lower.lower import drop_dangling_colocation

_BESIDE: Final = "_class"


def put_in_order(graph: Graph, order: Iterable[Node], made: Mapping[Node, list[Node]]) -> None:
    """Let a launch stand where the last node of its cluster stood."""
    nodes: list[Node] = []
    for node in order:
        if graph.nodes.get(node.name) is node:
            nodes.append(node)
        nodes.extend(made.get(node, ()))
    graph.reorder(nodes)


def follow_neighbours(graph: Graph, launches: Mapping[str, str]) -> None:
    """Let what wished to be beside a node that went into a cluster be beside its launch."""
    wishing = [node for node in graph if isinstance(node.attrs.get(_BESIDE), tuple)]
    for node in wishing:
        groups = node.attrs[_BESIDE]
        followed = tuple(dict.fromkeys(_followed(group, graph, launches) for group in groups))
        if followed != groups:
            graph.set_attr(node, _BESIDE, followed)
    drop_dangling_colocation(graph, wishing)


def _followed(group: Any, graph: Graph, launches: Mapping[str, str]) -> Any:
    if not isinstance(group, bytes) or not group.startswith(COLOCATION_PREFIX):
        return group
    name = group[len(COLOCATION_PREFIX) :].decode("utf-8", "replace")
    return (
        group
        if name in graph or name not in launches
        else COLOCATION_PREFIX + launches[name].encode()
    )
