"""Discrete-event simulation of a run in virtual time, driven by a cost model.

A device executes one token at a time, first come, first served. What a token makes ready or sends
is available when it ends; a message occupies its link for as long as its bytes need and arrives
after the latency. Dead tokens take no time. Nothing is measured, so equal inputs give equal times.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from cfgraph.ir.devices import host_device, short_device_name
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.traversal import RendezvousKey
from cfgraph.limits import current_limits
from cfgraph.runtime.cost_model import CostModel, launches_kernel
from cfgraph.runtime.engine.executor import Executor
from cfgraph.runtime.engine.joint_products import evaluated
from cfgraph.runtime.engine.link import FireWrapper
from cfgraph.runtime.engine.plan import NodePlan, Plan
from cfgraph.runtime.engine.propagate import Consumers, Fire, Iteration
from cfgraph.runtime.engine.rendezvous import Channel, Rendezvous, Tag, iteration_tag
from cfgraph.runtime.engine.step import RunStep
from cfgraph.runtime.engine.token_trace import message_bytes, trace_wrapper
from cfgraph.runtime.memory.accounting import MemoryMeter
from cfgraph.runtime.token_driver import TokenDriver
from cfgraph.runtime.trace.events import CopyTimer, Observer, TraceEvent, record_copy

_NS: Final = 1e9


class LinkSchedule:
    """Times at which each wire is free; a half-duplex wire is shared by both directions."""

    def __init__(self, model: CostModel) -> None:
        self.model = model
        self._free: dict[tuple[str, str], float] = {}

    def clear(self) -> None:
        """Reset: no link is busy."""
        self._free.clear()

    def send(self, source: str, destination: str, size: int, now: float) -> tuple[float, float]:
        """Send bytes as soon as the wire is free; return the times of departure and arrival."""
        wire = self.model.wire(source, destination)
        ends = (source, destination)
        if wire.half and destination < source:
            ends = (destination, source)
        begin = max(now, self._free.get(ends, 0.0))
        free = begin + size / wire.bandwidth
        self._free[ends] = free
        return begin, free + wire.latency


class LinkCopyTimer:
    """Timer of copies between a device and its host in virtual time, parallel to computation."""

    def __init__(
        self, wires: LinkSchedule, clock: Callable[[], float], observer: Observer | None = None
    ) -> None:
        self.wires = wires
        self.now = clock
        self.observer = observer

    def copy(self, device: str, node: str, size: int, *, out: bool) -> float:
        """Copy bytes on the same wire as messages; return the time of arrival."""
        host = host_device(device)
        source, destination = (device, host) if out else (host, device)
        begin, end = self.wires.send(source, destination, size, self.now())
        span = round(begin * _NS), round(end * _NS)
        record_copy(self.observer, device, node, size, span, out=out)
        return end


Token = tuple[Fire, Iteration]
# tokens between two checks of the real clock
_BATCH: Final = 64


class _FiredToken:
    """Record of the last token that fired: its node, inputs, and event."""

    def __init__(self) -> None:
        self.plan: NodePlan | None = None
        self.inputs: list[Any] = []
        self.recorded: TraceEvent | None = None

    def clear(self) -> None:
        """Drop the inputs and the event of the fired token, so that their memory can be freed."""
        self.recorded, self.inputs = None, []

    def event(self, event: TraceEvent) -> None:
        """Keep the event until its times are known."""
        self.recorded = event

    def wrap(self, device: str) -> FireWrapper:
        """A wrapper that records every token of a device."""
        trace_fires = trace_wrapper(self, device, time.perf_counter_ns())

        def wrap(
            plan: NodePlan, ports: list[Consumers], live: Fire, dead: Fire
        ) -> tuple[Fire, Fire]:
            fire, fire_dead = trace_fires(plan, ports, live, dead)
            base, end = plan.base, plan.end

            def fire_recorded(iteration: Iteration) -> None:
                self.plan, self.inputs = plan, [*map(evaluated, iteration.values[base:end])]
                fire(iteration)

            return fire_recorded, fire_dead

        return wrap


class _DelayedChannel(Channel):
    """A channel whose messages take time to arrive."""

    __slots__ = ("outbox",)

    def __init__(self, key: RendezvousKey, outbox: list[tuple[_DelayedChannel, Tag, Any]]) -> None:
        super().__init__(key)
        self.outbox = outbox

    def put(self, iteration: Iteration, value: Any) -> None:
        """Send; `arrive` is called when the message has arrived."""
        self.outbox.append((self, iteration_tag(iteration), value))


class _DelayedRendezvous(Rendezvous):
    """A rendezvous whose messages take time; `outbox` has those that were sent."""

    def __init__(self, outbox: list[tuple[_DelayedChannel, Tag, Any]]) -> None:
        super().__init__()
        self.outbox = outbox

    def make_channel(self, key: RendezvousKey) -> Channel:
        """The channel of a key that is looked up for the first time."""
        return _DelayedChannel(key, self.outbox)


class LoopProgress:
    """The devices whose top-level loops have all started an iteration, updated per token."""

    def __init__(self, until: int | None) -> None:
        self.until = until
        self._reached: dict[Executor, bool] = {}
        self._behind = 0

    @property
    def has_reached(self) -> bool:
        """True if every running top-level loop has started the iteration to stop at."""
        return bool(self._reached) and not self._behind

    def update(self, executor: Executor) -> None:
        """Look at the loops of a device that fired a token: no other device has changed."""
        until = self.until
        if until is None or executor.root is None:
            return
        before = self._reached.pop(executor, True)
        frames = executor.root.newest.children
        now = True
        if frames:
            now = all(frame.newest.index >= until for frame in frames.values())
            self._reached[executor] = now
        self._behind += before - now


class VirtualClockDriver(TokenDriver):
    """A driver with a virtual clock; `elapsed` is its final time in seconds."""

    def __init__(
        self,
        graph: Graph,
        plans: Sequence[Plan],
        step: RunStep,
        fetches: Sequence[Output],
        model: CostModel,
        observer: Observer | None = None,
        meter: MemoryMeter | None = None,
    ) -> None:
        self.model = model
        self._link_schedule = LinkSchedule(model)
        self.observer = observer
        self.now = 0.0
        self.until: int | None = None
        self._fired = _FiredToken()
        self._launches: dict[Node, bool] = {}
        self._outbox: list[tuple[_DelayedChannel, Tag, Any]] = []
        self._events: list[tuple[float, int, Any]] = []
        self._progress = LoopProgress(None)
        self._count = 0
        super().__init__(graph, plans, step, fetches, meter=meter)
        self._memories = [meter.memory(plan.device) if meter else None for plan in plans]
        self._queues: list[deque[Token]] = [deque() for _ in self.executors]
        self._busy = [False] * len(self.executors)
        self._device_of_queue = {
            id(one.ready): device_index for device_index, one in enumerate(self.executors)
        }

    @property
    def stopped(self) -> bool:
        """True if the run ended at the iteration `until`."""
        return self._progress.has_reached

    def clear(self) -> None:
        """Drop the state of a failed run, including future events and the failed token."""
        super().clear()
        self._clear()

    def make_rendezvous(self) -> Rendezvous:
        """A rendezvous whose messages take time."""
        return _DelayedRendezvous(self._outbox)

    def make_wrap(self, plan: Plan) -> FireWrapper | None:
        """Record every token; the observer receives it when its times are known."""
        return self._fired.wrap(short_device_name(plan.device))

    def make_copy_timer(self) -> CopyTimer:
        """A timer of copies between device and host, which share the links with messages."""
        return LinkCopyTimer(self._link_schedule, lambda: self.now, self.observer)

    def run(self, feeds: Sequence[Any], pick: Any) -> None:
        """Run from time 0 until nothing is ready. Raises as `TokenDriver.run`."""
        self._clear()
        self._link_schedule.clear()
        self._count, self.now = 0, 0.0
        self._busy[:] = [False] * len(self.executors)
        self._progress = LoopProgress(self.until)
        super().run(feeds, pick)

    def fire_until_idle(self, pick: Any) -> bool:
        """Handle events by time until none is left, or the iteration to stop at is reached."""
        self._fire_all_ready()
        tokens, deadline = 0, current_limits().deadline
        while self._events and not self._progress.has_reached:
            now, _, handler = heapq.heappop(self._events)
            self.now = now
            handler(now)
            if self.step.parked and self.step.wake_parked():
                self._fire_all_ready()
            tokens += 1
            if deadline != math.inf and tokens % _BATCH == 0 and time.monotonic() > deadline:
                raise self.timeout()
        self.elapsed = self.now
        return not self._events

    def _clear(self) -> None:
        self._events.clear()
        self._outbox.clear()
        self._fired.clear()
        for queue in self._queues:
            queue.clear()

    def _schedule(self, when: float, handler: Any) -> None:
        """Schedule a handler; handlers of equal times run in the order of scheduling."""
        self._count += 1
        heapq.heappush(self._events, (when, self._count, handler))

    def _collect_ready(self, device_index: int) -> None:
        """Move the ready tokens of a device to its queue."""
        ready = self.executors[device_index].ready
        self._queues[device_index].extend(ready)
        ready.clear()

    def _fire_all_ready(self) -> None:
        """Fire what is ready on each device now."""
        for device_index in range(len(self.executors)):
            self._collect_ready(device_index)
            self._fire_ready(device_index, self.now)

    def _fire_ready(self, device_index: int, now: float) -> None:
        """Fire tokens of a device as long as they take no time."""
        executor, queue, fired = (
            self.executors[device_index],
            self._queues[device_index],
            self._fired,
        )
        while queue and not self._busy[device_index]:
            fired.recorded = None
            executor.fire(*queue.popleft())
            memory = self._memories[device_index]
            cost = self._cost(executor, now, memory.end_token() if memory else 0.0)
            if not cost:
                self._collect_ready(device_index)
                self._progress.update(executor)
                self._post(now)
                continue
            self._busy[device_index] = True
            self._progress.update(executor)
            produced, sent = executor.ready[:], self._outbox[:]
            executor.ready.clear()
            self._outbox.clear()
            self._schedule(
                now + cost,
                lambda then, p=device_index, m=produced, s=sent: self._end_token(p, m, s, then),
            )

    def _cost(self, executor: Executor, now: float, waited: float) -> float:
        """The time of the fired token, including the wait for a copy; also report the token."""
        event, plan = self._fired.recorded, self._fired.plan
        if event is None:
            return waited
        cost = 0.0
        if not event.dead and plan is not None:
            launches = self._launches.get(plan.node)
            if launches is None:
                launches = self._launches[plan.node] = launches_kernel(event.device, plan.node)
            cost = self.model.seconds(
                event.device, plan.op, self._fired.inputs, event.outputs, launches=launches
            )
        if self.observer is not None:
            start = round((now + waited) * _NS)
            end = round((now + waited + cost) * _NS)
            self.observer.event(event._replace(start_ns=start, end_ns=end))
        self._fired.clear()
        return waited + cost

    def _end_token(
        self,
        device_index: int,
        produced: list[Token],
        sent: list[tuple[_DelayedChannel, Tag, Any]],
        now: float,
    ) -> None:
        """End a token: its results become ready, its messages depart."""
        self._busy[device_index] = False
        self._queues[device_index].extend(produced)
        self._outbox.extend(sent)
        self._post(now)
        self._fire_ready(device_index, now)

    def _post(self, now: float) -> None:
        """Put sent messages on their wires."""
        for channel, tag, value in self._outbox:
            source, destination = (
                short_device_name(channel.key[0]),
                short_device_name(channel.key[1]),
            )
            arrival = now
            if source != destination:
                _, arrival = self._link_schedule.send(
                    source, destination, message_bytes(value), now
                )
            self._schedule(
                arrival, lambda then, c=channel, t=tag, v=value: self._arrive(c, t, v, then)
            )
        self._outbox.clear()

    def _arrive(self, channel: _DelayedChannel, tag: Tag, value: Any, now: float) -> None:
        """Deliver a message to a Recv that may wait for it."""
        receiver = channel.arrive(tag, value)
        if receiver is not None:
            device_index = self._device_of_queue[id(receiver.ready)]
            self._collect_ready(device_index)
            self._fire_ready(device_index, now)
