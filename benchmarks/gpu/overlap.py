"""Overlap of the GPUs of a run, from a trace with the times of the GPUs themselves.

A gpu is busy between the events around each node that computes there, and so also while such a
node is launched; between those of a copy its copy streams are.
"""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cfgraph.ir.devices import has_own_memory
from cfgraph.ops.opdef.op import lookup
from cfgraph.runtime.trace.events import ROOT_FRAME, TraceEvent
from cfgraph.runtime.trace.export import ChromeWriter

# start and end, in nanoseconds
Span = tuple[int, int]
# iterations of a loop that are worth a picture
SHOWN: Final = 8


class EventRecorder:
    """An observer that keeps all events but their values, and never has the host wait."""

    deferred = True

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []

    def event(self, event: TraceEvent) -> None:
        """Keep one event."""
        self.events.append(event._replace(outputs=()))


@dataclass(frozen=True)
class Overlap:
    """Nanoseconds of the loops of a run: all of them, those in which any gpu computes, and several.

    `busy` are those of each gpu, `copies` those of its copies, `gpu:0 to host` and the other ways.
    """

    span: int = 0
    computing: int = 0
    together: int = 0
    busy: dict[str, int] = field(default_factory=dict)
    copies: dict[str, int] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """The part of the time in which two gpus or more compute."""
        return self.together / self.span if self.span else 0.0

    @property
    def mean(self) -> float:
        """The mean number of GPUs that compute while any does."""
        return sum(self.busy.values()) / self.computing if self.computing else 0.0

    def to_json(self) -> dict[str, Any]:
        """The figures in milliseconds, for a file."""
        ms = {name: getattr(self, name) / 1e6 for name in ("span", "computing", "together")}
        busy = {device: time / 1e6 for device, time in self.busy.items()}
        copies = {way: time / 1e6 for way, time in self.copies.items()}
        parts = {"share": self.share, "mean": self.mean}
        return {**ms, **parts, "busy": busy, "copies": copies, "unit": "ms"}


def overlap(events: Iterable[TraceEvent]) -> Overlap:
    """The overlap of the GPUs in the loops of a run."""
    computed: defaultdict[str, list[Span]] = defaultdict(list)
    copied: defaultdict[str, list[Span]] = defaultdict(list)
    for event in events:
        span = event.start_ns, event.end_ns
        if not has_own_memory(event.device):
            continue
        if event.kind == "copy":
            copied[f"{event.device} {event.text}"].append(span)
        elif event.frame != ROOT_FRAME and computes(event):
            computed[event.device].append(span)
    busy = {device: merged(spans) for device, spans in sorted(computed.items())}
    ends = [edge for spans in busy.values() for span in spans for edge in span]
    if not ends:
        return Overlap()
    return Overlap(
        max(ends) - min(ends),
        at_once(busy.values(), 1),
        at_once(busy.values(), 2),
        {device: length(spans) for device, spans in busy.items()},
        {way: length(merged(spans)) for way, spans in sorted(copied.items())},
    )


def computes(event: TraceEvent) -> bool:
    """True for a live token that a kernel may run for, of an op that is more than a way."""
    op = lookup(event.op)
    if event.kind != "op" or event.dead or op is None:
        return False
    return bool(op.signature.partition("->")[0].strip()) and not (
        op.role or op.aliasing.is_identity or op.algebra.shape_only
    )


def merged(spans: Iterable[Span]) -> list[Span]:
    """The time that spans cover, as spans that do not meet."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def length(spans: Iterable[Span]) -> int:
    """The total length of spans."""
    return sum(end - start for start, end in spans)


def at_once(devices: Iterable[Sequence[Span]], count: int) -> int:
    """The time in which at least `count` devices were busy at once."""
    edges = sorted(edge for spans in devices for a, b in spans for edge in ((a, 1), (b, -1)))
    found = running = before = 0
    for when, change in edges:
        if running >= count:
            found += when - before
        running, before = running + change, when
    return found


def save(events: Sequence[TraceEvent], path: Path) -> None:
    """Write some iterations from the middle of the loops, for Perfetto."""
    last = max((event.iteration for event in events), default=0)
    first = max(last - SHOWN, 0) // 2
    # the same run gives the same bytes
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        writer = ChromeWriter(file, str)
        for event in events:
            if event.frame != ROOT_FRAME and first <= event.iteration < first + SHOWN:
                writer.event(event)
        writer.close()
