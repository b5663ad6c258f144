"""Executors of a run on a real GPU; kernels are queued on the stream of a device."""

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
        fatal = fatal_error(error)
        if not isinstance(fatal, MemoryError):
            return fatal or error
        reason = str(fatal).partition("\n")[0] or "the GPU has no memory left"
        return gpu_out_of_memory(self.device, reason, self.memory, node)


class HostExecutor(Executor):
    """Executor of a CPU in such a run; its batches are small, since it may wait for messages."""

    def fire_in_order(self, batch: int) -> None:
        """Fire a batch of tokens."""
        super().fire_in_order(min(batch, _HOST_BATCH))
