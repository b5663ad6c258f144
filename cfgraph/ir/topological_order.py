"""Topological order of nodes: sources before readers, back edges of loops ignored."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from cfgraph.ir import registry
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import MERGE, NEXT_ITERATION, Role


class OpRoles(dict[str, Role | None]):
    """Roles by op name, with None for an ordinary op."""

    def __missing__(self, op: str) -> Role | None:
        definition = registry.lookup(op)
        role: Role | None = definition.role if definition else None
        self[op] = role
        return role


_NO_CUT: Final[frozenset[Output]] = frozenset()


@dataclass(frozen=True, slots=True)
class TopologicalOrder:
    """Nodes in topological order, and the cycles that remain.

    A cycle lists its nodes in the direction of data flow; the last feeds the first. Listed cycles
    are disjoint. One edge of each is ignored, so that every node has a position.
    """

    nodes: tuple[Node, ...]
    cycles: tuple[tuple[Node, ...], ...]


def topological_order(nodes: Iterable[Node], cut: Collection[Output] = _NO_CUT) -> TopologicalOrder:
    """Order nodes so that sources precede readers; otherwise the original order is kept.

    Back edges (from a NextIteration to a Merge), edges of `cut` outputs, and edges from nodes
    outside of `nodes` are ignored.
    """
    todo = dict.fromkeys(nodes)
    walk = _DepthFirstSort(todo, cut, OpRoles())
    order = walk.order
    for node in list(todo):
        if node not in todo:
            continue
        # fast path: most files list sources first
        for item in node.inputs:
            if item[0] in todo:
                walk.visit(node)
                break
        else:
            for control in node.controls:
                if control in todo:
                    walk.visit(node)
                    break
            else:
                del todo[node]
                order.append(node)
    return TopologicalOrder(tuple(order), tuple(walk.cycles))


class _DepthFirstSort:
    """Iterative depth-first search against the edges."""

    def __init__(self, todo: dict[Node, None], cut: Collection[Output], roles: OpRoles) -> None:
        self.todo = todo
        self.cut = cut
        self.roles = roles
        self.order: list[Node] = []
        self.cycles: list[tuple[Node, ...]] = []

    def visit(self, start: Node) -> None:
        """Append a node after everything that it depends on."""
        todo, order = self.todo, self.order
        trail, indices, pending = [start], {start: 0}, [iter(self.needs(start))]
        # highest trail index, up to each position, that belongs to a listed cycle
        listed = [-1]
        while trail:
            for source in pending[-1]:
                if source not in todo:
                    continue
                index = indices.get(source)
                if index is None:
                    indices[source] = len(trail)
                    trail.append(source)
                    listed.append(listed[-1])
                    pending.append(iter(self.needs(source)))
                    break
                if listed[-1] < index:
                    self.cycles.append(tuple(reversed(trail[index:])))
                    listed[index:] = range(index, len(trail))
            else:
                node = trail.pop()
                pending.pop()
                listed.pop()
                del indices[node], todo[node]
                order.append(node)

    def needs(self, node: Node) -> list[Node]:
        """Sources that must come first and are not ordered yet."""
        todo, cut = self.todo, self.cut
        needs = [item for item in node.inputs if item[0] in todo]
        if needs and cut:
            needs = [item for item in needs if item not in cut]
        if needs and self.roles[node.op] is MERGE:
            needs = [item for item in needs if self.roles[item[0].op] is not NEXT_ITERATION]
        needed = [item[0] for item in needs]
        if node.controls:
            needed.extend(control for control in node.controls if control in todo)
        return needed
