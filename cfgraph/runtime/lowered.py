"""What is functional in a run is lowered before it, in a copy of what the run needs."""

from __future__ import annotations

from collections.abc import Iterable

from cfgraph.analysis.needed import needed
from cfgraph.ir.copy import copy_of
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ops.op import lookup
from cfgraph.passes.lower.lower import lower

Run = tuple[Graph, tuple[Output, ...], tuple[Node, ...], tuple[Output, ...]]


def lowered_run(
    graph: Graph, fetches: tuple[Output, ...], targets: tuple[Node, ...], feeds: tuple[Output, ...]
) -> Run:
    """The same run on a lowered graph, or as it came where nothing in it is functional.

    Raises what `lower` raises.
    """
    wanted = [*(item.node for item in fetches), *targets]
    if not is_functional(graph, needed(graph, wanted, frozenset(feeds))):
        return graph, fetches, targets, feeds
    nodes = needed(graph, [*wanted, *(item.node for item in feeds)])
    copy = copy_of(graph, nodes)
    lower(copy)
    return (
        copy,
        tuple(copy.tensor(item.name) for item in fetches),
        tuple(copy[node.name] for node in targets),
        tuple(copy.tensor(item.name) for item in feeds),
    )


def is_functional(graph: Graph, nodes: Iterable[Node]) -> bool:
    """True if one of the nodes runs a function."""
    ops = {node.op for node in nodes}
    return any(op in graph.functions or getattr(lookup(op), "functional", "") for op in ops)
