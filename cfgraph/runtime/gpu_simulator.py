"""Simulator of a run on a real GPU: its executors, copies, and deferred trace."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Graph, Output
from cfgraph.runtime.engine.executor import Executor
from cfgraph.runtime.engine.frame_state import Iteration, Send
from cfgraph.runtime.engine.link import FireWrapper
from cfgraph.runtime.engine.plan import Plan
from cfgraph.runtime.engine.step import RunStep
from cfgraph.runtime.gpu.context import GpuContext
from cfgraph.runtime.gpu.executor import GpuExecutor, GpuSwapCopier, HostExecutor
from cfgraph.runtime.gpu.plan import GpuPlan, map_contained
from cfgraph.runtime.gpu.trace import GpuCopyTimer, GpuTrace
from cfgraph.runtime.memory.accounting import MemoryMeter
from cfgraph.runtime.simulator import Simulator
from cfgraph.runtime.trace.events import CopyTimer, Observer


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

    def feed(iteration: Iteration, value: Any) -> int:
        try:
            there = lane.to_device(value)
        except (MemoryError, RuntimeError) as error:
            raise executor.told(error, node) from error
        lane.name_copy(node)
        return send(iteration, there)

    return feed
