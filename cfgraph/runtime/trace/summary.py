"""Summaries of a run: totals, times of loop iterations, and device activity in bins of time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cfgraph.runtime.trace.events import ROOT_FRAME, TraceEvent

# the iteration of each loop in a frame's path
_ITERATION: Final = re.compile(r"\[\d+\](?=/|\Z)")
KEYS: Final = ("op", "node", "frame")


@dataclass(slots=True)
class Total:
    """Totals of one op, node, or loop; times in nanoseconds."""

    name: str
    count: int = 0
    dead: int = 0
    total_ns: int = 0
    max_ns: int = 0

    @property
    def mean_ns(self) -> float:
        """The mean time of an event."""
        return self.total_ns / self.count if self.count else 0.0


class Totals:
    """Observer that adds up events, in constant memory."""

    def __init__(self) -> None:
        self.count = 0
        self.dead = 0
        self.end_ns = 0
        self._by: dict[str, dict[str, Total]] = {key: {} for key in KEYS}

    def event(self, event: TraceEvent) -> None:
        """Count an event if it is a token."""
        if not event.is_token:
            return
        self.count += 1
        self.dead += event.dead
        self.end_ns = max(self.end_ns, event.end_ns)
        duration = event.end_ns - event.start_ns
        for key, name in zip(KEYS, (event.op, event.node, loop_of(event.frame)), strict=True):
            total = self._by[key].get(name)
            if total is None:
                total = self._by[key][name] = Total(name)
            total.count += 1
            total.dead += event.dead
            total.total_ns += duration
            total.max_ns = max(total.max_ns, duration)

    def by(self, key: str) -> list[Total]:
        """The totals by `op`, `node`, or `frame`, longest first."""
        return sorted(self._by[key].values(), key=lambda total: (-total.total_ns, total.name))


def loop_of(frame: str) -> str:
    """The path of a frame without iterations."""
    return _ITERATION.sub("", frame)


@dataclass
class IterationTimes:
    """Observer of one loop's iteration times in nanoseconds; `frames` are outermost first.

    Of a nested loop, only its first execution is observed.
    """

    frames: Sequence[str]
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    busy: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._inside = re.compile(_iteration_pattern(self.frames)).match
        self._outer: str | None = None

    def event(self, event: TraceEvent) -> None:
        """Use an event if it is a live token of the loop."""
        match = self._inside(event.frame) if event.is_token and not event.dead else None
        if match is None:
            return
        if self._outer is None:
            self._outer = match[1]
        if match[1] != self._outer:
            return
        number = int(match[2])
        first, last = self.spans.get(number, (event.start_ns, event.end_ns))
        self.spans[number] = min(first, event.start_ns), max(last, event.end_ns)
        duration = event.end_ns - event.start_ns
        self.busy[event.device] = self.busy.get(event.device, 0) + duration

    @property
    def period(self) -> float | None:
        """The mean time between the ends of iterations, or None for fewer than two."""
        ends = sorted(last for _, last in self.spans.values())
        return (ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 1 else None

    @property
    def at_once(self) -> int:
        """The largest number of iterations in flight."""
        steps = [
            step for first, last in self.spans.values() for step in ((first, 1), (last + 1, -1))
        ]
        most = now = 0
        for _, step in sorted(steps):
            now += step
            most = max(most, now)
        return most

    @property
    def busiest(self) -> tuple[str, float] | None:
        """The busiest device of the loop, and its utilization during the loop."""
        if not self.busy:
            return None
        device = max(self.busy, key=self.busy.__getitem__)
        first = min(first for first, _ in self.spans.values())
        last = max(last for _, last in self.spans.values())
        return device, self.busy[device] / (last - first) if last > first else 1.0


def _iteration_pattern(frames: Sequence[str]) -> str:
    """Pattern of frames in a loop, nested loops included: the outer iterations, and its own."""
    outer = "".join(rf"/{re.escape(name)}\[\d+\]" for name in frames[:-1])
    return rf"({outer})/{re.escape(frames[-1])}\[(\d+)\](?:/|$)"


BINS: Final = 4096
_FIRST_STEP_NS: Final = 256
# marks of a bin, apart from the last digit of an iteration
OUTSIDE: Final = "#"
DEAD: Final = "."


@dataclass(slots=True)
class TraceLane:
    """Activity of one device: counts, and the time per bin and mark."""

    device: str
    real: bool = False
    tokens: int = 0
    dead: int = 0
    busy_ns: int = 0
    sent: int = 0
    received: int = 0
    bytes: int = 0
    marks: Counter[tuple[int, str]] = field(default_factory=Counter)


class TraceLanes:
    """Observer with one lane per device, in constant memory.

    `arrivals` counts messages by bin, sender, and receiver. A bin is `step_ns` long; when the run
    outgrows the bins, two are merged into one.
    """

    def __init__(self) -> None:
        self.lanes: dict[str, TraceLane] = {}
        self.arrivals: Counter[tuple[int, str, str]] = Counter()
        self.step_ns = _FIRST_STEP_NS
        self.end_ns = 0

    def event(self, event: TraceEvent) -> None:
        """Count an event in the lane of its device if it is a token."""
        if not event.is_token:
            return
        lane = self.lane(event.device)
        lane.real = event.real
        lane.tokens += 1
        lane.dead += event.dead
        duration = event.end_ns - event.start_ns
        lane.busy_ns += duration
        self.end_ns = max(self.end_ns, event.end_ns)
        while self.end_ns >= self.step_ns * BINS:
            self._widen()
        for bin_index in range(event.start_ns // self.step_ns, event.end_ns // self.step_ns + 1):
            lane.marks[bin_index, _mark(event)] += min(max(duration, 1), self.step_ns)
        if event.is_send:
            self.lane(event.peer)
            lane.sent += 1
            lane.bytes += event.bytes
        elif event.is_recv:
            lane.received += 1
            self.arrivals[event.end_ns // self.step_ns, event.peer, event.device] += 1

    def lane(self, device: str) -> TraceLane:
        """The lane of a device, made on first use."""
        lane = self.lanes.get(device)
        if lane is None:
            lane = self.lanes[device] = TraceLane(device)
        return lane

    def _widen(self) -> None:
        self.step_ns *= 2
        for lane in self.lanes.values():
            lane.marks = _halved(lane.marks)
        self.arrivals = _halved(self.arrivals)


def _halved(counts: MutableMapping[Any, int]) -> Counter[Any]:
    """The counts with pairs of bins merged; a key starts with its bin."""
    halved: Counter[Hashable] = Counter()
    for (bin_index, *rest), count in counts.items():
        halved[bin_index // 2, *rest] += count
    return halved


def _mark(event: TraceEvent) -> str:
    if event.dead:
        return DEAD
    return OUTSIDE if event.frame == ROOT_FRAME else str(event.iteration % 10)
