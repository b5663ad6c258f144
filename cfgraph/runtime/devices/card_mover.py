"""Swapping on a card: copies through pinned memory, which go on while kernels run."""

from __future__ import annotations

import time
from typing import Any

from cfgraph.runtime.devices.copies import Copy
from cfgraph.runtime.devices.lane import Lane
from cfgraph.runtime.memory.meter import DeviceMemory
from cfgraph.runtime.memory.swapping import Mover


class CardMover(Mover):
    """What swaps the values of one gpu. The host waits only where there is no room without it."""

    def __init__(self, lane: Lane, memory: DeviceMemory) -> None:
        self.lane = lane
        self.memory = memory

    def out(self, value: Any) -> Copy:
        """Begin to copy an array to the host."""
        return self.lane.copy(value)

    def back(self, away: Copy) -> Any:
        """The array on the card again, as soon as what reads it there runs."""
        return self.lane.back(away)

    def arrived(self, away: Copy) -> bool:
        """True once a copy is on the host; the array that it is of is let go."""
        if not away.done.done:
            return False
        self.lane.let_go()
        return True

    def wait(self, away: Copy) -> None:
        """Wait until a copy is on the host: a stall."""
        began = time.perf_counter()
        away.wait()
        self.lane.let_go()
        self.memory.stalls += 1
        self.memory.stalled += time.perf_counter() - began
