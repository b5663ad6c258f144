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

    __slots__ = ("__weakref__", "bytes", "host_copy", "node", "ready", "value")

    def __init__(self, value: Any, size: int, node: str) -> None:
        self.value: Any = value
        self.host_copy: Any = None
        self.bytes = size
        self.node = node
        self.ready = 0.0


class SwapCopier:
    """How values move; this one copies them at once. On a card, copies go on by themselves."""

    def copy_out(self, value: Any) -> Any:
        """Copy a value to the host."""
        return copy_of_value(value)

    def copy_back(self, host_copy: Any) -> Any:
        """Copy back what is on the host."""
        return copy_of_value(host_copy)

    def has_arrived(self, host_copy: Any) -> bool:
        """True once a copy is on the host, and the value it is of may go."""
        return True

    def wait(self, host_copy: Any) -> None:
        """Wait until a copy is on the host."""


class Swapper:
    """What one device moves to the host and back."""

    def __init__(self, memory: DeviceMemory, meter: MemoryMeter, swap_above: float) -> None:
        self.memory = memory
        self.meter = meter
        self.swap_above = swap_above
        self.timer: CopyTimer = InstantCopyTimer()
        self.copier = SwapCopier()
        # those on the device, oldest first
        self.resident: deque[weakref.ref[StackEntry]] = deque()
        # those on their way to the host, and when they are there; till then they are on the device
        self.outgoing: deque[tuple[float, StackEntry]] = deque()
        self.outgoing_bytes = 0

    def reset(self) -> None:
        """Forget what an earlier run left."""
        self.resident.clear()
        self.outgoing.clear()
        self.outgoing_bytes = 0

    def after_push(self, stack: Stack) -> None:
        """Look after what was pushed last, and make room if there is little."""
        memory = self.memory
        if memory.limit is None:
            return
        value = stack.items[-1]
        buffer = buffer_of(value)
        counted = self.meter.find(value)
        if buffer is None or counted is None or counted.host or counted.memory is not memory:
            return
        first = stack.items[0]
        if value.nbytes > SMALL_VALUE and len(stack.items) > 1 and buffer_of(first) is not buffer:
            node = memory.running.node.name if memory.running else ""
            entry = stack.items[-1] = StackEntry(value, counted.bytes, node)
            while self.resident and self.resident[-1]() is None:
                self.resident.pop()
            self.resident.append(weakref.ref(entry))
        self.release_arrived()
        bound = self.swap_above * memory.limit
        while memory.used - self.outgoing_bytes > bound and self._swap_out_oldest():
            pass

    def after_pop(self, value: Any, stack: Stack) -> Any:
        """What was popped, back on the device; those below it follow."""
        if isinstance(value, StackEntry):
            if value.value is None:
                self._swap_in(value)
            self.memory.wait(value.ready)
            value = value.value
        self.release_arrived()
        self._prefetch(stack)
        return value

    def _prefetch(self, stack: Stack) -> None:
        """Bring back what is popped next, but no more than others have to wait for.

        What is on top may take half of what is kept free, the others only what is below it.
        """
        limit = self.memory.limit
        if limit is None:
            return
        fetched, fraction = 0, (1 + self.swap_above) / 2
        for entry in reversed(stack.items[-PREFETCH_DEPTH:]):
            if isinstance(entry, StackEntry) and entry.value is None:
                if fetched == MAX_PREFETCHES or self.memory.used + entry.bytes > fraction * limit:
                    return
                self._swap_in(entry)
                # it may go again: where others need the room, and before those above it
                self.resident.appendleft(weakref.ref(entry))
                fetched += 1
            fraction = self.swap_above

    def make_room(self, size: int) -> None:
        """Wait for what is on its way out, and send out more, until so many bytes are free."""
        memory = self.memory
        assert memory.limit is not None
        self.release_arrived()
        while memory.used + size > memory.limit:
            if not self.relieve():
                return

    def relieve(self) -> bool:
        """Send a value to the host and wait for it; false where none is left to send."""
        self.release_arrived()
        if not self.outgoing and not self._swap_out_oldest():
            return False
        self.memory.wait(self.outgoing[0][0])
        self.copier.wait(self.outgoing[0][1].host_copy)
        self.release_arrived()
        return True

    def release_arrived(self) -> None:
        """Let go of what has arrived in host memory."""
        now = max(self.timer.now(), self.memory.waits_until)
        has_arrived = self.copier.has_arrived
        while (
            self.outgoing
            and self.outgoing[0][0] <= now
            and has_arrived(self.outgoing[0][1].host_copy)
        ):
            _, entry = self.outgoing.popleft()
            self.outgoing_bytes -= entry.bytes
            entry.value = None

    def _swap_out_oldest(self) -> bool:
        """Send the oldest value to the host; false if there is none."""
        while self.resident:
            entry = self.resident.popleft()()
            if entry is None:
                continue
            memory = self.memory
            entry.host_copy = self.copier.copy_out(entry.value)
            self.meter.count_value(
                getattr(entry.host_copy, "array", entry.host_copy), memory, host=True
            )
            memory.swapped_out.add(entry.bytes)
            end = self.timer.copy(memory.device, entry.node, entry.bytes, out=True)
            self.outgoing.append((max(end, entry.ready), entry))
            self.outgoing_bytes += entry.bytes
            return True
        return False

    def _swap_in(self, entry: StackEntry) -> None:
        """Bring a value back."""
        memory = self.memory
        value = self.copier.copy_back(entry.host_copy)
        self.meter.count_value(value, memory)
        entry.value, entry.host_copy = value, None
        memory.swapped_in.add(entry.bytes)
        entry.ready = self.timer.copy(memory.device, entry.node, entry.bytes, out=False)
