"""Tables of a graph: nodes, ops, loops, functions, devices, partitions, and messages."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

from cfgraph.analysis.deadness.deadness import LivenessCondition
from cfgraph.analysis.summary import (
    Endpoint,
    FrameSummary,
    FunctionalLoopSummary,
    LibraryFunctionSummary,
    Summary,
    op_support,
)
from cfgraph.cli.output import OutputTable, Styled, report_table
from cfgraph.console.views.node_facts import output_types
from cfgraph.console.views.selection import GraphView, NodeSelection
from cfgraph.ir.devices import device_label
from cfgraph.ir.graph import Graph, Node
from cfgraph.reports import OPTIONAL, Column, Count, Maybe, Record

# late imports: few graphs have parts or tables

if TYPE_CHECKING:
    from cfgraph.analysis.partitions import MessageRoute, Partitions
    from cfgraph.analysis.table_contents import TableContents


class DeviceRow(Record):
    """A device: its nodes and, in a partitioned graph, its control loops and sent messages."""

    device: Annotated[str, Column(style="cyan")]
    nodes: Count
    control_loops: Maybe[Count] = None
    once: Annotated[Maybe[Count], Column(title="sent once")] = None
    iteration: Annotated[Maybe[Count], Column(title="sent per iteration")] = None


def partition_rows(parts: Partitions) -> list[DeviceRow]:
    """Return the devices of a partitioned graph."""
    return [
        DeviceRow.from_attributes(
            item, device=device_label(item.device), control_loops=len(item.control_loops)
        )
        for item in parts.parts
    ]


def partitions_table(parts: Partitions) -> OutputTable:
    """Return one row per device: nodes, control loops, and sent messages."""
    names = ("device", "nodes", "control_loops", "once", "iteration")
    return report_table(DeviceRow, partition_rows(parts), *names)


def routes_table(routes: Iterable[MessageRoute]) -> OutputTable:
    """Return one row per pair of devices and loop that exchange messages."""
    from cfgraph.analysis.partitions import MessageRoute

    return report_table(MessageRoute, routes, "source", "target", "loop", "messages", "size")


def sent_tensors_table(parts: Partitions) -> OutputTable:
    """Return one row per tensor and pair of devices that send it."""
    from cfgraph.analysis.partitions import SentTensor

    return report_table(SentTensor, parts.tensors, "tensor", "source", "target", "size")


# colors of liveness classes
_COLORS: Final = ("yellow", "magenta", "blue", "green", "cyan")


class OpRow(Record):
    """An op: its number of nodes, and the reason if it cannot run."""

    op: Annotated[str, Column(style="cyan")]
    nodes: Count
    support: Annotated[str | None, Column(optional=True)]


def op_rows(graph: Graph, chosen: Iterable[NodeSelection]) -> list[OpRow]:
    """Return the ops, the most frequent ones first."""
    counts = Counter(node.op for selection in chosen for node in selection.nodes)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [OpRow(op, count, op_support(graph, op)) for op, count in ordered]


class NodeRow(Record):
    """A node, with its liveness on request."""

    name: Annotated[str, Column(style="cyan", scoped=True)]
    op: str
    live: Maybe[str]
    outputs: Annotated[Sequence[str], OPTIONAL]
    frame: Annotated[str | None, Column(style="dim", optional=True)]
    device: Annotated[str, Column(style="dim", optional=True)]
    inputs: Annotated[Sequence[str], OPTIONAL, Column(optional=True, spare=True, scoped=True)]


def node_rows(chosen: Iterable[NodeSelection], deadness: bool = False) -> list[NodeRow]:
    """Return the nodes, with their liveness on request."""
    return [
        _node_row(selection.view, node, deadness)
        for selection in chosen
        for node in selection.nodes
    ]


def _node_row(view: GraphView, node: Node, deadness: bool) -> NodeRow:
    inputs = [*(item.name for item in node.inputs), *(f"^{item.name}" for item in node.controls)]
    frame = view.frames.of[node]
    path = "" if frame is view.frames.root else frame.path
    live = _liveness_cell(view.liveness[node]) if deadness else None
    outputs = output_types(view, node)
    return NodeRow(view.title(node), node.op, live, outputs, path, node.device, inputs)


def _liveness_cell(when: LivenessCondition) -> Styled:
    """Return the liveness of a node in the color of its class."""
    if when.how_often != "sometimes":
        return Styled(when.text, "" if when.how_often == "always" else "red")
    return Styled(when.text, _COLORS[when.group % len(_COLORS)])


class FrameRow(Record):
    """A loop."""

    path: Annotated[str, Column(style="cyan")]
    nodes: Count
    variables: Count
    invariants: Count
    parallel_iterations: Annotated[Count, Column(title="in flight")]
    predicate: Annotated[
        str | None, Column(title="condition", optional=True, names=True, scoped=True)
    ]

    @property
    def loop(self) -> Annotated[str, Column(style="cyan", scoped=True)]:
        """The place of the loop in the tree of loops."""
        return self.path


FRAME_COLUMNS: Final = ("nodes", "variables", "invariants", "parallel_iterations", "predicate")


def frame_rows(frames: Iterable[FrameSummary], tree: bool = False) -> list[FrameRow]:
    """Return the loops by path; inner loops of a tree are indented below outer ones."""
    return [
        FrameRow.from_attributes(
            frame, path="  " * (frame.depth - 1) + frame.name if tree else frame.path
        )
        for frame in frames
    ]


def frames_table(frames: Iterable[FrameSummary]) -> OutputTable:
    """Return the tree of loops."""
    return report_table(FrameRow, frame_rows(frames, tree=True), "loop", *FRAME_COLUMNS)


def functional_loops_table(loops: Iterable[FunctionalLoopSummary]) -> OutputTable:
    """Return one row per loop that calls functions."""
    names = ("name", "variables", "parallel_iterations", "body", "function")
    return report_table(FunctionalLoopSummary, loops, *names)


def functions_table(
    functions: Iterable[LibraryFunctionSummary], limit: int | None = None
) -> OutputTable:
    """Return one row per function of the library, with signatures shortened to a limit."""
    rows = [replace(row, signature=_signature_text(row.signature, limit)) for row in functions]
    return report_table(LibraryFunctionSummary, rows, *FUNCTION_COLUMNS)


FUNCTION_COLUMNS: Final = ("name", "nodes", "signature")


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


def device_rows(summary: Summary) -> list[DeviceRow]:
    """Return the number of nodes per requested device."""
    return [DeviceRow(name or "(any)", count) for name, count in summary.devices.items()]


def devices_table(summary: Summary) -> OutputTable:
    """Return the number of nodes per requested device."""
    return report_table(DeviceRow, device_rows(summary), "device", "nodes")


def contents_table(tables: Iterable[TableContents]) -> OutputTable:
    """Return one row per lookup table: its rows, and the node that fills it."""
    from cfgraph.analysis.table_contents import TableContents

    names = ("table", "type", "rows", "first", "filled_by", "file")
    rows = [
        replace(
            table,
            filled_by=table.filled_by or "nothing",
            file=table.file and posixpath.basename(table.file),
        )
        for table in tables
    ]
    return report_table(TableContents, rows, *names)


def endpoints_table(endpoints: Iterable[Endpoint]) -> OutputTable:
    """Return the likely inputs or outputs."""
    return report_table(Endpoint, endpoints, "name", "type", "default", headings=False)
