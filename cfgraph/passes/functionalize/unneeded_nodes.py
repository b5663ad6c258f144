"""Remove nodes that no result needs: before functionalization, and after it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from cfgraph.analysis.deadness.deadness import Deadness
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import ancestors
from cfgraph.ops.opdef.op import lookup, may_write, role_of


def is_input(node: Node) -> bool:
    """Return true for an input of the graph."""
    op = lookup(node.op)
    return op is not None and op.effects.is_input and not node.inputs


def drop_unneeded(graph: Graph, fetched: Iterable[Node]) -> list[str]:
    """Remove what neither a fetch nor an input needs; return the names."""
    needed = set(ancestors(graph, [*fetched, *filter(is_input, graph)]))
    unneeded = [node for node in graph if node not in needed]
    graph.remove(*unneeded)
    return [node.name for node in unneeded]


def dead_ends(graph: Graph, has_value: Callable[[Node], bool]) -> tuple[list[Node], bool]:
    """Return nodes without effects that may have no value and that nothing reads.

    Also return true if the graph has other results.
    """
    ends = [node for node in graph if not node.uses]
    if not any(role_of(node) is Role.SWITCH for node in graph):
        return [], True
    dead = [node for node in ends if not may_write(node) and not has_value(node)]
    return dead, any(not is_input(node) for node in set(ends).difference(dead))


def always_has_value(conditions: Deadness, node: Node) -> bool:
    """Return true for a node outside of loops whose outputs are live in every run."""
    frame, root = conditions.frames.of_outputs.get(node), conditions.frames.root
    if frame not in (None, root) or role_of(node) is Role.SWITCH:
        return False
    return conditions.always_live(node)


def remove_with_sources(
    graph: Graph, nodes: Iterable[Node], has_value: Callable[[Node], bool]
) -> list[str]:
    """Remove nodes that nothing reads, and what only they read and may be dead; return the names.

    Inputs stay.
    """
    removed = graph.remove_unread(
        nodes, lambda node: not (may_write(node) or is_input(node) or has_value(node))
    )
    return [node.name for node in removed]


def drop_unread_primitives(graph: Graph, fetched: Collection[Node]) -> list[str]:
    """Remove primitives that nothing reads any more; return the names."""

    def is_unneeded(node: Node) -> bool:
        return role_of(node) is not None and node not in fetched

    return [node.name for node in graph.remove_unread(graph, is_unneeded)]
