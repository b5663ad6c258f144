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
from cfgraph.runtime.devices.copies import Copy, Timed
from cfgraph.runtime.devices.lane import SMALL, Lane
from cfgraph.runtime.frame_state import Fire, Iteration
from cfgraph.runtime.link import Wrap
from cfgraph.runtime.memory.times import FROM_HOST, IN, OUT, TO_HOST, AtOnce
from cfgraph.runtime.memory.trace import MemoryTrace
from cfgraph.runtime.plan import NodePlan
from cfgraph.runtime.trace import ROOT_FRAME, Observer, Tee, TraceEvent
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
        # an event of the card, and when that was
        self._origin: tuple[Any, int] = (None, 0)
        self._lanes: dict[str, Lane] = {}

    def wrap(self, device: str, lane: Lane | None) -> Wrap:
        """What is put around the closures of a device."""
        if lane is not None:
            self._lanes[device] = lane
        told = _OfDevice(self, lane)
        inner = traced(told, device, self.began)

        def wrap(plan: NodePlan, ports: list[Edges], live: Fire, dead: Fire) -> tuple[Fire, Fire]:
            timed = told.timed(live) if lane is not None and self._later else live
            return inner(plan, ports, timed, dead)

        return wrap

    def begin(self) -> None:
        """Note when the clock of the card begins: one for all streams, which have nothing to do."""
        for lane in self._lanes.values():
            lane.compute.synchronize()
            self._origin = lane.compute.record(), time.perf_counter_ns() - self.began
            self._origin[0].synchronize()
            # where somebody hears of it in the end
            lane.timed = [] if self._later else None

    def event(self, event: TraceEvent) -> None:
        """Take what is no token: notes, copies as they begin."""
        self.take(event, self._lanes.get(event.device), None, None)

    def swapped(self, device: str, node: str, *, out: bool) -> None:
        """Name the last copy: what a node pushed is on its way."""
        lane = self._lanes.get(device)
        if lane is not None:
            lane.name_copy(node, OUT if out else IN)

    def take(self, event: TraceEvent, lane: Lane | None, start: Any, end: Any) -> None:
        """Take an event as it happens."""
        if self._memory is not None:
            event = self._memory.noted(event)
        event = event._replace(real=lane is not None)
        # the card tells of its copies with the token that began them
        if self._later and (lane is None or event.kind != "copy"):
            self._put_off(event, lane, start, end)
        if self._now:
            if lane is not None:
                told = tuple(carried(value, lane.to_host) for value in event.outputs)
                event = event._replace(outputs=told)
            for observer in self._now:
                observer.event(event)

    def _put_off(self, event: TraceEvent, lane: Lane | None, start: Any, end: Any) -> None:
        """Keep an event until the run is over, and the copies that it began."""
        copies = None if lane is None else lane.timed
        if lane is not None:
            # what is copied to be told is no copy of the run's
            lane.timed = None
        outputs = tuple(_later(lane, value) for value in event.outputs)
        self._pending.append(_Pending(event._replace(outputs=outputs), lane, start, end))
        if lane is not None and copies is not None:
            self._pending += (_copied(event, lane, copy) for copy in copies)
            lane.timed = []

    def close(self) -> None:
        """Hand on what was put off."""
        for lane in self._lanes.values():
            lane.timed = None
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
        origin, began = self._origin
        one.end.synchronize()
        start, end = (began + one.lane.between(origin, mark) for mark in (one.start, one.end))
        return event._replace(start_ns=start, end_ns=end)


class CardTimes(AtOnce):
    """What dates copies of stacks: the card does, when it is asked in the end."""

    def __init__(self, trace: CardTrace) -> None:
        super().__init__(trace, trace.began)
        self.trace = trace

    def copy(self, device: str, node: str, size: int, *, out: bool) -> float:
        """They are there for all that the host has to know."""
        self.trace.swapped(device, node, out=out)
        return super().copy(device, node, size, out=out)


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


def _copied(token: TraceEvent, lane: Lane, copy: Timed) -> _Pending:
    """A copy that began as a token ran: of its own values unless it says of whose."""
    text = copy.text or (TO_HOST if copy.out else FROM_HOST)
    event = TraceEvent(token.device, copy.node or token.node, "", ROOT_FRAME, 0, False, 0, 0)
    event = event._replace(kind="copy", text=text, bytes=copy.bytes, real=True)
    return _Pending(event, lane, copy.start, copy.end)
