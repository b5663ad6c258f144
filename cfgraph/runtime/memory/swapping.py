"""Swapping of stacks: the oldest entries move to the host and return before their pop.

A push marked `swap_memory` lets the device move entries of its stacks to host memory while more
than a fraction of its limit is in use. Small values stay, and so do values that share their buffer
with the bottom of the stack: a loop invariant would be copied each time.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from cfgraph.ops.families.stacks import Stack
from cfgraph.runtime.memory.placement import buffer_of, copy_of_value
from cfgraph.runtime.trace.events import CopyTimer, InstantCopyTimer

if TYPE_CHECKING:
    from cfgraph.runtime.memory.accounting import DeviceMemory, MemoryMeter

# the part of a limit above which values go to the host, and below which they come back
DEFAULT_SWAP_ABOVE: Final = 0.7
# bytes of what is not worth a copy
SMALL_VALUE: Final = 2048
# how far below the top of a stack values come back ahead of their pops
PREFETCH_DEPTH: Final = 64
# those of one stack that come back in one go: more would delay what other stacks need sooner
MAX_PREFETCHES: Final = 2


class StackEntry:
    """A value on a stack: on the device, in host memory, or on its way; it is `ready` at a time."""

    __slots__ = ("__weakref__", "away", "bytes", "node", "ready", "value")

    def __init__(self, value: Any, size: int, node: str) -> None:
        self.value: Any = value
        self.away: Any = None
        self.bytes = size
        self.node = node
        self.ready = 0.0


class SwapCopier:
    """How values move; this one copies them at once. On a card, copies go on by themselves."""

    def out(self, value: Any) -> Any:
        """Copy a value to the host."""
        return copy_of_value(value)

    def back(self, away: Any) -> Any:
        """Copy back what is on the host."""
        return copy_of_value(away)

    def arrived(self, away: Any) -> bool:
        """True once a copy is on the host, and the value it is of may go."""
        return True

    def wait(self, away: Any) -> None:
        """Wait until a copy is on the host."""


class Swapper:
    """What one device moves to the host and back."""

    def __init__(self, memory: DeviceMemory, meter: MemoryMeter, above: float) -> None:
        self.memory = memory
        self.meter = meter
        self.above = above
        self.times: CopyTimer = InstantCopyTimer()
        self.mover = SwapCopier()
        # those on the device, oldest first
        self.waiting: deque[weakref.ref[StackEntry]] = deque()
        # those on their way to the host, and when they are there; till then they are on the device
        self.leaving: deque[tuple[float, StackEntry]] = deque()
        self.leaving_bytes = 0

    def begin(self) -> None:
        """Forget what an earlier run left."""
        self.waiting.clear()
        self.leaving.clear()
        self.leaving_bytes = 0

    def pushed(self, stack: Stack) -> None:
        """Look after what was pushed last, and make room if there is little."""
        memory = self.memory
        if memory.limit is None:
            return
        value = stack.items[-1]
        buffer = buffer_of(value)
        held = self.meter.find(value)
        if buffer is None or held is None or held.host or held.memory is not memory:
            return
        first = stack.items[0]
        if value.nbytes > SMALL_VALUE and len(stack.items) > 1 and buffer_of(first) is not buffer:
            node = memory.running.node.name if memory.running else ""
            parked = stack.items[-1] = StackEntry(value, held.bytes, node)
            while self.waiting and self.waiting[-1]() is None:
                self.waiting.pop()
            self.waiting.append(weakref.ref(parked))
        self.settle()
        bound = self.above * memory.limit
        while memory.used - self.leaving_bytes > bound and self._put_out():
            pass

    def popped(self, value: Any, stack: Stack) -> Any:
        """What was popped, back on the device; those below it follow."""
        if isinstance(value, StackEntry):
            if value.value is None:
                self._fetch(value)
            self.memory.wait(value.ready)
            value = value.value
        self.settle()
        self._fetch_ahead(stack)
        return value

    def _fetch_ahead(self, stack: Stack) -> None:
        """Bring back what is popped next, but no more than others have to wait for.

        What is on top may take half of what is kept free, the others only what is below it.
        """
        limit = self.memory.limit
        if limit is None:
            return
        fetched, part = 0, (1 + self.above) / 2
        for item in reversed(stack.items[-PREFETCH_DEPTH:]):
            if isinstance(item, StackEntry) and item.value is None:
                if fetched == MAX_PREFETCHES or self.memory.used + item.bytes > part * limit:
                    return
                self._fetch(item)
                # it may go again: where others need the room, and before those above it
                self.waiting.appendleft(weakref.ref(item))
                fetched += 1
            part = self.above

    def make_room(self, size: int) -> None:
        """Wait for what is on its way out, and send out more, until so many bytes are free."""
        memory = self.memory
        assert memory.limit is not None
        self.settle()
        while memory.used + size > memory.limit:
            if not self.relieve():
                return

    def relieve(self) -> bool:
        """Send a value to the host and wait for it; false where none is left to send."""
        self.settle()
        if not self.leaving and not self._put_out():
            return False
        self.memory.wait(self.leaving[0][0])
        self.mover.wait(self.leaving[0][1].away)
        self.settle()
        return True

    def settle(self) -> None:
        """Let go of what has arrived in host memory."""
        now = max(self.times.now(), self.memory.waits_until)
        arrived = self.mover.arrived
        while self.leaving and self.leaving[0][0] <= now and arrived(self.leaving[0][1].away):
            _, parked = self.leaving.popleft()
            self.leaving_bytes -= parked.bytes
            parked.value = None

    def _put_out(self) -> bool:
        """Send the oldest value to the host; false if there is none."""
        while self.waiting:
            parked = self.waiting.popleft()()
            if parked is None:
                continue
            memory = self.memory
            parked.away = self.mover.out(parked.value)
            self.meter.keep(getattr(parked.away, "array", parked.away), memory, host=True)
            memory.swapped_out.add(parked.bytes)
            end = self.times.copy(memory.device, parked.node, parked.bytes, out=True)
            self.leaving.append((max(end, parked.ready), parked))
            self.leaving_bytes += parked.bytes
            return True
        return False

    def _fetch(self, parked: StackEntry) -> None:
        """Bring a value back."""
        memory = self.memory
        value = self.mover.back(parked.away)
        self.meter.keep(value, memory)
        parked.value, parked.away = value, None
        memory.swapped_in.add(parked.bytes)
        parked.ready = self.times.copy(memory.device, parked.node, parked.bytes, out=False)
