"""Adds what a device holds to the events of a run."""

from __future__ import annotations

from cfgraph.runtime.memory.meter import Meter
from cfgraph.runtime.trace import Observer, TraceEvent


class MemoryTrace:
    """Hands on each event of a token with the bytes that its device holds after it."""

    def __init__(self, observer: Observer, meter: Meter) -> None:
        self.observer = observer
        self._meter = meter

    def event(self, event: TraceEvent) -> None:
        """Hand on one event."""
        memory = self._meter.memories.get(event.device)
        if memory is not None and event.is_token:
            event = event._replace(memory=memory.used)
        self.observer.event(event)
