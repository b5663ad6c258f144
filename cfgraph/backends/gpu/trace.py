"""Trace of a run on a real GPU, whose times are known only when the run ends.

An observer that shows events at once gets values and host times, and the host waits for them. A
`deferred` observer gets its events after the run with GPU times; nothing waits for it, and large
values are reported as abstract tensors.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from cfgraph.backends.gpu.plan import map_contained
from cfgraph.backends.gpu.stream import SMALL_COPY, DeviceCopy, GpuStream, TimedCopy
from cfgraph.ir.shapes import AbstractTensor
from cfgraph.runtime.engine.link import FireWrapper
from cfgraph.runtime.engine.plan import NodePlan
from cfgraph.runtime.engine.propagate import Consumers, Fire, Iteration
from cfgraph.runtime.engine.token_trace import trace_wrapper
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
    """An event, and the GPU events that date it."""

    event: TraceEvent
    stream: GpuStream | None
    start: Any
    end: Any


class GpuTrace:
    """Adapter between a run on a GPU and its observers."""

    def __init__(self, observer: Observer, run_start: int) -> None:
        self.run_start = run_start
        self._memory = observer if isinstance(observer, MemoryTrace) else None
        inner = observer.observer if isinstance(observer, MemoryTrace) else observer
        observers = inner.observers if isinstance(inner, Tee) else (inner,)
        self._deferred = [each for each in observers if getattr(each, "deferred", False)]
        self._immediate = [each for each in observers if each not in self._deferred]
        self._pending: list[_DeferredEvent] = []
        # a GPU event, and its time
        self._origin: tuple[Any, int] = (None, 0)
        self._streams: dict[str, GpuStream] = {}

    def wrap(self, device: str, stream: GpuStream | None) -> FireWrapper:
        """The wrapper of a device's closures."""
        if stream is not None:
            self._streams[device] = stream
        recorder = _DeviceObserver(self, stream)
        inner = trace_wrapper(recorder, device, self.run_start)

        def wrap(
            plan: NodePlan, ports: list[Consumers], live: Fire, dead: Fire
        ) -> tuple[Fire, Fire]:
            timed = recorder.timed(live) if stream is not None and self._deferred else live
            return inner(plan, ports, timed, dead)

        return wrap

    def start(self) -> None:
        """Record the origin of GPU times: one for all streams, which are idle."""
        for stream in self._streams.values():
            stream.compute.synchronize()
            self._origin = stream.compute.record(), time.perf_counter_ns() - self.run_start
            self._origin[0].synchronize()
            # copies are timed only for deferred observers
            stream.timed = [] if self._deferred else None

    def event(self, event: TraceEvent) -> None:
        """Record an event that is not a token: a note, or the start of a copy."""
        self.record(event, self._streams.get(event.device), None, None)

    def name_swap(self, device: str, node: str, *, out: bool) -> None:
        """Name the last copy: a swap of a value that a node pushed."""
        stream = self._streams.get(device)
        if stream is not None:
            stream.name_copy(node, SWAP_OUT if out else SWAP_IN)

    def record(self, event: TraceEvent, stream: GpuStream | None, start: Any, end: Any) -> None:
        """Record an event as it happens."""
        if self._memory is not None:
            event = self._memory.with_memory(event)
        event = event._replace(real=stream is not None)
        # the GPU reports its copies with the token that started them
        if self._deferred and (stream is None or event.kind != "copy"):
            self._defer(event, stream, start, end)
        if self._immediate:
            if stream is not None:
                outputs = tuple(map_contained(value, stream.to_host) for value in event.outputs)
                event = event._replace(outputs=outputs)
            for observer in self._immediate:
                observer.event(event)

    def _defer(self, event: TraceEvent, stream: GpuStream | None, start: Any, end: Any) -> None:
        """Keep an event until the run is over, and the copies that it started."""
        copies = None if stream is None else stream.timed
        if stream is not None:
            # copies for the trace are not copies of the run
            stream.timed = None
        outputs = tuple(_deferred_value(stream, value) for value in event.outputs)
        self._pending.append(_DeferredEvent(event._replace(outputs=outputs), stream, start, end))
        if stream is not None and copies is not None:
            self._pending += (_copy_event(event, stream, copy) for copy in copies)
            stream.timed = []

    def close(self) -> None:
        """Deliver the deferred events."""
        for stream in self._streams.values():
            stream.timed = None
        pending, self._pending = self._pending, []
        for deferred in pending:
            event = self._with_gpu_times(deferred)
            for observer in self._deferred:
                observer.event(event)

    def _with_gpu_times(self, deferred: _DeferredEvent) -> TraceEvent:
        """The event with its values and GPU times."""
        outputs = tuple(
            v.wait() if isinstance(v, DeviceCopy) else v for v in deferred.event.outputs
        )
        event = deferred.event._replace(outputs=outputs)
        if deferred.stream is None or deferred.end is None:
            return event
        origin, origin_ns = self._origin
        deferred.end.synchronize()
        start, end = (
            origin_ns + deferred.stream.between(origin, moment)
            for moment in (deferred.start, deferred.end)
        )
        return event._replace(start_ns=start, end_ns=end)


class GpuCopyTimer(InstantCopyTimer):
    """Timestamps of stack copies, read from GPU events after the run."""

    def __init__(self, trace: GpuTrace) -> None:
        super().__init__(trace, trace.run_start)
        self.trace = trace

    def copy(self, device: str, node: str, size: int, *, out: bool) -> float:
        """Name the copy; to the host it takes no time."""
        self.trace.name_swap(device, node, out=out)
        return super().copy(device, node, size, out=out)


class _DeviceObserver:
    """Observer of one device, which records GPU events before and after a token."""

    def __init__(self, owner: GpuTrace, stream: GpuStream | None) -> None:
        self.owner, self.stream = owner, stream
        self._start: Any = None
        self._end: Any = None

    def timed(self, live: Fire) -> Fire:
        """A closure between two GPU events."""
        assert self.stream is not None
        compute = self.stream.compute

        def fire(iteration: Iteration) -> None:
            self._start = compute.record()
            live(iteration)
            self._end = compute.record()

        return fire

    def event(self, event: TraceEvent) -> None:
        """Record an event with the GPU times of its token."""
        self.owner.record(event, self.stream, self._start, self._end)
        self._start = self._end = None


def _deferred_value(stream: GpuStream | None, value: Any) -> Any:
    """The retained form of a value: a pending copy if small, or an abstract tensor."""
    if stream is None or type(value) is not stream.library.array:
        return value
    return (
        stream.copy(value)
        if value.nbytes <= SMALL_COPY
        else AbstractTensor(value.dtype, value.shape)
    )


def _copy_event(token: TraceEvent, stream: GpuStream, copy: TimedCopy) -> _DeferredEvent:
    """The event of a copy that a token started; it has the token's name by default."""
    text = copy.text or (TO_HOST if copy.out else FROM_HOST)
    event = TraceEvent(token.device, copy.node or token.node, "", ROOT_FRAME, 0, False, 0, 0)
    event = event._replace(kind="copy", text=text, bytes=copy.bytes, real=True)
    return _DeferredEvent(event, stream, copy.start, copy.end)
