"""The trace of a run on a card: what the card did when, which the host learns in the end.

An observer that shows what happens at once gets values and the times of the host, and the host
waits for them. One that is `deferred` gets its events when the run is over, with the times of the
card; nothing waits for it, and large values are told as outlines.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from cfgraph.ops.outline import Outline
from cfgraph.runtime.deliver import Edges
from cfgraph.runtime.devices.containers import carried
from cfgraph.runtime.devices.lane import SMALL, Copy, Lane
from cfgraph.runtime.frame_state import Fire, Iteration
from cfgraph.runtime.link import Wrap
from cfgraph.runtime.memory.trace import MemoryTrace
from cfgraph.runtime.plan import NodePlan
from cfgraph.runtime.trace import Observer, Tee, TraceEvent
from cfgraph.runtime.tracing import traced


class _Pending(NamedTuple):
    """An event, and where its times come from."""

    event: TraceEvent
    lane: Lane | None
    start: Any
    end: Any


class CardTrace:
    """What stands between a run on a card and its observer."""

    def __init__(self, observer: Observer, began: int) -> None:
        self.began = began
        self._memory = observer if isinstance(observer, MemoryTrace) else None
        inner = observer.observer if isinstance(observer, MemoryTrace) else observer
        parts = inner.observers if isinstance(inner, Tee) else (inner,)
        self._later = [one for one in parts if getattr(one, "deferred", False)]
        self._now = [one for one in parts if one not in self._later]
        self._pending: list[_Pending] = []
        self._origins: dict[Lane, tuple[Any, int]] = {}

    def wrap(self, device: str, lane: Lane | None) -> Wrap:
        """What is put around the closures of a device."""
        told = _OfDevice(self, lane)
        inner = traced(told, device, self.began)

        def wrap(plan: NodePlan, ports: list[Edges], live: Fire, dead: Fire) -> tuple[Fire, Fire]:
            timed = told.timed(live) if lane is not None and self._later else live
            return inner(plan, ports, timed, dead)

        return wrap

    def begin(self, lanes: list[Lane]) -> None:
        """Note when the clocks of the card begin."""
        for lane in lanes:
            now = time.perf_counter_ns() - self.began
            self._origins[lane] = lane.compute.record(), now

    def take(self, event: TraceEvent, lane: Lane | None, start: Any, end: Any) -> None:
        """Take an event as it happens."""
        if self._memory is not None:
            event = self._memory.noted(event)
        event = event._replace(real=lane is not None)
        if self._later:
            outputs = tuple(_later(lane, value) for value in event.outputs)
            self._pending.append(_Pending(event._replace(outputs=outputs), lane, start, end))
        if self._now:
            if lane is not None:
                told = tuple(carried(value, lane.to_host) for value in event.outputs)
                event = event._replace(outputs=told)
            for observer in self._now:
                observer.event(event)

    def close(self) -> None:
        """Hand on what was put off."""
        pending, self._pending = self._pending, []
        for one in pending:
            event = self._dated(one)
            for observer in self._later:
                observer.event(event)

    def _dated(self, one: _Pending) -> TraceEvent:
        """An event with its values, and the times of the card."""
        outputs = tuple(v.wait() if isinstance(v, Copy) else v for v in one.event.outputs)
        event = one.event._replace(outputs=outputs)
        if one.lane is None or one.end is None:
            return event
        origin, began = self._origins[one.lane]
        one.end.synchronize()
        start, end = (began + one.lane.between(origin, mark) for mark in (one.start, one.end))
        return event._replace(start_ns=start, end_ns=end)


class _OfDevice:
    """The observer of one device: it knows between which events of the card a token ran."""

    def __init__(self, owner: CardTrace, lane: Lane | None) -> None:
        self.owner, self.lane = owner, lane
        self._start: Any = None
        self._end: Any = None

    def timed(self, live: Fire) -> Fire:
        """A closure between two events of the card."""
        assert self.lane is not None
        compute = self.lane.compute

        def fire(it: Iteration) -> None:
            self._start = compute.record()
            live(it)
            self._end = compute.record()

        return fire

    def event(self, event: TraceEvent) -> None:
        """Hand on one event."""
        self.owner.take(event, self.lane, self._start, self._end)
        self._start = self._end = None


def _later(lane: Lane | None, value: Any) -> Any:
    """What is kept of a value until the run is over: a copy on its way, or an outline."""
    if lane is None or type(value) is not lane.card.array:
        return value
    return lane.copy(value) if value.nbytes <= SMALL else Outline(value.dtype, value.shape)
