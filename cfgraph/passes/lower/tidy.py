"""Leave a lowered graph in good order: nothing unread, nothing misplaced, nothing uncalled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.walk import topological
from cfgraph.ops.op import lookup
from cfgraph.passes.lower.inline import COLOCATED


def remove_unread(graph: Graph, made: Iterable[Node]) -> None:
    """Remove what lowering made and nobody reads, and what only that read; effects stay."""
    candidates = {node: None for node in made if graph.nodes.get(node.name) is node}
    todo = [node for node in candidates if _is_useless(node)]
    while todo:
        node = todo.pop()
        sources = dict.fromkeys([*(item.node for item in node.inputs), *node.controls])
        del candidates[node]
        graph.remove(node)
        todo.extend(n for n in sources if n in candidates and _is_useless(n))


def _is_useless(node: Node) -> bool:
    op = lookup(node.op)
    return not node.uses and op is not None and not op.stateful


def forget_missing_neighbours(graph: Graph, made: Iterable[Node]) -> None:
    """Drop from what lowering made the wish to be beside a node that is not there."""
    for node in made:
        groups = node.attrs.get("_class")
        if not isinstance(groups, tuple):
            continue
        kept = tuple(group for group in groups if not _names_nobody(graph, group))
        if not kept:
            del node.attrs["_class"]
        elif kept != groups:
            graph.set_attr(node, "_class", kept)


def _names_nobody(graph: Graph, group: Any) -> bool:
    if not isinstance(group, bytes) or not group.startswith(COLOCATED):
        return False
    return group[len(COLOCATED) :].decode("utf-8", "replace") not in graph.nodes


def put_in_order(graph: Graph, groups: Mapping[Node, list[Node]]) -> None:
    """Let what was made for a node stand where the node stood, sources first."""
    inserted = {node for group in groups.values() for node in group}
    order: list[Node] = []
    for node in graph:
        if node in groups:
            order.extend(topological([*groups[node], node]).nodes)
        elif node not in inserted:
            order.append(node)
    graph.reorder(order)
