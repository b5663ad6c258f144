"""Driver of a run on a real GPU: its executors, copies, and deferred trace.

The executors queue kernels on the stream of a device.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from cfgraph.backends.gpu.plan import GpuPlan, map_contained
from cfgraph.backends.gpu.stream import DeviceCopy, GpuStream, fatal_error
from cfgraph.backends.gpu.trace import GpuCopyTimer, GpuTrace
from cfgraph.errors import CfgraphError
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.graph import Graph, Output
from cfgraph.runtime.engine.executor import Executor
from cfgraph.runtime.engine.link import FireWrapper
from cfgraph.runtime.engine.plan import Plan
from cfgraph.runtime.engine.propagate import Fire, Iteration, Send
from cfgraph.runtime.engine.rendezvous import Rendezvous
from cfgraph.runtime.engine.step import RunStep
from cfgraph.runtime.memory.accounting import DeviceMemory, MemoryMeter, gpu_out_of_memory
from cfgraph.runtime.memory.swapping import SwapCopier
from cfgraph.runtime.run_executor import ExecutorReport
from cfgraph.runtime.token_driver import TokenDriver
from cfgraph.runtime.trace.events import CopyTimer, Observer


class GpuSwapCopier(SwapCopier):
    """Copier of swapped values on one GPU device; the host waits only if memory is exhausted."""

    def __init__(self, stream: GpuStream, memory: DeviceMemory) -> None:
        self.stream = stream
        self.memory = memory

    def copy_out(self, value: Any) -> DeviceCopy:
        """Start to copy an array to the host."""
        return self.stream.copy(value)

    def copy_back(self, host_copy: DeviceCopy) -> Any:
        """Start to copy an array back to the GPU and return it; only its readers wait."""
        return self.stream.copy_back(host_copy)

    def has_arrived(self, host_copy: DeviceCopy) -> bool:
        """True once a copy is on the host; the original array is then released."""
        if not host_copy.done.done:
            return False
        self.stream.release_finished()
        return True

    def wait(self, host_copy: DeviceCopy) -> None:
        """Wait until a copy is on the host, and count a stall."""
        start = time.perf_counter()
        host_copy.wait()
        self.stream.release_finished()
        self.memory.stalls += 1
        self.memory.stalled += time.perf_counter() - start


# tokens that a CPU fires per turn
_HOST_BATCH: Final = 16


class GpuExecutor(Executor):
    """Executor of one GPU device, whose kernels are queued on its own stream."""

    def __init__(
        self,
        stream: GpuStream,
        plan: Plan,
        step: RunStep,
        rendezvous: Rendezvous,
        results: list[Any],
        wrap: FireWrapper | None = None,
    ) -> None:
        self.stream = stream
        self.memory: DeviceMemory | None = None
        super().__init__(plan, step, rendezvous, results, wrap)

    def set_limit(self) -> None:
        """Limit the memory of the device, including intermediate values."""
        memory, stream = self.memory, self.stream
        if memory is None:
            return

        def relieve() -> bool:
            # the allocation may be for a copy, whose stream does not wait for kernels
            with stream.current():
                return memory.swapper.relieve()

        stream.pool.set_limit(memory.limit, relieve)

    def start(self, feeds: Sequence[Any]) -> None:
        """Queue the initial tokens."""
        with self.stream.current():
            super().start(feeds)

    def fire_in_order(self, batch: int) -> None:
        """Fire a batch of tokens."""
        with self.stream.current():
            super().fire_in_order(batch)

    def fire(self, fire: Fire, iteration: Iteration) -> None:
        """Fire one token."""
        with self.stream.current():
            super().fire(fire, iteration)

    def _located(self, error: Exception, fire: Fire, iteration: Iteration) -> Exception:
        """The error with the node, frame, and device of the token that raised it."""
        if not isinstance(error, CfgraphError):
            error = self.as_gpu_error(error)
        return super()._located(error, fire, iteration)

    def as_gpu_error(self, error: Exception, node: object = None) -> Exception:
        """Convert an error that means lack of memory or a failed GPU; return others unchanged."""
        return gpu_error(error, self.device, node, self.memory)


def gpu_error(
    error: Exception, device: str, node: object = None, memory: DeviceMemory | None = None
) -> Exception:
    """An error that means lack of memory or a failed GPU, converted; others are unchanged."""
    fatal = fatal_error(error)
    if not isinstance(fatal, MemoryError):
        return fatal or error
    reason = str(fatal).partition("\n")[0] or "the GPU has no memory left"
    return gpu_out_of_memory(device, reason, memory, node)


def fetched_to_host(
    stream: GpuStream, value: Any, as_gpu_error: Callable[[Exception], Exception]
) -> Any:
    """The value of a fetch in host memory, whose errors are converted."""
    with stream.current():
        try:
            return map_contained(value, stream.to_host)
        except (MemoryError, RuntimeError) as error:
            raise as_gpu_error(error) from error


class HostExecutor(Executor):
    """Executor of a CPU in such a run; its batches are small, since it may wait for messages."""

    def fire_in_order(self, batch: int) -> None:
        """Fire a batch of tokens."""
        super().fire_in_order(min(batch, _HOST_BATCH))


class GpuDriver(TokenDriver):
    """Driver of a run whose gpus are on a real GPU."""

    def __init__(
        self,
        bound: GpuPlan,
        graph: Graph,
        plans: Sequence[Plan],
        step: RunStep,
        fetches: Sequence[Output],
        observer: Observer | None = None,
        meter: MemoryMeter | None = None,
    ) -> None:
        self.gpu_plan = bound
        self._trace: GpuTrace | None = None
        super().__init__(graph, plans, step, fetches, observer, meter)
        # gpus first: they queue what they can before a CPU waits for any of it
        self.executors.sort(key=lambda executor: not isinstance(executor, GpuExecutor))
        for executor in self.executors:
            if isinstance(executor, GpuExecutor):
                self._connect_gpu(executor)

    def reports(self) -> list[ExecutorReport]:
        """The GPU, and the ops that ran on the host."""
        return [self.gpu_plan.report(self.gpus)]

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
            self._start_fetches()
        finally:
            for stream in self.gpu_plan.streams.values():
                stream.pool.set_limit(None)
            if self._trace is not None:
                self._trace.close()

    def _start_fetches(self) -> None:
        """Start to copy all fetches to the host, before the first one is awaited."""
        for executor in self.executors:
            if isinstance(executor, GpuExecutor) and len(executor.plan.fetches) > 1:
                with executor.stream.current():
                    for index, output in executor.plan.fetches.items():
                        try:
                            executor.stream.start_copy(self.results[index])
                        except (MemoryError, RuntimeError) as error:
                            raise executor.as_gpu_error(error, output.node) from error

    def prepare_variables(self) -> None:
        """Leave variables where the last run had them; kernels move them to where they compute."""
        self.gpu_plan.prepare_variables(self.step.state)

    def fetched_to_host(self, index: int, value: Any) -> Any:
        """The value of a fetch in host memory."""
        for executor in self.executors:
            if index in executor.plan.fetches and isinstance(executor, GpuExecutor):
                as_error = partial(executor.as_gpu_error, node=self.fetches[index].node)
                return fetched_to_host(executor.stream, value, as_error)
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
