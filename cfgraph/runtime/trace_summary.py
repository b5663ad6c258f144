"""Totals of a run's events by op, by node and by loop, kept while it runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cfgraph.runtime.trace import TraceEvent

# the iteration of each loop in a frame's path
_ITERATION: Final = re.compile(r"\[\d+\](?=/|\Z)")
KEYS: Final = ("op", "node", "frame")


@dataclass(slots=True)
class Total:
    """What all events of one op, node or loop come to; times in nanoseconds."""

    name: str
    count: int = 0
    dead: int = 0
    total_ns: int = 0
    max_ns: int = 0

    @property
    def mean_ns(self) -> float:
        """The time of one event."""
        return self.total_ns / self.count if self.count else 0.0


class Totals:
    """An observer that adds up events; its memory does not grow with the run."""

    def __init__(self) -> None:
        self.count = 0
        self.dead = 0
        self.end_ns = 0
        self._by: dict[str, dict[str, Total]] = {key: {} for key in KEYS}

    def event(self, event: TraceEvent) -> None:
        """Add one event."""
        if not event.is_token:
            return
        self.count += 1
        self.dead += event.dead
        self.end_ns = max(self.end_ns, event.end_ns)
        spent = event.end_ns - event.start_ns
        for key, name in zip(KEYS, (event.op, event.node, loop_of(event.frame)), strict=True):
            total = self._by[key].get(name)
            if total is None:
                total = self._by[key][name] = Total(name)
            total.count += 1
            total.dead += event.dead
            total.total_ns += spent
            total.max_ns = max(total.max_ns, spent)

    def by(self, key: str) -> list[Total]:
        """The totals by `op`, `node` or `frame`, the longest first."""
        return sorted(self._by[key].values(), key=lambda total: (-total.total_ns, total.name))


def loop_of(frame: str) -> str:
    """The path of a frame without the iterations."""
    return _ITERATION.sub("", frame)
