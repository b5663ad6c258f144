"""Write a trace as lines of JSON: a head, then one object an event."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import IO, Any, Final

from cfgraph.runtime.devices.simulated import is_simulated
from cfgraph.runtime.trace import TraceEvent

SCHEMA: Final = "cfgraph.trace/1"
encode: Final = json.JSONEncoder(separators=(",", ":")).encode


class JsonlWriter:
    """An observer that writes each event as it comes."""

    def __init__(self, file: IO[bytes], describe: Callable[[Any], str]) -> None:
        self._file = file
        self._describe = describe
        self._write({"schema": SCHEMA})

    def event(self, event: TraceEvent) -> None:
        """Write one event."""
        describe = self._describe
        line: dict[str, Any] = {
            "t_ns": event.start_ns,
            "dur_ns": event.end_ns - event.start_ns,
            "dev": event.device,
            "kind": event.kind,
            "node": event.node,
            "op": event.op,
            "frame": event.frame,
            "iter": event.iteration,
            "dead": event.dead,
            "out": [None if item is None else describe(item) for item in event.outputs],
        }
        if event.flow is not None:
            line["flow"] = event.flow
        if event.bytes:
            line["bytes"] = event.bytes
        if event.text:
            line["text"] = event.text
        if event.memory is not None:
            line["memory"] = event.memory
        if is_simulated(event.device, real=event.real):
            line["simulated"] = True
        self._write(line)

    def close(self) -> None:
        """Nothing is left to write."""

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(encode(line).encode() + b"\n")
