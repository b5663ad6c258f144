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

    def start(self, feeds: Sequence[Any]) -> None:
        """Make ready what a run starts with."""
        with self.lane.current():
            super().start(feeds)

    def fire_in_order(self, batch: int) -> None:
        """Fire a batch of tokens."""
        with self.lane.current():
            super().fire_in_order(batch)

    def fire(self, fire: Fire, iteration: Iteration) -> None:
        """Fire one token."""
        with self.lane.current():
            super().fire(fire, iteration)

    def _located(self, error: Exception, fire: Fire, iteration: Iteration) -> Exception:
        """An error with the node, the frame and the device that it came from."""
        if not isinstance(error, CfgraphError):
            error = self.told(error)
        return super()._located(error, fire, iteration)

    def told(self, error: Exception, node: object = None) -> Exception:
        """What a lack of memory or a card that has failed is called; other errors as they are."""
        instead = fatal_error(error)
        if not isinstance(instead, MemoryError):
            return instead or error
        said = str(instead).partition("\n")[0] or "the card has none left"
        return gpu_out_of_memory(self.device, said, self.memory, node)


class HostExecutor(Executor):
    """Fires the tokens of a CPU of such a run: few at once, for it may wait for messages."""

    def fire_in_order(self, batch: int) -> None:
        """Fire a batch of tokens."""
        super().fire_in_order(min(batch, _HOST_BATCH))
