"""Which tensors matter: those that depend on an x, and that a y depends on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from cfgraph.ir import registry
from cfgraph.ir.graph import Node, Output


def active(
    ys: Iterable[Output], xs: Iterable[Output], stops: Collection[Output]
) -> Callable[[Output], bool]:
    """Whether the gradient of a tensor is wanted.

    It is where a path leads from an x over it to a y, on tensors that are numbers, resources or
    variants. No path leads through a tensor of `stops`.
    """
    reached = _reached(xs, stops)
    between = _between(ys, reached, stops)
    return between.__contains__


def carries(x: Output) -> bool:
    """True for a tensor that a gradient can flow through."""
    dtype = x.dtype
    return dtype is not None and dtype.base.is_differentiable


def _reached(xs: Iterable[Output], stops: Collection[Output]) -> set[Output]:
    """All tensors that depend on an x."""
    reached = set(xs)
    todo = [x for x in reached if x not in stops]
    opened: set[Node] = set()
    while todo:
        item = todo.pop()
        for use in item.node.readers(item.port):
            node = use.node
            if node in opened:
                continue
            opened.add(node)
            for port in range(registry.output_count(node) or 0):
                made = node.output(port)
                if made not in reached and carries(made):
                    reached.add(made)
                    if made not in stops:
                        todo.append(made)
    return reached


def _between(ys: Iterable[Output], reached: set[Output], stops: Collection[Output]) -> set[Output]:
    """Those of them that a y depends on."""
    found = {y for y in ys if y in reached}
    todo = [y.node for y in found if y not in stops]
    opened = set(todo)
    while todo:
        node = todo.pop()
        for item in node.inputs:
            if item not in reached:
                continue
            found.add(item)
            if item not in stops and item.node not in opened:
                opened.add(item.node)
                todo.append(item.node)
    return found
