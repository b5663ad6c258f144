"""Which functions of a library are called, directly or through others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cfgraph.ir.attrs import Func
from cfgraph.ir.graph import Graph, Node


def called_functions(
    graph: Graph, more: Iterable[str] = (), nodes: Iterable[Node] | None = None
) -> set[str]:
    """The functions that a graph, or some nodes of it, run; those that `more` run too."""
    if not graph.functions:
        return set()
    chosen = graph if nodes is None else nodes
    todo = [*more, *(name for node in chosen for name in _named(node.op, node.attrs))]
    found: set[str] = set()
    while todo:
        name = todo.pop()
        function = graph.functions.get(name)
        if function is None or name in found:
            continue
        found.add(name)
        if name in graph.gradient_functions:
            todo.append(graph.gradient_functions[name])
        for node in function.definition.nodes:
            todo.extend(_named(node.op, node.attrs))
    return found


def drop_uncalled(graph: Graph, more: Iterable[str] = ()) -> None:
    """Leave of a library, and of its gradients, what `called_functions` finds."""
    for name in graph.functions.keys() - called_functions(graph, more):
        del graph.functions[name]
        graph.gradient_functions.pop(name, None)


def _named(op: str, attrs: Mapping[str, Any]) -> Iterator[str]:
    yield op
    for value in attrs.values():
        for part in value if type(value) is tuple else (value,):
            if type(part) is Func:
                yield part.name
                yield from _named(part.name, part.attrs)
