"""Tables of a graph: nodes, ops, loops, functions, devices, partitions, and messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from cfgraph.analysis.deadness.deadness import LivenessCondition
from cfgraph.analysis.partitions import MessageRoute, Partitions
from cfgraph.analysis.summary import (
    Endpoint,
    FrameSummary,
    FunctionalLoopSummary,
    LibraryFunctionSummary,
    Summary,
    op_support,
)
from cfgraph.cli.output import Column, OutputTable, Styled
from cfgraph.console.views.selection import GraphView, NodeSelection
from cfgraph.ir.devices import device_label, is_simulated, short_device_name
from cfgraph.ir.graph import Graph, Node


def partitions_table(parts: Partitions) -> OutputTable:
    """Return one row per device: nodes, control loops, and sent messages."""
    columns = [
        Column("device", style="cyan"),
        Column("nodes", right=True),
        Column("control_loops", "control loops", right=True),
        Column("once", "sent once", right=True),
        Column("iteration", "sent per iteration", right=True),
    ]
    rows: list[Any] = [
        (device_label(item.device), item.nodes, len(item.control_loops), item.once, item.iteration)
        for item in parts.parts
    ]
    return OutputTable(columns, rows)


def routes_table(parts: Partitions) -> OutputTable:
    """Return one row per pair of devices and loop that exchange messages."""
    columns = [
        Column("from", style="cyan"),
        Column("to", style="cyan"),
        Column("loop"),
        Column("messages", right=True),
        Column("bytes", right=True),
    ]
    rows: list[Any] = [
        (
            short_device_name(route.source),
            short_device_name(route.target),
            "once" if route.frame == "/" else route.frame,
            route.messages,
            _bytes_text(route),
        )
        for route in parts.routes
    ]
    return OutputTable(columns, rows)


def partitions_json(parts: Partitions) -> dict[str, Any]:
    """Return devices and routes for a JSON document."""
    return {
        "devices": [{**asdict(p), "simulated": is_simulated(p.device)} for p in parts.parts],
        "routes": [_route_json(route) for route in parts.routes],
    }


def _route_json(route: MessageRoute) -> dict[str, Any]:
    fields = asdict(route)
    return {"from": fields.pop("source"), "to": fields.pop("target"), **fields}


def _bytes_text(route: MessageRoute) -> str:
    if not route.unknown:
        return str(route.bytes)
    return f"{route.bytes} + ?" if route.bytes else "?"


# colors of liveness classes
_COLORS: Final = ("yellow", "magenta", "blue", "green", "cyan")


def ops_table(graph: Graph, chosen: Iterable[NodeSelection]) -> OutputTable:
    """Return one row per op: its number of nodes, and the reason if it cannot run."""
    counts = Counter(node.op for selection in chosen for node in selection.nodes)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    columns = [
        Column("op", style="cyan"),
        Column("nodes", right=True),
        Column("support", optional=True),
    ]
    return OutputTable(columns, [(op, count, op_support(graph, op)) for op, count in ordered])


def nodes_table(chosen: Iterable[NodeSelection], deadness: bool = False) -> OutputTable:
    """Return one row per node, with its liveness on request."""
    columns = [
        Column("name", style="cyan"),
        Column("op"),
        *([Column("live")] if deadness else []),
        Column("outputs"),
        Column("frame", style="dim", optional=True),
        Column("device", style="dim", optional=True),
        Column("inputs", optional=True, spare=True),
    ]
    return OutputTable(
        columns,
        [
            _node_row(selection.view, node, deadness)
            for selection in chosen
            for node in selection.nodes
        ],
    )


def _node_row(view: GraphView, node: Node, deadness: bool) -> tuple[object, ...]:
    inputs = [*(item.name for item in node.inputs), *(f"^{item.name}" for item in node.controls)]
    frame = view.frames.of[node]
    path = "" if frame is view.frames.root else frame.path
    live = [_liveness_cell(view.liveness[node])] if deadness else []
    outputs = output_types(view, node)
    return view.title(node), node.op, *live, outputs, path, node.device, inputs


def _liveness_cell(when: LivenessCondition) -> Styled:
    """Return the liveness of a node in the color of its class."""
    if when.how_often != "sometimes":
        return Styled(when.text, "" if when.how_often == "always" else "red")
    return Styled(when.text, _COLORS[when.group % len(_COLORS)])


# a file may claim any number of outputs
_MAX_OUTPUTS: Final = 1 << 16


def output_types(view: GraphView, node: Node) -> list[str]:
    """Return type and shape of each output of a node."""
    return [view.type_text(node.output(port)) for port in range(output_ports(node))]


def output_ports(node: Node) -> int:
    """Return the number of outputs to show: those of the op, or those that are read."""
    return min(node.assumed_output_count, _MAX_OUTPUTS)


def frames_table(frames: Iterable[FrameSummary], tree: bool = True) -> OutputTable:
    """Return one row per loop; inner loops are indented below outer ones."""
    columns = [
        Column("path" if not tree else "loop", style="cyan"),
        Column("nodes", right=True),
        Column("variables", right=True),
        Column("invariants", right=True),
        Column("parallel_iterations", "in flight", right=True),
        Column("predicate", "condition", optional=True),
    ]
    return OutputTable(
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


def functional_loops_table(loops: Iterable[FunctionalLoopSummary]) -> OutputTable:
    """Return one row per loop that calls functions."""
    columns = [
        Column("loop", style="cyan"),
        Column("variables", right=True),
        Column("parallel_iterations", "in flight", right=True),
        Column("body"),
        Column("function", "inside function", optional=True, style="dim"),
    ]
    rows: list[Any] = [
        (loop.name, loop.variables, loop.parallel_iterations, loop.body, loop.function)
        for loop in loops
    ]
    return OutputTable(columns, rows)


def functions_table(
    functions: Iterable[LibraryFunctionSummary], limit: int | None = None
) -> OutputTable:
    """Return one row per function of the library, with signatures shortened to a limit."""
    columns = [Column("function", style="cyan"), Column("nodes", right=True), Column("signature")]
    rows = [(item.name, item.nodes, _signature_text(item.signature, limit)) for item in functions]
    return OutputTable(columns, list(rows))


def _signature_text(signature: str, limit: int | None) -> str:
    """Shorten a signature to a limit: resources are counted, then long lists are cut."""
    if limit is None or len(signature) <= limit:
        return signature
    inputs, arrow, outputs = signature.partition(") -> (")
    sides = [_counted_resources(inputs[1:]), _counted_resources(outputs[:-1])]
    if sum(map(len, sides)) + len(arrow) + 2 > limit:
        share = (limit - len(arrow)) // 2
        sides = [_cut(side, share) for side in sides]
    return f"({sides[0]}{arrow}{sides[1]})"


def _counted_resources(arguments: str) -> str:
    items = arguments.split(", ")
    plain = [item for item in items if not item.endswith(": resource")]
    resources = len(items) - len(plain)
    return ", ".join([*plain, f"{resources} resources"]) if resources > 1 else arguments


def _cut(arguments: str, limit: int) -> str:
    """Return the first arguments that fit, and the number of the others."""
    if len(arguments) <= limit:
        return arguments
    items, shown = arguments.split(", "), list[str]()
    room = limit - len("… 9999 more")
    while items and len(items[0]) + 2 <= room:
        shown.append(items.pop(0))
        room -= len(shown[-1]) + 2
    if not shown:
        return f"{sum(map(_argument_count, items))} tensors"
    return ", ".join([*shown, f"… {sum(map(_argument_count, items))} more"])


def _argument_count(text: str) -> int:
    """The number of arguments that an item of a shortened signature stands for."""
    return 1 if ": " in text else int(text.split(maxsplit=1)[0])


def devices_table(summary: Summary) -> OutputTable:
    """Return the number of nodes per requested device."""
    columns = [Column("device", style="cyan"), Column("nodes", right=True)]
    return OutputTable(columns, [(name or "(any)", count) for name, count in summary.devices])


def endpoints_table(endpoints: Iterable[Endpoint]) -> OutputTable:
    """Return the likely inputs or outputs."""
    columns = [
        Column("name", style="cyan"),
        Column("type"),
        Column("default", style="dim", optional=True),
    ]
    rows = [
        (item.name, item.type, item.default and f"{item.default} unless fed") for item in endpoints
    ]
    return OutputTable(columns, list(rows), headings=False)
