"""What of a graph is there to read and write files: the checkpoints of its variables."""

from __future__ import annotations

from collections.abc import Iterable

from cfgraph.analysis.needed import reached
from cfgraph.analysis.verify_functions import functions_of
from cfgraph.ir.functions import BodyNode
from cfgraph.ir.graph import Graph, Node
from cfgraph.ops.op import lookup


def of_files(graph: Graph) -> set[Node]:
    """The nodes that read or write files, also in functions that they call, and all behind them."""
    touching = _functions(graph)
    return reached(graph, [node for node in graph if _touches(node, touching)])


def _functions(graph: Graph) -> set[str]:
    """The functions that do, directly or by those that they call."""
    bodies = {name: function.definition.nodes for name, function in graph.functions.items()}
    found: set[str] = set()
    while True:
        new = {
            name
            for name, nodes in bodies.items()
            if name not in found and any(_touches(node, found) for node in nodes)
        }
        if not new:
            return found
        found |= new


def _touches(node: Node | BodyNode, functions: Iterable[str]) -> bool:
    op = lookup(node.op)
    if op is not None and op.of_files:
        return True
    if op is not None and not any("func" in attr.kind for attr in op.parsed().attrs.values()):
        return False
    called = {node.op, *(func.name for _, func in functions_of(node.attrs))}
    return not called.isdisjoint(functions)
