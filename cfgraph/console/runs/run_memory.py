"""Memory of a run: peaks and copies of each device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from cfgraph.cli.output import OutputTable, Page, report_table
from cfgraph.ir.devices import is_simulated, marked_device_name
from cfgraph.ir.units import format_byte_size, format_duration
from cfgraph.reports import Column, Count, Inline, Real, Record, members
from cfgraph.runtime.memory.accounting import CopyTotals, DeviceMemory

MemoryByDevice = Mapping[str, DeviceMemory]


class CopiesReport(Record):
    """The copies of a device by direction."""

    to_host: CopyTotals
    to_device: CopyTotals
    from_devices: CopyTotals
    swapped_out: CopyTotals
    swapped_in: CopyTotals


class MemoryReport(Record):
    """The memory of a device and its copies; times are seconds."""

    device: str
    simulated: bool
    limit: Annotated[Count | None, Column(cell=format_byte_size)]
    peak: Annotated[Count, Column(cell=format_byte_size)]
    peak_node: Annotated[str | None, Column(title="peak at", names=True)]
    afterwards: Annotated[Count, Column(title="after run", cell=format_byte_size)]
    host_peak: Annotated[Count | None, Column(cell=format_byte_size)]
    copies: Inline[CopiesReport]
    waits: Annotated[Count, Column(title="stalls", optional=True, cell=lambda count: count or None)]
    waited: Real

    @property
    def label(self) -> Annotated[str, Column(title="device", style="cyan")]:
        """The short name, marked if the device is simulated."""
        return marked_device_name(self.device, simulated=self.simulated)

    @property
    def stalled(self) -> Annotated[str | None, Column(right=True, optional=True)]:
        """The time of stalls as text."""
        return format_duration(self.waited * 1e9) if self.waits else None


def print_memory(out: Page, memories: MemoryByDevice) -> None:
    """Print one row per device, then the copies."""
    reports = memory_reports(memories)
    names = ("limit", "peak", "afterwards", "host_peak", "waits", "stalled", "peak_node")
    out.line()
    out.heading("memory")
    out.table(report_table(MemoryReport, reports, "label", *names))
    copied = _copies_table(reports)
    if copied.rows:
        out.line()
        out.heading("copies")
        out.table(copied)


def _copies_table(reports: Sequence[MemoryReport]) -> OutputTable:
    columns = [
        Column("device", style="cyan"),
        Column("copies"),
        Column("count", right=True),
        Column("bytes", right=True),
    ]
    rows = [
        (report.label, key.replace("_", " "), copies.count, format_byte_size(copies.bytes))
        for report in reports
        for key, copies in members(report.copies)
        if copies.count
    ]
    return OutputTable(columns, [*rows])


def memory_reports(memories: MemoryByDevice) -> list[MemoryReport]:
    """Return memory and copies as members of a document."""
    return [_memory_report(memory) for _, memory in sorted(memories.items())]


def _memory_report(memory: DeviceMemory) -> MemoryReport:
    return MemoryReport.from_attributes(
        memory,
        simulated=is_simulated(memory.device, real=memory.real),
        afterwards=memory.used,
        host_peak=memory.host_peak if memory.is_separate else None,
        copies=CopiesReport.from_attributes(memory),
        waits=memory.stalls,
        waited=memory.stalled,
    )
