"""Data of `explain` per node: the liveness class, or the critical cycle of a loop."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from cfgraph.analysis.loops.frames import frames
from cfgraph.cli.json_output import add_member
from cfgraph.cli.transform_options import STDIN
from cfgraph.console.explanations.explain_loop import explain_loop
from cfgraph.console.graph_files import artifact, read_graph
from cfgraph.console.node_names import is_loop
from cfgraph.console.views.selection import GraphView
from cfgraph.errors import UsageError
from cfgraph.integrations.model_explorer.identifiers import graph_members
from cfgraph.integrations.model_explorer.node_data import NodeDataFile, Values
from cfgraph.ir.graph import Graph, Node

_KINDS: Final = ("liveness", "cycle")
_NS_PER_SECOND: Final = 1e9


def write_explain_data(path: str, subject: str | None, text: str, json: bool) -> None:
    """Write the liveness classes of a graph, or the critical cycle of the loop `subject`.

    Raises UsageError for a document or a second use of standard input that cannot be.
    """
    if subject is None and json:
        raise UsageError("--json explains a SUBJECT, and none is named", hint="remove --json")
    if subject is not None and path == STDIN:
        message = "--node-data and SUBJECT both read the graph from standard input"
        raise UsageError(message, hint="name the file of the graph")
    graph = read_graph(path, quiet=True).graph
    file = NodeDataFile(text, _KINDS)
    if subject is not None and is_loop(graph, subject):
        values, title = critical_cycle_values(graph, subject), f"critical cycle of {subject} (ns)"
    else:
        values, title = liveness_values(graph), "liveness"
    file.write(graph_members(graph), values, title, quiet=json)
    add_member("artifacts", artifact("node_data", file.path))


def liveness_values(graph: Graph) -> Values:
    """The liveness class of each node: `always`, `never`, or its condition."""
    view = GraphView(graph)
    return {node.name: view.liveness[node].text for node in graph}


def critical_cycle_values(graph: Graph, loop: str) -> Values:
    """The estimated nanoseconds of each node of a loop's critical cycle."""
    answer = explain_loop(graph, loop)
    return {
        item.name: answer.cost(item) * _NS_PER_SECOND
        for item in answer.cycle.chain
        if isinstance(item, Node)
    }


def critical_cycles_values(graph: Graph) -> Values:
    """The estimated nanoseconds of each node of the critical cycles of all loops."""
    values: dict[str, float | str] = {}
    for frame in frames(graph).all[1:]:
        with suppress(UsageError):  # no back edge, or too large
            values |= critical_cycle_values(graph, frame.path)
    return values
