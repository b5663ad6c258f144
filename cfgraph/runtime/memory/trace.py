"""Adds what a device holds to the events of a run."""

from __future__ import annotations

from cfgraph.runtime.memory.meter import Meter
from cfgraph.runtime.trace import Observer, TraceEvent


class MemoryTrace:
    """Hands on each event of a token with the bytes that its device holds after it."""

    def __init__(self, observer: Observer, meter: Meter) -> None:
        self.observer = observer
        self._meter = meter

    def noted(self, event: TraceEvent) -> TraceEvent:
        """The event with what its device holds now."""
        memory = self._meter.memories.get(event.device)
        if memory is None or not event.is_token:
            return event
        return event._replace(memory=memory.used)

    def event(self, event: TraceEvent) -> None:
        """Hand on one event."""
        self.observer.event(self.noted(event))
