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
    """Simulator of a run whose gpus are on a real GPU."""

    def __init__(
        self,
        context: GpuContext,
        graph: Graph,
        plans: Sequence[Plan],
        step: RunStep,
        fetches: Sequence[Output],
        observer: Observer | None = None,
        meter: MemoryMeter | None = None,
    ) -> None:
        self.gpu_plan: GpuPlan = GpuPlan(plans, context)
        self._trace: GpuTrace | None = None
        super().__init__(graph, plans, step, fetches, observer, meter)
        # gpus first: they queue what they can before a CPU waits for any of it
        self.executors.sort(key=lambda executor: not isinstance(executor, GpuExecutor))
        for executor in self.executors:
            if isinstance(executor, GpuExecutor):
                self._connect_gpu(executor)

    def _connect_gpu(self, executor: GpuExecutor) -> None:
        """Let an executor copy its feeds to the GPU, and swap counted values there."""
        stream, feeds = executor.stream, executor.linked.feeds
        for index, output in executor.plan.feeds.items():
            if not self.gpu_plan.is_host(executor.plan, output):
                feeds[index] = _feed_sender(executor, output.node.name, feeds[index])
        if self.meter is not None:
            memory = executor.memory = self.meter.memory(executor.device)
            memory.real = True
            memory.swapper.copier = GpuSwapCopier(stream, memory)

    def make_executor(self, plan: Plan, wrap: FireWrapper | None) -> Executor:
        """The executor of a device."""
        stream = self.gpu_plan.streams.get(plan.device)
        if stream is None:
            return HostExecutor(plan, self.step, self.rendezvous, self.results, wrap)
        return GpuExecutor(stream, plan, self.step, self.rendezvous, self.results, wrap)

    def make_wrap(self, plan: Plan) -> FireWrapper | None:
        """The wrapper of a device's closures, if they are traced."""
        if self._observer is None:
            return None
        if self._trace is None:
            self._trace = GpuTrace(self._observer, self.run_start)
        return self._trace.wrap(
            short_device_name(plan.device), self.gpu_plan.streams.get(plan.device)
        )

    def make_copy_timer(self) -> CopyTimer:
        """The timer of copies between devices and their hosts."""
        return super().make_copy_timer() if self._trace is None else GpuCopyTimer(self._trace)

    def run(self, feeds: Sequence[Any], pick: random.Random | None) -> None:
        """Run until nothing is ready; then deliver the events of deferred observers."""
        if self._trace is not None:
            self.step.observer = self._trace
            self._trace.start()
        for executor in self.executors:
            if isinstance(executor, GpuExecutor):
                executor.set_limit()
        try:
            super().run(feeds, pick)
        finally:
            for stream in self.gpu_plan.streams.values():
                stream.pool.set_limit(None)
            if self._trace is not None:
                self._trace.close()

    def prepare_variables(self) -> None:
        """Leave variables where the last run had them; kernels move them to where they compute."""
        self.step.state.to_host = self.gpu_plan.context.to_host
        self.gpu_plan.order_streams()

    def fetched_to_host(self, index: int, value: Any) -> Any:
        """The value of a fetch in host memory."""
        for executor in self.executors:
            if index in executor.plan.fetches and isinstance(executor, GpuExecutor):
                with executor.stream.current():
                    try:
                        return map_contained(value, executor.stream.to_host)
                    except (MemoryError, RuntimeError) as error:
                        raise executor.as_gpu_error(error, self.fetches[index].node) from error
        return value


def _feed_sender(executor: GpuExecutor, node: str, send: Send) -> Send:
    stream = executor.stream

    def feed(iteration: Iteration, value: Any) -> int:
        try:
            moved = stream.to_device(value)
        except (MemoryError, RuntimeError) as error:
            raise executor.as_gpu_error(error, node) from error
        stream.name_copy(node)
        return send(iteration, moved)

    return feed
