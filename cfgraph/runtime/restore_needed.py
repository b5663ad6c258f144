"""The part of a graph that restores some of its variables, without what it does for the others.

    RestoreV2 [w, b, slot] ─▶ Assign w, Assign b, Assign slot     ──▶     RestoreV2 [w] ─▶ Assign w

What is not needed is not read from the checkpoint either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from cfgraph.analysis.effects import Effects
from cfgraph.analysis.reachability import ancestors
from cfgraph.analysis.trainable_inputs import is_variable, variable_key
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import copy_graph
from cfgraph.ops.checkpoints import RestoreV2
from cfgraph.ops.op import is_a
from cfgraph.passes.lower.plan import constant_value
from cfgraph.runtime.lowered import lowered_run

Keys = Collection[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class RestoringPart:
    """What to run of which graph, and the tensor that is fed the checkpoint's prefix."""

    graph: Graph
    prefix: str
    targets: tuple[str, ...]


def variables_needed(graph: Graph, wanted: Collection[Node]) -> set[tuple[str, str]] | None:
    """The variables that some nodes need; None where functions may have some of their own."""
    for function in graph.functions.values():
        if any(map(is_variable, function.definition.nodes)):
            return None
    return {variable_key(node) for node in ancestors(graph, wanted) if is_variable(node)}


def restoring_part(graph: Graph, restore: str, prefix: str, keys: Keys) -> RestoringPart:
    """The part that brings in the variables of these keys, of what the node `restore` does.

    What it writes to besides variables is written to all the same.
    """
    fed = graph.tensor(prefix)
    lowered, _, (target,), (item,) = lowered_run(graph, (), (graph[restore],), (fed,))
    writers = [node.name for node in _writers(lowered, ancestors(lowered, [target]), keys)]
    nodes = ancestors(lowered, [*(lowered[name] for name in writers), item.node])
    part = copy_graph(lowered, nodes)
    for node in nodes:
        if is_a(node, RestoreV2):
            _read_less(part, part[node.name])
    return RestoringPart(part, item.name, tuple(writers))


def _writers(graph: Graph, nodes: Collection[Node], keys: Keys) -> Iterator[Node]:
    """Those of some nodes that write to a resource, but not to a variable of another key."""
    effects = Effects()
    for access in effects.accesses(nodes):
        written = graph[access.name]
        if access.writes and not (is_variable(written) and variable_key(written) not in keys):
            yield access.node


def _read_less(graph: Graph, node: Node) -> None:
    """Let a node read only those tensors of a checkpoint that something reads from it."""
    prefix, names, slices = node.inputs
    lists = [constant_value(names), constant_value(slices)]
    dtypes = node.attr("dtypes")
    read = sorted({use.node.inputs[use.slot].port for use in node.uses if use.slot >= 0})
    if not read or any(item is None or item.size != len(dtypes) for item in lists):
        return
    constants = [_some(graph, item, read) for item in lists]
    fewer = graph.add(
        node.op, prefix, *constants, name=node.name, dtypes=tuple(dtypes[port] for port in read)
    )
    for place, port in enumerate(read):
        graph.replace_uses(node.output(port), fewer.output(place))


def _some(graph: Graph, texts: Any, places: list[int]) -> Output:
    value = TensorValue(texts.reshape(-1)[places])
    return graph.add("Const", dtype=value.dtype, value=value).output()
