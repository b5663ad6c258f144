"""When each iteration of a loop runs, from the events of a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from cfgraph.runtime.trace import TraceEvent


@dataclass
class Iterations:
    """An observer that keeps the time of each iteration of a loop: of the frames, outer ones first.

    Of a loop in a loop, they are those of the first time that it runs. Times are nanoseconds.
    """

    frames: Sequence[str]
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    busy: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._inside = re.compile(_pattern(self.frames)).match
        self._outer: str | None = None

    def event(self, event: TraceEvent) -> None:
        """Take one event of a run."""
        found = self._inside(event.frame) if event.is_token and not event.dead else None
        if found is None:
            return
        if self._outer is None:
            self._outer = found[1]
        if found[1] != self._outer:
            return
        number = int(found[2])
        first, last = self.spans.get(number, (event.start_ns, event.end_ns))
        self.spans[number] = min(first, event.start_ns), max(last, event.end_ns)
        took = event.end_ns - event.start_ns
        self.busy[event.device] = self.busy.get(event.device, 0) + took

    @property
    def period(self) -> float | None:
        """The time from the end of an iteration to that of the next; None for fewer than two."""
        ends = sorted(last for _, last in self.spans.values())
        return (ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 1 else None

    @property
    def at_once(self) -> int:
        """The most iterations that run at the same time."""
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
        """The device that works most in the loop, and the part of the loop's time that it does."""
        if not self.busy:
            return None
        device = max(self.busy, key=self.busy.__getitem__)
        first = min(first for first, _ in self.spans.values())
        last = max(last for _, last in self.spans.values())
        return device, self.busy[device] / (last - first) if last > first else 1.0


def _pattern(frames: Sequence[str]) -> str:
    """Of what runs in a loop, and in those in it: the iterations around it, and its own."""
    outer = "".join(rf"/{re.escape(name)}\[\d+\]" for name in frames[:-1])
    return rf"({outer})/{re.escape(frames[-1])}\[(\d+)\](?:/|$)"
