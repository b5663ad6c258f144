"""Driver of a run by tokens: each device in turn fires its ready tokens until no device has any."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any, Final

from cfgraph.errors import RunTimeout
from cfgraph.ir.devices import has_own_memory, short_device_name
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.traversal import sends_by_key
from cfgraph.limits import current_limits, timeout_error
from cfgraph.runtime.engine.deadlock import blocked_error, explain_deadlock
from cfgraph.runtime.engine.executor import MISSING, Executor
from cfgraph.runtime.engine.link import FireWrapper
from cfgraph.runtime.engine.plan import Plan
from cfgraph.runtime.engine.quiescent_state import QuiescentState
from cfgraph.runtime.engine.rendezvous import Rendezvous
from cfgraph.runtime.engine.step import RunStep
from cfgraph.runtime.engine.token_trace import trace_wrapper
from cfgraph.runtime.memory.accounting import DeviceMemory, MemoryMeter, MemoryOwner
from cfgraph.runtime.memory.instrument import MemoryInstrumentation, memory_owners
from cfgraph.runtime.run_executor import ExecutorReport, GpuReport
from cfgraph.runtime.trace.events import CopyTimer, InstantCopyTimer, Observer
from cfgraph.stack_position import LOCATORS, StackPosition, frame_variables

# tokens per turn between two checks of the clock; fewer with a deadline
BATCH: Final = 512
TIMED_BATCH: Final = 16


class TokenDriver:
    """The executors of a run, their rendezvous, and the results of fetches.

    `elapsed` is the time on a virtual clock, None without one. `gpus` are the devices other than
    CPUs, in order. One run at a time uses a driver.
    """

    elapsed: float | None = None
    allow_dead = False
    fallback = ""
    is_interpreted = False
    is_generated = False

    def __init__(
        self,
        graph: Graph,
        plans: Sequence[Plan],
        step: RunStep,
        fetches: Sequence[Output],
        observer: Observer | None = None,
        meter: MemoryMeter | None = None,
    ) -> None:
        self.graph = graph
        own_memory = [plan.device for plan in plans if has_own_memory(plan.device)]
        self.gpus = tuple(sorted(map(short_device_name, own_memory)))
        self.meter, self.step = meter, step
        self.instrumentations = (
            [MemoryInstrumentation(plan, meter) for plan in plans] if meter else []
        )
        self.fetches = tuple(fetches)
        self.results: list[Any] = []
        self._observer, self.run_start = observer, time.perf_counter_ns()
        self.rendezvous = self.make_rendezvous()
        self.executors = [
            self.make_executor(plan, wrap)
            for plan, wrap in zip(plans, self._wraps(plans), strict=True)
        ]
        for executor, instrumentation in zip(self.executors, self.instrumentations, strict=False):
            feeds = executor.linked.feeds
            for index, output in executor.plan.feeds.items():
                feeds[index] = instrumentation.feed_sender(feeds[index], output)

    def _wraps(self, plans: Sequence[Plan]) -> list[FireWrapper | None]:
        """The wrappers of each device's closures, memory accounting outermost."""
        inner = [self.make_wrap(plan) for plan in plans]
        if not self.instrumentations:
            return inner
        return [
            executor.wrap(wrap) for executor, wrap in zip(self.instrumentations, inner, strict=True)
        ]

    def make_rendezvous(self) -> Rendezvous:
        """The rendezvous of the devices."""
        return Rendezvous()

    def make_executor(self, plan: Plan, wrap: FireWrapper | None) -> Executor:
        """The executor of a device."""
        observed = None
        if self.meter is None:
            observed = self.graph.nodes.get(getattr(self._observer, "only_node", ""))
        return Executor(plan, self.step, self.rendezvous, self.results, wrap, observed)

    def make_wrap(self, plan: Plan) -> FireWrapper | None:
        """The wrapper of a device's closures, if they are traced."""
        if self._observer is None:
            return None
        return trace_wrapper(self._observer, short_device_name(plan.device), self.run_start)

    def make_copy_timer(self) -> CopyTimer:
        """The timer of copies between devices and their hosts."""
        return InstantCopyTimer(self._observer, self.run_start)

    def memory_owners_of(self, memory: DeviceMemory) -> list[MemoryOwner]:
        """The owners of the memory of a device."""
        assert self.meter is not None
        return memory_owners(self.meter, memory, self.executors, self.step.state)

    def clear(self) -> None:
        """Drop the state of the run: values in flight, and fetched values."""
        self.results.clear()
        for channel in self.rendezvous.values():
            channel.clear()
        for executor in self.executors:
            executor.clear()

    def run(self, feeds: Sequence[Any], pick: random.Random | None) -> None:
        """Run until nothing is ready.

        Raises ExecutionError if a kernel fails or a Recv waits for a message that is never sent,
        RunTimeout.
        """
        self.prepare_variables()
        self.results[:] = [MISSING] * len(self.fetches)
        for channel in self.rendezvous.values():
            channel.clear()
        if self.meter is not None:
            self.meter.start_run(self.make_copy_timer(), self.memory_owners_of)
        for executor in self.executors:
            executor.start(feeds)
        try:
            is_idle = self._fire_and_wake(pick)
        finally:
            self.step.withdraw_parked()
        if is_idle and any(channel.waiting for channel in self.rendezvous.values()):
            devices = {node.device for node in self.graph}
            keys = sends_by_key(self.graph)
            raise explain_deadlock(self.quiescent_state(), self.rendezvous, keys, devices)
        for instrumentation in self.instrumentations:
            instrumentation.count_fetched(self.results)

    def _fire_and_wake(self, pick: random.Random | None) -> bool:
        """Fire tokens until nothing is ready, also those that wait for a change of a queue."""
        is_idle = self.fire_until_idle(pick)
        while is_idle and self.step.wake_parked():
            is_idle = self.fire_until_idle(pick)
        if is_idle and self.step.parked:
            raise blocked_error(self.step.parked)
        return is_idle

    @property
    def stopped(self) -> bool:
        """False: the run does not end early."""
        return False

    def reports(self) -> list[ExecutorReport]:
        """The simulated GPUs of the run, if it has any."""
        return [GpuReport("simulated", self.gpus)] if self.gpus else []

    def prepare_variables(self) -> None:
        """Move the variables to where the run expects them."""
        if self.step.state.to_host is not None:
            self.step.state.move_to_host()

    def fetched_to_host(self, index: int, value: Any) -> Any:
        """The value of a fetch in host memory."""
        return value

    def fire_until_idle(self, pick: random.Random | None) -> bool:
        """Fire tokens until nothing is ready; return false if stopped before."""
        deadline = current_limits().deadline
        batch = BATCH if deadline == math.inf else TIMED_BATCH
        busy = True
        while busy:
            busy = self._fire_in_turn(batch) if pick is None else self._fire_at_random(batch, pick)
            if deadline != math.inf and time.monotonic() > deadline:
                raise self.timeout()
        return True

    def quiescent_state(self) -> QuiescentState:
        """The state of the run for explanations."""
        return QuiescentState(self.executors, self.rendezvous)

    def _fire_in_turn(self, batch: int) -> bool:
        """Fire a batch of tokens on each device in turn; return false if none was ready."""
        busy = False
        for executor in self.executors:
            if executor.ready:
                executor.fire_in_order(batch)
                busy = True
        return busy

    def _fire_at_random(self, batch: int, pick: random.Random) -> bool:
        """Fire a batch of tokens in random order across devices; return false if none was ready."""
        for _ in range(batch):
            total = sum(len(executor.ready) for executor in self.executors)
            if not total:
                return False
            index = pick.randrange(total)
            for executor in self.executors:
                if index < len(executor.ready):
                    executor.fire_at(index)
                    break
                index -= len(executor.ready)
        return True

    def next_busy_executor(self) -> Executor | None:
        """The first executor with a token that is ready."""
        return next((executor for executor in self.executors if executor.ready), None)

    def timeout(self) -> RunTimeout:
        """The error of a run that exceeds its timeout."""
        busy = self.next_busy_executor()
        where = busy.next_token_iteration() if busy else None
        error = timeout_error("the run exceeded its timeout", where.path if where else None)
        error.device = busy.device if busy else None
        return error


def _next_position(frames: Sequence[FrameType]) -> StackPosition:
    """The position of a run between two batches: its next token."""
    driver: TokenDriver = frame_variables(frames[0])["self"]
    busy = driver.next_busy_executor()
    return busy.next_token_position() if busy is not None else StackPosition("run", None, ())


LOCATORS[TokenDriver.fire_until_idle.__code__] = _next_position
