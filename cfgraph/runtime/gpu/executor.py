"""Executors and simulator of a run on a real GPU; kernels are queued on the stream of a device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from cfgraph.errors import CfgraphError
from cfgraph.runtime.engine.executor import Executor
from cfgraph.runtime.engine.frame_state import Fire, Iteration
from cfgraph.runtime.engine.link import FireWrapper
from cfgraph.runtime.engine.plan import Plan
from cfgraph.runtime.engine.rendezvous import Rendezvous
from cfgraph.runtime.engine.step import RunStep
from cfgraph.runtime.gpu.memory_pool import fatal_error
from cfgraph.runtime.gpu.stream import DeviceCopy, GpuStream
from cfgraph.runtime.memory.accounting import DeviceMemory, gpu_out_of_memory
from cfgraph.runtime.memory.swapping import SwapCopier


class GpuSwapCopier(SwapCopier):
    """What swaps the values of one gpu. The host waits only where there is no room without it."""

    def __init__(self, stream: GpuStream, memory: DeviceMemory) -> None:
        self.stream = stream
        self.memory = memory

    def copy_out(self, value: Any) -> DeviceCopy:
        """Begin to copy an array to the host."""
        return self.stream.copy(value)

    def copy_back(self, host_copy: DeviceCopy) -> Any:
        """The array on the card again, as soon as what reads it there runs."""
        return self.stream.copy_back(host_copy)

    def has_arrived(self, host_copy: DeviceCopy) -> bool:
        """True once a copy is on the host; the array that it is of is let go."""
        if not host_copy.done.done:
            return False
        self.stream.release_finished()
        return True

    def wait(self, host_copy: DeviceCopy) -> None:
        """Wait until a copy is on the host: a stall."""
        start = time.perf_counter()
        host_copy.wait()
        self.stream.release_finished()
        self.memory.stalls += 1
        self.memory.stalled += time.perf_counter() - start


# tokens that a CPU fires in its turn
_HOST_BATCH: Final = 16


class GpuExecutor(Executor):
    """Fires the tokens of one gpu: its kernels are queued on its own stream."""

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
        """Hold the gpu to the limit of its memory, intermediate values too."""
        memory, stream = self.memory, self.stream
        if memory is None:
            return

        def relieve() -> bool:
            # memory may be wanted for a copy, in whose stream nothing waits for kernels
            with stream.current():
                return memory.swapper.relieve()

        stream.pool.set_limit(memory.limit, relieve)

    def start(self, feeds: Sequence[Any]) -> None:
        """Make ready what a run starts with."""
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
        """An error with the node, the frame and the device that it came from."""
        if not isinstance(error, CfgraphError):
            error = self.as_gpu_error(error)
        return super()._located(error, fire, iteration)

    def as_gpu_error(self, error: Exception, node: object = None) -> Exception:
        """What a lack of memory or a card that has failed is called; other errors as they are."""
        fatal = fatal_error(error)
        if not isinstance(fatal, MemoryError):
            return fatal or error
        reason = str(fatal).partition("\n")[0] or "the card has none left"
        return gpu_out_of_memory(self.device, reason, self.memory, node)


class HostExecutor(Executor):
    """Fires the tokens of a CPU of such a run: few at once, for it may wait for messages."""

    def fire_in_order(self, batch: int) -> None:
        """Fire a batch of tokens."""
        super().fire_in_order(min(batch, _HOST_BATCH))
