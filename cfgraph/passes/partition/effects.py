"""Where the order of two nodes may matter: an effect before the one, and one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cfgraph.ir import registry
from cfgraph.ir.graph import Graph, Node
from cfgraph.ops.op import lookup


class Effects:
    """The nodes that come after an effect, and those before one; in any iteration of a loop."""

    def __init__(self, graph: Graph) -> None:
        touching = [node for node in graph if _touches_state(node)]
        if not any(map(_writes, touching)):
            touching = []
        self._after = _closure(touching, lambda node: (use.node for use in node.uses))
        self._before = _closure(
            touching, lambda node: (*(item.node for item in node.inputs), *node.controls)
        )

    def are_ordered(self, first: Node, second: Node) -> bool:
        """True if `second` may have to wait for `first` for the sake of an effect."""
        return first in self._after and second in self._before


def _touches_state(node: Node) -> bool:
    op = lookup(node.op)
    if op is None:
        return True
    return op.stateful and not op.random and not op.role and not _is_handle(node)


def _writes(node: Node) -> bool:
    op = lookup(node.op)
    return op is None or not op.reads_only


def _is_handle(node: Node) -> bool:
    """True for what only names a resource."""
    types = registry.output_types(node) or ()
    return not node.inputs and bool(types) and all(dtype.kind == "resource" for dtype in types)


def _closure(start: Iterable[Node], onward: Callable[[Node], Iterable[Node]]) -> set[Node]:
    found = set(start)
    todo = list(found)
    while todo:
        for node in onward(todo.pop()):
            if node not in found:
                found.add(node)
                todo.append(node)
    return found
