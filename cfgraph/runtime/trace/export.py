"""Trace files: JSON lines, and the JSON of Perfetto and chrome://tracing.

In Chrome JSON a device is a process. Its kernels are slices on lanes without overlap, an iteration
of a loop is an asynchronous slice, and a transfer is a flow arrow.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import IO, Any, Final

from cfgraph.ir.devices import device_label, is_simulated
from cfgraph.runtime.trace.events import (
    FROM_HOST,
    ROOT_FRAME,
    SWAP_IN,
    SWAP_OUT,
    TO_HOST,
    TraceEvent,
)

SCHEMA: Final = "cfgraph.trace/1"
encode: Final = json.JSONEncoder(separators=(",", ":")).encode


class JsonlWriter:
    """Observer that writes each event as it happens."""

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
            "out": [None if value is None else describe(value) for value in event.outputs],
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
        """Do nothing: all events are written."""

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(encode(line).encode() + b"\n")


# lanes of copies, apart from those of kernels
_COPY_LANES: Final = {SWAP_OUT: 1001, SWAP_IN: 1002, TO_HOST: 1003, FROM_HOST: 1004}


class ChromeWriter:
    """Observer that writes each event as it happens, and iterations on `close`."""

    def __init__(self, file: IO[bytes], describe: Callable[[Any], str]) -> None:
        self._file = file
        self._describe = describe
        self._separator = b"\n"
        self._lanes: dict[str, list[int]] = {}
        self._processes: dict[str, int] = {}
        self._memory: dict[int, int] = {}
        self._copy_lanes: set[tuple[int, int]] = set()
        self._iterations: dict[tuple[int, str], list[int]] = {}
        self._open_flows: dict[str, tuple[int, int, int]] = {}
        self._transfers = 0
        head = {"schema": SCHEMA}
        text = f'{{"displayTimeUnit":"ns","otherData":{json.dumps(head)},"traceEvents":['
        file.write(text.encode())

    def event(self, event: TraceEvent) -> None:
        """Write one event."""
        process = self._process(event.device, event.real)
        if event.kind == "copy":
            self._copy(process, event)
            return
        if event.memory is not None and self._memory.get(process) != event.memory:
            self._memory[process] = event.memory
            used = {"bytes": event.memory}
            self._write("C", "memory", "memory", event.start_ns, process, args=used)
        if event.frame != ROOT_FRAME:
            self._extend_iterations(process, event)
        arguments = {"node": event.node, "op": event.op, "frame": event.frame}
        if not event.is_token or (event.dead and event.flow is None):
            arguments["outputs"] = "dead" if event.dead else event.text
            self._write("i", event.node, event.kind, event.start_ns, process, s="t", args=arguments)
            return
        if event.dead:
            arguments["outputs"] = "dead"
        else:
            arguments["outputs"] = ", ".join(
                "dead" if value is None else self._describe(value) for value in event.outputs
            )
        if event.bytes:
            arguments["bytes"] = str(event.bytes)
        lane = self._lane(event)
        duration = (event.end_ns - event.start_ns) / 1000
        self._write(
            "X", event.node, event.op, event.start_ns, process, lane, dur=duration, args=arguments
        )
        if event.flow is not None:
            self._flow(event.flow, event, process, lane)

    def close(self) -> None:
        """Write the iterations, each from its first event to its last, and the end of the file."""
        for (process, path), (start, end) in self._iterations.items():
            name = f"{process}:{path}"
            self._write("b", path, "iteration", start, process, id=name)
            self._write("e", path, "iteration", end, process, id=name)
        self._file.write(b"\n]}\n")

    def _process(self, device: str, real: bool) -> int:
        """The number of a device, whose name is written on first use."""
        known = self._processes.get(device)
        if known is not None:
            return known
        number = self._processes[device] = len(self._processes) + 1
        self._lanes[device] = []
        name = device_label(device, real=real)
        self._write("M", "process_name", "", 0, number, args={"name": name})
        self._write("M", "process_sort_index", "", 0, number, args={"sort_index": number})
        return number

    def _lane(self, event: TraceEvent) -> int:
        """The first lane of the device that is free when the event starts."""
        lanes = self._lanes[event.device]
        for index, end in enumerate(lanes):
            if end <= event.start_ns:
                lanes[index] = event.end_ns
                return index + 1
        lanes.append(event.end_ns)
        arguments = {"name": f"kernels {len(lanes)}"}
        process = self._processes[event.device]
        self._write("M", "thread_name", "", 0, process, len(lanes), args=arguments)
        return len(lanes)

    def _copy(self, process: int, event: TraceEvent) -> None:
        """Write a copy to the host or back, with a separate lane for each direction."""
        lane = _COPY_LANES[event.text]
        arguments = {"name": event.text}
        if (process, lane) not in self._copy_lanes:
            self._copy_lanes.add((process, lane))
            self._write("M", "thread_name", "", 0, process, lane, args=arguments)
        duration = (event.end_ns - event.start_ns) / 1000
        copy_arguments = {"node": event.node, "bytes": str(event.bytes)}
        self._write(
            "X",
            event.node,
            "copy",
            event.start_ns,
            process,
            lane,
            dur=duration,
            args=copy_arguments,
        )

    def _extend_iterations(self, process: int, event: TraceEvent) -> None:
        """Extend the slices of the iteration and of the enclosing ones."""
        path = event.frame
        while path:
            span = self._iterations.get((process, path))
            if span is None:
                self._iterations[process, path] = [event.start_ns, event.end_ns]
            else:
                span[0] = min(span[0], event.start_ns)
                span[1] = max(span[1], event.end_ns)
            outer = path.rfind("]/")
            path = path[: outer + 1] if outer >= 0 else ""

    def _flow(self, flow: str, event: TraceEvent, process: int, lane: int) -> None:
        """Write both ends of a transfer once both are known."""
        end = (event.start_ns, process, lane)
        first_end = self._open_flows.pop(flow, None)
        if first_end is None:
            self._open_flows[flow] = end
            return
        sent, received = (end, first_end) if event.is_send else (first_end, end)
        self._transfers += 1
        self._write("s", "transfer", "transfer", *sent, id=self._transfers)
        self._write("f", "transfer", "transfer", *received, id=self._transfers, bp="e")

    def _write(
        self,
        phase: str,
        name: str,
        category: str,
        ns: int,
        process: int,
        lane: int = 0,
        **fields: Any,
    ) -> None:
        line = {
            "ph": phase,
            "name": name,
            "cat": category,
            "ts": round(ns / 1000, 3),
            "pid": process,
            "tid": lane,
            **fields,
        }
        text = encode(line)
        self._file.write(self._separator + text.encode())
        self._separator = b",\n"
