"""Topological order of nodes: sources before consumers, back edges of loops ignored."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from cfgraph.ir import registry
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role


class OpRoles(dict[str, Role | None]):
    """Roles by op name; None for an ordinary op."""

    def __missing__(self, op: str) -> Role | None:
        definition = registry.lookup(op)
        role: Role | None = definition.role if definition else None
        self[op] = role
        return role


_NO_CUT: Final[frozenset[Output]] = frozenset()


@dataclass(frozen=True, slots=True)
class TopologicalOrder:
    """Nodes in topological order, and the cycles that stood in its way.

    A cycle lists its nodes in the direction of the data: each feeds the next, the last the first.
    No two listed cycles share a node. One edge of each is ignored, so every node has its place.
    """

    nodes: tuple[Node, ...]
    cycles: tuple[tuple[Node, ...], ...]


def topological_order(nodes: Iterable[Node], cut: Collection[Output] = _NO_CUT) -> TopologicalOrder:
    """Sources before readers, otherwise in the order given.

    An edge from a NextIteration to a Merge is a back edge and does not count; neither do the edges
    of `cut` outputs, nor edges from nodes that are not among `nodes`.
    """
    todo = dict.fromkeys(nodes)
    walk = _DepthFirstSort(todo, cut, OpRoles())
    order = walk.order
    for node in list(todo):
        if node not in todo:
            continue
        # most files list sources first
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
    """A depth-first walk against the edges, with its own stack."""

    def __init__(self, todo: dict[Node, None], cut: Collection[Output], roles: OpRoles) -> None:
        self.todo = todo
        self.cut = cut
        self.roles = roles
        self.order: list[Node] = []
        self.cycles: list[tuple[Node, ...]] = []

    def visit(self, start: Node) -> None:
        """Place a node after all that it waits for."""
        todo, order = self.todo, self.order
        trail, indices, pending = [start], {start: 0}, [iter(self.needs(start))]
        # the highest place on the trail, up to each place, that a listed cycle holds
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
        """The sources that must come first and are not placed yet."""
        todo, cut = self.todo, self.cut
        needs = [item for item in node.inputs if item[0] in todo]
        if needs and cut:
            needs = [item for item in needs if item not in cut]
        if needs and self.roles[node.op] is Role.MERGE:
            needs = [item for item in needs if self.roles[item[0].op] is not Role.NEXT_ITERATION]
        needed = [item[0] for item in needs]
        if node.controls:
            needed.extend(control for control in node.controls if control in todo)
        return needed
