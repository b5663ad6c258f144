"""The summary of a graph as text."""

from __future__ import annotations

from typing import Final

from cfgraph.analysis.partitions import Partitions
from cfgraph.analysis.summary import Endpoint, Summary
from cfgraph.console import show_tables as tables
from cfgraph.console.devices import parts_table, routes_table
from cfgraph.console.graphs import Source
from cfgraph.console.page import Page
from cfgraph.console.tables import Table, flowed
from cfgraph.ir.units import format_byte_size

MAX_LISTED: Final = 20


def print_summary(
    out: Page, source: Source, summary: Summary, command: str, parts: Partitions | None
) -> None:
    """Print what a person wants to know first, and what to type next; `parts` if it is cut."""
    out.heading(source.path, _counts(source, summary))
    _ops(out, summary)
    if summary.frames:
        _section(out, "loops", tables.frames_table(summary.frames))
    if summary.functions:
        _section(out, "functions", tables.functions_table(summary.functions))
    if parts is not None:
        _section(out, "devices", parts_table(parts))
        _section(out, "messages", routes_table(parts))
    elif any(name for name, _ in summary.devices):
        _section(out, "devices", tables.devices_table(summary))
    _endpoints(out, "inputs", summary.inputs)
    _endpoints(out, "outputs", summary.outputs)
    if summary.targets:
        out.line()
        out.heading("targets", "run for their effect")
        for line in flowed(summary.targets[:MAX_LISTED]):
            out.line(line)
    _remarks(out, summary)
    out.line()
    out.heading("next")
    out.line(f"  {command}", "green")


def _counts(source: Source, summary: Summary) -> str:
    parts = [_count(summary.nodes, "node"), _count(summary.edges, "edge")]
    if summary.control_edges:
        parts.append(_count(summary.control_edges, "control edge"))
    if summary.constant_bytes >= _KILO:
        parts.append(f"{format_byte_size(summary.constant_bytes)} of constants")
    parts.append(f"{source.format}, producer {summary.producer}")
    return ", ".join(parts)


_KILO: Final = 1024


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _ops(out: Page, summary: Summary) -> None:
    out.line()
    out.heading("ops", _count(len(summary.ops), "kind"))
    for line in flowed([f"{op} {count}" for op, count in summary.ops]):
        out.line(line)


def _section(out: Page, title: str, table: Table) -> None:
    out.line()
    hidden = len(table.rows) - MAX_LISTED
    shown = Table(table.columns, table.rows[:MAX_LISTED], table.headings)
    out.heading(title)
    out.table(shown)
    if hidden > 0:
        out.line(f"  and {hidden} more", "dim")


def _endpoints(out: Page, title: str, endpoints: tuple[Endpoint, ...]) -> None:
    if endpoints:
        _section(out, title, tables.endpoints_table(endpoints))


def _remarks(out: Page, summary: Summary) -> None:
    if summary.faults:
        out.line()
        out.line(f"{_count(summary.faults, 'fault')} in the loops; check tells them", "red")
    if summary.unrunnable_ops:
        out.line()
        out.line(f"cannot be run as it is: {', '.join(summary.unrunnable_ops)}", "yellow")
