"""Trace of a run on a real GPU, whose times are known only when the run ends.

An observer that shows events at once gets values and host times, and the host waits for them. A
`deferred` observer gets its events after the run with GPU times; nothing waits for it, and large
values are reported as abstract tensors.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from cfgraph.ops.opdef.abstract_tensor import AbstractTensor
from cfgraph.runtime.engine.frame_state import Fire, Iteration
from cfgraph.runtime.engine.link import FireWrapper
from cfgraph.runtime.engine.plan import NodePlan
from cfgraph.runtime.engine.propagate import Consumers
from cfgraph.runtime.engine.tracing import trace_wrapper
from cfgraph.runtime.gpu.plan import map_contained
from cfgraph.runtime.gpu.stream import SMALL_COPY, DeviceCopy, GpuStream, TimedCopy
from cfgraph.runtime.memory.accounting import MemoryTrace
from cfgraph.runtime.trace.events import (
    FROM_HOST,
    ROOT_FRAME,
    SWAP_IN,
    SWAP_OUT,
    TO_HOST,
    InstantCopyTimer,
    Observer,
    Tee,
    TraceEvent,
)


class _DeferredEvent(NamedTuple):
    """An event, and where its times come from."""

    event: TraceEvent
    lane: GpuStream | None
    start: Any
    end: Any


class GpuTrace:
    """What stands between a run on a card and its observer."""

    def __init__(self, observer: Observer, began: int) -> None:
        self.began = began
        self._memory = observer if isinstance(observer, MemoryTrace) else None
        inner = observer.observer if isinstance(observer, MemoryTrace) else observer
        parts = inner.observers if isinstance(inner, Tee) else (inner,)
        self._later = [one for one in parts if getattr(one, "deferred", False)]
        self._now = [one for one in parts if one not in self._later]
        self._pending: list[_DeferredEvent] = []
        # an event of the card, and when that was
        self._origin: tuple[Any, int] = (None, 0)
        self._lanes: dict[str, GpuStream] = {}

    def wrap(self, device: str, lane: GpuStream | None) -> FireWrapper:
        """What is put around the closures of a device."""
        if lane is not None:
            self._lanes[device] = lane
        told = _DeviceObserver(self, lane)
        inner = trace_wrapper(told, device, self.began)

        def wrap(
            plan: NodePlan, ports: list[Consumers], live: Fire, dead: Fire
        ) -> tuple[Fire, Fire]:
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
            lane.name_copy(node, SWAP_OUT if out else SWAP_IN)

    def take(self, event: TraceEvent, lane: GpuStream | None, start: Any, end: Any) -> None:
        """Take an event as it happens."""
        if self._memory is not None:
            event = self._memory.noted(event)
        event = event._replace(real=lane is not None)
        # the card tells of its copies with the token that began them
        if self._later and (lane is None or event.kind != "copy"):
            self._put_off(event, lane, start, end)
        if self._now:
            if lane is not None:
                told = tuple(map_contained(value, lane.to_host) for value in event.outputs)
                event = event._replace(outputs=told)
            for observer in self._now:
                observer.event(event)

    def _put_off(self, event: TraceEvent, lane: GpuStream | None, start: Any, end: Any) -> None:
        """Keep an event until the run is over, and the copies that it began."""
        copies = None if lane is None else lane.timed
        if lane is not None:
            # what is copied to be told is no copy of the run's
            lane.timed = None
        outputs = tuple(_deferred_value(lane, value) for value in event.outputs)
        self._pending.append(_DeferredEvent(event._replace(outputs=outputs), lane, start, end))
        if lane is not None and copies is not None:
            self._pending += (_copy_event(event, lane, copy) for copy in copies)
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

    def _dated(self, one: _DeferredEvent) -> TraceEvent:
        """An event with its values, and the times of the card."""
        outputs = tuple(v.wait() if isinstance(v, DeviceCopy) else v for v in one.event.outputs)
        event = one.event._replace(outputs=outputs)
        if one.lane is None or one.end is None:
            return event
        origin, began = self._origin
        one.end.synchronize()
        start, end = (began + one.lane.between(origin, mark) for mark in (one.start, one.end))
        return event._replace(start_ns=start, end_ns=end)


class GpuCopyTimer(InstantCopyTimer):
    """What dates copies of stacks: the card does, when it is asked in the end."""

    def __init__(self, trace: GpuTrace) -> None:
        super().__init__(trace, trace.began)
        self.trace = trace

    def copy(self, device: str, node: str, size: int, *, out: bool) -> float:
        """They are there for all that the host has to know."""
        self.trace.swapped(device, node, out=out)
        return super().copy(device, node, size, out=out)


class _DeviceObserver:
    """The observer of one device: it knows between which events of the card a token ran."""

    def __init__(self, owner: GpuTrace, lane: GpuStream | None) -> None:
        self.owner, self.lane = owner, lane
        self._start: Any = None
        self._end: Any = None

    def timed(self, live: Fire) -> Fire:
        """A closure between two events of the card."""
        assert self.lane is not None
        compute = self.lane.compute

        def fire(iteration: Iteration) -> None:
            self._start = compute.record()
            live(iteration)
            self._end = compute.record()

        return fire

    def event(self, event: TraceEvent) -> None:
        """Hand on one event."""
        self.owner.take(event, self.lane, self._start, self._end)
        self._start = self._end = None


def _deferred_value(lane: GpuStream | None, value: Any) -> Any:
    """What is kept of a value until the run is over: a copy on its way, or an outline."""
    if lane is None or type(value) is not lane.card.array:
        return value
    return (
        lane.copy(value) if value.nbytes <= SMALL_COPY else AbstractTensor(value.dtype, value.shape)
    )


def _copy_event(token: TraceEvent, lane: GpuStream, copy: TimedCopy) -> _DeferredEvent:
    """A copy that began as a token ran: of its own values unless it says of whose."""
    text = copy.text or (TO_HOST if copy.out else FROM_HOST)
    event = TraceEvent(token.device, copy.node or token.node, "", ROOT_FRAME, 0, False, 0, 0)
    event = event._replace(kind="copy", text=text, bytes=copy.bytes, real=True)
    return _DeferredEvent(event, lane, copy.start, copy.end)
