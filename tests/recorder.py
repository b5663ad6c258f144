"""An observer of runs that keeps all events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cfgraph.runtime.trace.events import TraceEvent


class Recorder:
    """Observer that keeps all events, with descriptions of outputs unless `values` is true."""

    def __init__(self, *, values: bool = False, describe: Callable[[Any], str] = str) -> None:
        self.events: list[TraceEvent] = []
        self._values = values
        self._describe = describe

    def event(self, event: TraceEvent) -> None:
        """Keep one event."""
        if not self._values:
            describe = self._describe
            descriptions = tuple(
                None if value is None else describe(value) for value in event.outputs
            )
            event = event._replace(outputs=descriptions)
        self.events.append(event)
