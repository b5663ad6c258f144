"""The tables that `show` prints of a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from cfgraph.analysis.deadness.deadness import LivenessCondition
from cfgraph.analysis.summary import (
    Endpoint,
    FrameSummary,
    LibraryFunctionSummary,
    Summary,
    op_support,
)
from cfgraph.console.tables import Column, Styled, Table
from cfgraph.console.view import Chosen, View
from cfgraph.ir import registry
from cfgraph.ir.graph import Graph, Node

# of the classes of nodes that run together
_COLORS: Final = ("yellow", "magenta", "blue", "green", "cyan")


def ops_table(graph: Graph, chosen: Iterable[Chosen]) -> Table:
    """How often each op occurs, and what becomes of it in a run."""
    counts = Counter(node.op for some in chosen for node in some.nodes)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    columns = [
        Column("op", style="cyan"),
        Column("nodes", right=True),
        Column("support", optional=True),
    ]
    return Table(columns, [(op, count, op_support(graph, op)) for op, count in ordered])


def nodes_table(chosen: Iterable[Chosen], deadness: bool = False) -> Table:
    """One row a node, with when it runs if that is asked for."""
    columns = [
        Column("name", style="cyan"),
        Column("op"),
        *([Column("live")] if deadness else []),
        Column("outputs"),
        Column("frame", style="dim", optional=True),
        Column("device", style="dim", optional=True),
        Column("inputs", optional=True, spare=True),
    ]
    return Table(
        columns,
        [_node_row(some.view, node, deadness) for some in chosen for node in some.nodes],
    )


def _node_row(view: View, node: Node, deadness: bool) -> tuple[object, ...]:
    inputs = [*(item.name for item in node.inputs), *(f"^{item.name}" for item in node.controls)]
    frame = view.found.of[node]
    path = "" if frame is view.found.root else frame.path
    live = [_live(view.when[node])] if deadness else []
    outputs = output_types(view, node)
    return view.title(node), node.op, *live, outputs, path, node.device, inputs


def _live(when: LivenessCondition) -> Styled:
    """When a node runs; those that run together have one colour, and neighbours seldom the same."""
    if when.how_often != "sometimes":
        return Styled(when.text, "" if when.how_often == "always" else "red")
    return Styled(when.text, _COLORS[when.group % len(_COLORS)])


def output_types(view: View, node: Node) -> list[str]:
    """Type and shape of each output of a node."""
    count = registry.output_count(node)
    if count is None:
        read = [use.node.inputs[use.slot].port for use in node.uses if use.slot >= 0]
        count = max(read, default=-1) + 1
    return [view.type_text(node.output(port)) for port in range(count)]


def frames_table(frames: Iterable[FrameSummary], tree: bool = True) -> Table:
    """One row a loop, the inner ones indented below the outer ones."""
    columns = [
        Column("path" if not tree else "loop", style="cyan"),
        Column("nodes", right=True),
        Column("variables", right=True),
        Column("invariants", right=True),
        Column("parallel_iterations", "at once", right=True),
        Column("predicate", "runs while", optional=True),
    ]
    return Table(
        columns,
        [
            (
                "  " * (frame.depth - 1) + frame.name if tree else frame.path,
                frame.nodes,
                frame.variables,
                frame.invariants,
                frame.parallel_iterations,
                frame.predicate,
            )
            for frame in frames
        ],
    )


def functions_table(functions: Iterable[LibraryFunctionSummary]) -> Table:
    """One row a function of the library."""
    columns = [Column("function", style="cyan"), Column("nodes", right=True), Column("signature")]
    return Table(columns, [(item.name, item.nodes, item.signature) for item in functions])


def devices_table(summary: Summary) -> Table:
    """How many nodes ask for each device."""
    columns = [Column("device", style="cyan"), Column("nodes", right=True)]
    return Table(columns, [(name or "(any)", count) for name, count in summary.devices])


def endpoints_table(endpoints: Iterable[Endpoint]) -> Table:
    """The likely inputs or outputs."""
    columns = [
        Column("name", style="cyan"),
        Column("type"),
        Column("default", style="dim", optional=True),
    ]
    rows = [
        (item.name, item.type, item.default and f"{item.default} unless fed") for item in endpoints
    ]
    return Table(columns, list(rows), headings=False)
