"""Executors and simulator of a run on a real GPU; kernels are queued on the stream of a device."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any, Final

from cfgraph.errors import CfgraphError
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Graph, Output
from cfgraph.runtime.engine.executor import Executor
from cfgraph.runtime.engine.frame_state import Fire, Iteration, Send
from cfgraph.runtime.engine.link import FireWrapper
from cfgraph.runtime.engine.plan import Plan
from cfgraph.runtime.engine.rendezvous import Rendezvous
from cfgraph.runtime.engine.step import RunStep
from cfgraph.runtime.gpu.context import GpuContext
from cfgraph.runtime.gpu.memory_pool import fatal_error
from cfgraph.runtime.gpu.plan import GpuPlan, map_contained
from cfgraph.runtime.gpu.stream import DeviceCopy, GpuStream
from cfgraph.runtime.gpu.trace import GpuCopyTimer, GpuTrace
from cfgraph.runtime.memory.accounting import DeviceMemory, MemoryMeter, gpu_out_of_memory
from cfgraph.runtime.memory.swapping import SwapCopier
from cfgraph.runtime.simulator import Simulator
from cfgraph.runtime.trace.events import CopyTimer, Observer


class GpuSwapCopier(SwapCopier):
    """What swaps the values of one gpu. The host waits only where there is no room without it."""

    def __init__(self, lane: GpuStream, memory: DeviceMemory) -> None:
        self.lane = lane
        self.memory = memory

    def out(self, value: Any) -> DeviceCopy:
        """Begin to copy an array to the host."""
        return self.lane.copy(value)

    def back(self, away: DeviceCopy) -> Any:
        """The array on the card again, as soon as what reads it there runs."""
        return self.lane.back(away)

    def arrived(self, away: DeviceCopy) -> bool:
        """True once a copy is on the host; the array that it is of is let go."""
        if not away.done.done:
            return False
        self.lane.let_go()
        return True

    def wait(self, away: DeviceCopy) -> None:
        """Wait until a copy is on the host: a stall."""
        began = time.perf_counter()
        away.wait()
        self.lane.let_go()
        self.memory.stalls += 1
        self.memory.stalled += time.perf_counter() - began


# tokens that a CPU fires in its turn
_HOST_BATCH: Final = 16


class GpuExecutor(Executor):
    """Fires the tokens of one gpu: its kernels are queued on its own stream."""

    def __init__(
        self,
        lane: GpuStream,
        plan: Plan,
        step: RunStep,
        rendezvous: Rendezvous,
        results: list[Any],
        wrap: FireWrapper | None = None,
    ) -> None:
        self.lane = lane
        self.memory: DeviceMemory | None = None
        super().__init__(plan, step, rendezvous, results, wrap)

    def bound(self) -> None:
        """Hold the gpu to the limit of its memory, intermediate values too."""
        memory, lane = self.memory, self.lane
        if memory is None:
            return

        def relieve() -> bool:
            # memory may be wanted for a copy, in whose stream nothing waits for kernels
            with lane.current():
                return memory.swapper.relieve()

        lane.pool.bound(memory.limit, relieve)

    def begin(self, feeds: Sequence[Any]) -> None:
        """Make ready what a run starts with."""
        with self.lane.current():
            super().begin(feeds)

    def in_order(self, batch: int) -> None:
        """Fire a batch of tokens."""
        with self.lane.current():
            super().in_order(batch)

    def fire(self, fire: Fire, it: Iteration) -> None:
        """Fire one token."""
        with self.lane.current():
            super().fire(fire, it)

    def _located(self, error: Exception, fire: Fire, it: Iteration) -> Exception:
        """An error with the node, the frame and the device that it came from."""
        if not isinstance(error, CfgraphError):
            error = self.told(error)
        return super()._located(error, fire, it)

    def told(self, error: Exception, node: object = None) -> Exception:
        """What a lack of memory or a card that has failed is called; other errors as they are."""
        instead = fatal_error(error)
        if not isinstance(instead, MemoryError):
            return instead or error
        said = str(instead).partition("\n")[0] or "the card has none left"
        return gpu_out_of_memory(self.device, said, self.memory, node)


class HostExecutor(Executor):
    """Fires the tokens of a CPU of such a run: few at once, for it may wait for messages."""

    def in_order(self, batch: int) -> None:
        """Fire a batch of tokens."""
        super().in_order(min(batch, _HOST_BATCH))


class GpuSimulator(Simulator):
    """The executors of a run whose gpus are on a card."""

    def __init__(
        self,
        card: GpuContext,
        graph: Graph,
        plans: Sequence[Plan],
        step: RunStep,
        fetches: Sequence[Output],
        observer: Observer | None = None,
        meter: MemoryMeter | None = None,
    ) -> None:
        self.on_card: GpuPlan = GpuPlan(plans, card)
        self._trace: GpuTrace | None = None
        super().__init__(graph, plans, step, fetches, observer, meter)
        # gpus first: they queue what they can before a CPU waits for any of it
        self.executors.sort(key=lambda executor: not isinstance(executor, GpuExecutor))
        for executor in self.executors:
            if isinstance(executor, GpuExecutor):
                self._set_up(executor)

    def _set_up(self, executor: GpuExecutor) -> None:
        """Let a gpu take its feeds to the card, and swap there what is counted."""
        lane, feeds = executor.lane, executor.linked.feeds
        for place, item in executor.plan.feeds.items():
            if not self.on_card.is_host(executor.plan, item):
                feeds[place] = _feed_sender(executor, item.node.name, feeds[place])
        if self.meter is not None:
            memory = executor.memory = self.meter.memory(executor.device)
            memory.real = True
            memory.swapper.mover = GpuSwapCopier(lane, memory)

    def make_executor(self, plan: Plan, wrap: FireWrapper | None) -> Executor:
        """What runs the part of a device."""
        lane = self.on_card.lanes.get(plan.device)
        if lane is None:
            return HostExecutor(plan, self.step, self.rendezvous, self.results, wrap)
        return GpuExecutor(lane, plan, self.step, self.rendezvous, self.results, wrap)

    def make_wrap(self, plan: Plan) -> FireWrapper | None:
        """What is put around the closures of a device."""
        if self._observer is None:
            return None
        if self._trace is None:
            self._trace = GpuTrace(self._observer, self.began)
        return self._trace.wrap(short_device_name(plan.device), self.on_card.lanes.get(plan.device))

    def make_copy_timer(self) -> CopyTimer:
        """What dates the copies between devices and their hosts."""
        return super().make_copy_timer() if self._trace is None else GpuCopyTimer(self._trace)

    def run(self, feeds: Sequence[Any], deadline: float | None, pick: random.Random | None) -> None:
        """Run until nothing is ready; deferred observers hear of it then."""
        if self._trace is not None:
            self.step.observer = self._trace
            self._trace.begin()
        for executor in self.executors:
            if isinstance(executor, GpuExecutor):
                executor.bound()
        try:
            super().run(feeds, deadline, pick)
        finally:
            for lane in self.on_card.lanes.values():
                lane.pool.bound(None)
            if self._trace is not None:
                self._trace.close()

    def prepare_variables(self) -> None:
        """Variables stay where the last run had them; kernels bring them to where they compute."""
        self.step.state.home = self.on_card.card.to_host
        self.on_card.begin()

    def fetched_to_host(self, place: int, value: Any) -> Any:
        """What fetch `place` got, in the host's memory."""
        for executor in self.executors:
            if place in executor.plan.fetches and isinstance(executor, GpuExecutor):
                with executor.lane.current():
                    try:
                        return map_contained(value, executor.lane.to_host)
                    except (MemoryError, RuntimeError) as error:
                        raise executor.told(error, self.fetches[place].node) from error
        return value


def _feed_sender(executor: GpuExecutor, node: str, send: Send) -> Send:
    lane = executor.lane

    def feed(it: Iteration, value: Any) -> int:
        try:
            there = lane.to_device(value)
        except (MemoryError, RuntimeError) as error:
            raise executor.told(error, node) from error
        lane.name_copy(node)
        return send(it, there)

    return feed
