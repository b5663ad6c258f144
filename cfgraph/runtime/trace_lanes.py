"""What each device did when, in bins of time: what a timeline is drawn from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from cfgraph.runtime.trace import ROOT_FRAME, TraceEvent

BINS: Final = 4096
_FIRST_STEP_NS: Final = 256
# what fills a bin, besides the last digit of an iteration
OUTSIDE: Final = "#"
DEAD: Final = "."


@dataclass(slots=True)
class Lane:
    """One device: its events in numbers, and in each bin the time of what ran there."""

    device: str
    real: bool = False
    tokens: int = 0
    dead: int = 0
    busy_ns: int = 0
    sent: int = 0
    received: int = 0
    bytes: int = 0
    marks: Counter[tuple[int, str]] = field(default_factory=Counter)


class Lanes:
    """An observer with a lane a device; its memory does not grow with the run.

    `arrivals` counts messages by the lanes that they come from and go to, and the bin in which they
    are taken. A bin is `step_ns` long; when the run outgrows the bins, two become one.
    """

    def __init__(self) -> None:
        self.lanes: dict[str, Lane] = {}
        self.arrivals: Counter[tuple[int, str, str]] = Counter()
        self.step_ns = _FIRST_STEP_NS
        self.end_ns = 0

    def event(self, event: TraceEvent) -> None:
        """Take one event."""
        if not event.is_token:
            return
        lane = self.lane(event.device)
        lane.real = event.real
        lane.tokens += 1
        lane.dead += event.dead
        took = event.end_ns - event.start_ns
        lane.busy_ns += took
        self.end_ns = max(self.end_ns, event.end_ns)
        while self.end_ns >= self.step_ns * BINS:
            self._widen()
        for place in range(event.start_ns // self.step_ns, event.end_ns // self.step_ns + 1):
            lane.marks[place, _mark(event)] += min(max(took, 1), self.step_ns)
        if event.kind == "send":
            self.lane(event.peer)
            lane.sent += 1
            lane.bytes += event.bytes
        elif event.kind == "recv":
            lane.received += 1
            self.arrivals[event.end_ns // self.step_ns, event.peer, event.device] += 1

    def lane(self, device: str) -> Lane:
        """The lane of a device, made when it is first named."""
        found = self.lanes.get(device)
        if found is None:
            found = self.lanes[device] = Lane(device)
        return found

    def _widen(self) -> None:
        self.step_ns *= 2
        for lane in self.lanes.values():
            lane.marks = _halved(lane.marks)
        self.arrivals = _halved(self.arrivals)


def _halved(counts: MutableMapping[Any, int]) -> Counter[Any]:
    """The counts of bins twice as long; a key begins with its bin."""
    found: Counter[Hashable] = Counter()
    for (place, *rest), count in counts.items():
        found[place // 2, *rest] += count
    return found


def _mark(event: TraceEvent) -> str:
    if event.dead:
        return DEAD
    return OUTSIDE if event.frame == ROOT_FRAME else str(event.iteration % 10)
