"""Memory of a run: peaks and copies of each device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cfgraph.cli.output import Column, OutputTable, Page
from cfgraph.ir.devices import device_label, is_simulated
from cfgraph.ir.units import format_byte_size, format_duration
from cfgraph.runtime.memory.accounting import CopyTotals, DeviceMemory

MemoryByDevice = Mapping[str, DeviceMemory]


def print_memory(out: Page, memories: MemoryByDevice) -> None:
    """Print one row per device, then the copies."""
    ordered = [memories[name] for name in sorted(memories)]
    out.line()
    out.heading("memory")
    out.table(_usage_table(ordered))
    copied = OutputTable(
        [
            Column("device", style="cyan"),
            Column("copies"),
            Column("count", right=True),
            Column("bytes", right=True),
        ],
        [
            (
                device_label(memory.device, real=memory.real),
                what,
                copies.count,
                format_byte_size(copies.bytes),
            )
            for memory in ordered
            for what, copies in _copies_by_direction(memory)
            if copies.count
        ],
    )
    if copied.rows:
        out.line()
        out.heading("copies")
        out.table(copied)


def _usage_table(memories: Sequence[DeviceMemory]) -> OutputTable:
    columns = [
        Column("device", style="cyan"),
        *(Column(name, right=True) for name in ("limit", "peak", "after run", "host peak")),
        Column("stalls", right=True, optional=True),
        Column("stalled", right=True, optional=True),
        Column("peak at"),
    ]
    rows: list[Any] = [
        (
            device_label(memory.device, real=memory.real),
            None if memory.limit is None else format_byte_size(memory.limit),
            format_byte_size(memory.peak),
            format_byte_size(memory.used),
            format_byte_size(memory.host_peak) if memory.is_separate else None,
            memory.stalls or None,
            format_duration(memory.stalled * 1e9) if memory.stalls else None,
            memory.peak_node,
        )
        for memory in memories
    ]
    return OutputTable(columns, rows)


def _copies_by_direction(memory: DeviceMemory) -> Iterator[tuple[str, CopyTotals]]:
    yield "to host", memory.to_host
    yield "to device", memory.to_device
    yield "from devices", memory.from_devices
    yield "swapped out", memory.swapped_out
    yield "swapped in", memory.swapped_in


def memory_json(memories: MemoryByDevice) -> list[dict[str, Any]]:
    """Return memory and copies as a member of a JSON document; times are seconds."""
    return [
        {
            "device": memory.device,
            "simulated": is_simulated(memory.device, real=memory.real),
            "limit": memory.limit,
            "peak": memory.peak,
            "peak_node": memory.peak_node,
            "afterwards": memory.used,
            "host_peak": memory.host_peak if memory.is_separate else None,
            **{
                what.replace(" ", "_"): {"count": copies.count, "bytes": copies.bytes}
                for what, copies in _copies_by_direction(memory)
            },
            "waits": memory.stalls,
            "waited": memory.stalled,
        }
        for _, memory in sorted(memories.items())
    ]
