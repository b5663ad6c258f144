"""The tables that `show` prints of a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from cfgraph.analysis.frames import Frames
from cfgraph.analysis.inputs import type_text
from cfgraph.analysis.summary import (
    Endpoint,
    FrameSummary,
    FunctionSummary,
    Summary,
    support,
)
from cfgraph.console.tables import Column, Table
from cfgraph.ir import registry
from cfgraph.ir.graph import Graph, Node
from cfgraph.ops.shape_inference import Shapes


def ops_table(graph: Graph, nodes: Iterable[Node]) -> Table:
    """How often each op occurs, and what becomes of it in a run."""
    counts = Counter(node.op for node in nodes)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    columns = [
        Column("op", style="cyan"),
        Column("nodes", right=True),
        Column("support", optional=True),
    ]
    return Table(columns, [(op, count, support(graph, op)) for op, count in ordered])


def nodes_table(nodes: Iterable[Node], found: Frames, shapes: Shapes) -> Table:
    """One row a node."""
    columns = [
        Column("name", style="cyan"),
        Column("op"),
        Column("outputs"),
        Column("frame", style="dim", optional=True),
        Column("device", style="dim", optional=True),
        Column("inputs", optional=True, spare=True),
    ]
    return Table(columns, [_node_row(node, found, shapes) for node in nodes])


def _node_row(node: Node, found: Frames, shapes: Shapes) -> tuple[object, ...]:
    inputs = [*(item.name for item in node.inputs), *(f"^{item.name}" for item in node.controls)]
    frame = found.of[node]
    path = "" if frame is found.root else frame.path
    return node.name, node.op, output_types(node, shapes), path, node.device, inputs


def output_types(node: Node, shapes: Shapes) -> list[str]:
    """Type and shape of each output of a node."""
    count = registry.output_count(node)
    if count is None:
        read = [use.node.inputs[use.slot].port for use in node.uses if use.slot >= 0]
        count = max(read, default=-1) + 1
    items = [node.output(port) for port in range(count)]
    return [type_text(item.dtype, shapes[item]) for item in items]


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


def functions_table(functions: Iterable[FunctionSummary]) -> Table:
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
