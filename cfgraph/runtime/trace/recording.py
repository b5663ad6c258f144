"""Recording of a run for its timeline, in bounded memory."""

from __future__ import annotations

from typing import Any, Final

from cfgraph.ir.graph import Graph
from cfgraph.ir.node import Output
from cfgraph.rich_display import Pictured
from cfgraph.runtime.trace.events import TraceEvent
from cfgraph.runtime.trace.summary import Totals

# longer runs show only their first events
MAX_EVENTS: Final = 20_000
_MILLISECOND: Final = 1_000_000


class RunTimeline(Pictured):
    """The first events of a run, totals of all, the graph that ran, and the fetched values.

    A notebook displays it as a page with the graph, a timeline of the devices, and times.
    """

    # times of a real GPU are known after the run
    deferred = True

    def __init__(self, *, is_virtual: bool) -> None:
        self.is_virtual = is_virtual
        self.events: list[TraceEvent] = []
        self.totals = Totals()
        self.graph: Graph | None = None
        self.values: dict[Output, Any] = {}
        self.error: BaseException | None = None

    def event(self, event: TraceEvent) -> None:
        """Record one event, without its values."""
        self.totals.event(event)
        if event.is_token and len(self.events) < MAX_EVENTS:
            self.events.append(event._replace(outputs=()))

    def __repr__(self) -> str:
        time = f"{self.totals.end_ns / _MILLISECOND:.3f} ms"
        failed = ", failed" if self.error is not None else ""
        return f"<RunTimeline of {self.totals.count} events, {time}{failed}>"
