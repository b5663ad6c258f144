"""Devices, and the parts of a partitioned graph, as a person reads them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cfgraph.analysis.partitions import MessageRoute, Partitions
from cfgraph.console.tables import Column, Table
from cfgraph.ir.devices import short_device_name
from cfgraph.runtime.devices.simulated import device_text, is_simulated


def parts_table(parts: Partitions) -> Table:
    """A row a device: its nodes, control loops, and what it sends."""
    columns = [
        Column("device", style="cyan"),
        Column("nodes", right=True),
        Column("control_loops", "control loops", right=True),
        Column("once", "sends once", right=True),
        Column("iteration", "sends an iteration", right=True),
    ]
    rows: list[Any] = [
        (device_text(part.device), part.nodes, len(part.control_loops), part.once, part.iteration)
        for part in parts.parts
    ]
    return Table(columns, rows)


def routes_table(parts: Partitions) -> Table:
    """A row for the messages from one device to another in one loop."""
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
    return Table(columns, rows)


def parts_json(parts: Partitions) -> dict[str, Any]:
    """The devices and the routes for a JSON document."""
    return {
        "devices": [{**asdict(p), "simulated": is_simulated(p.device)} for p in parts.parts],
        "routes": [_route_json(route) for route in parts.routes],
    }


def _route_json(route: MessageRoute) -> dict[str, Any]:
    told = asdict(route)
    return {"from": told.pop("source"), "to": told.pop("target"), **told}


def _bytes_text(route: MessageRoute) -> str:
    if not route.unknown:
        return str(route.bytes)
    return f"{route.bytes} + ?" if route.bytes else "?"
