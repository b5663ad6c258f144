"""Several graphs as one: the parts of a partitioned graph, each from a file of its own."""

from __future__ import annotations

from collections.abc import Iterable

from cfgraph.errors import InvalidInput
from cfgraph.ir.copy import copy_into
from cfgraph.ir.graph import Graph


def join(graphs: Iterable[Graph]) -> Graph:
    """One graph with all nodes and functions of several, which stay as they are.

    Raises InvalidInput where two have a node of one name, or a name for two functions.
    """
    whole = Graph()
    for place, graph in enumerate(graphs):
        if place == 0:
            whole.versions, whole.origin = graph.versions, graph.origin
        twice = next((name for name in graph.nodes if name in whole), None)
        if twice is not None:
            message = f"two of the graphs have a node {twice!r}"
            raise InvalidInput(message, node=twice, code="CFG104")
        _join_functions(whole, graph)
        copy_into(whole, graph)
    return whole


def _join_functions(whole: Graph, graph: Graph) -> None:
    for name, function in graph.functions.items():
        have = whole.functions.setdefault(name, function)
        if have is not function and have.definition != function.definition:
            message = f"two of the graphs have different functions {name!r}"
            raise InvalidInput(message, code="CFG104")
    whole.gradient_functions.update(graph.gradient_functions)
