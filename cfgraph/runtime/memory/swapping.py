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

# fraction of a limit above which values swap out, and below which they are prefetched
DEFAULT_SWAP_ABOVE: Final = 0.7
# smaller values are not worth a copy
SMALL_VALUE: Final = 2048
# depth below the top of a stack within which values are prefetched
PREFETCH_DEPTH: Final = 64
# prefetches of one stack at a time; more would delay what other stacks need sooner
MAX_PREFETCHES: Final = 2


class StackEntry:
    """A value on a stack: on the device, in host memory, or in transfer until `ready`."""

    __slots__ = ("__weakref__", "bytes", "host_copy", "node", "ready", "value")

    def __init__(self, value: Any, size: int, node: str) -> None:
        self.value: Any = value
        self.host_copy: Any = None
        self.bytes = size
        self.node = node
        self.ready = 0.0


class SwapCopier:
    """Synchronous copies between device and host; real GPUs copy asynchronously."""

    def copy_out(self, value: Any) -> Any:
        """Copy a value to the host."""
        return copy_of_value(value)

    def copy_back(self, host_copy: Any) -> Any:
        """Copy a host copy back to the device."""
        return copy_of_value(host_copy)

    def has_arrived(self, host_copy: Any) -> bool:
        """True once a copy is on the host, and the original can be released."""
        return True

    def wait(self, host_copy: Any) -> None:
        """Wait until a copy is on the host."""


class Swapper:
    """Manager of the stack entries of one device: swaps old ones out, and prefetches the next."""

    def __init__(self, memory: DeviceMemory, meter: MemoryMeter, swap_above: float) -> None:
        self.memory = memory
        self.meter = meter
        self.swap_above = swap_above
        self.timer: CopyTimer = InstantCopyTimer()
        self.copier = SwapCopier()
        # entries on the device, oldest first
        self.resident: deque[weakref.ref[StackEntry]] = deque()
        # entries in transfer to the host with their arrival times; until then they use device
        # memory
        self.outgoing: deque[tuple[float, StackEntry]] = deque()
        self.outgoing_bytes = 0

    def reset(self) -> None:
        """Drop the entries of an earlier run."""
        self.resident.clear()
        self.outgoing.clear()
        self.outgoing_bytes = 0

    def after_push(self, stack: Stack) -> None:
        """Track the pushed value, and swap out old ones if memory is short."""
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
        """The popped value, on the device; entries below it are prefetched."""
        if isinstance(value, StackEntry):
            if value.value is None:
                self._swap_in(value)
            self.memory.wait(value.ready)
            value = value.value
        self.release_arrived()
        self._prefetch(stack)
        return value

    def _prefetch(self, stack: Stack) -> None:
        """Prefetch the entries that are popped next, within the memory that others do not need.

        The top entry may use half of the free reserve above the threshold, the others none of it.
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
                # it may be swapped out again first, since it is popped before those below it
                self.resident.appendleft(weakref.ref(entry))
                fetched += 1
            fraction = self.swap_above

    def make_room(self, size: int) -> None:
        """Wait for outgoing values, and swap out more, until this many bytes are free."""
        memory = self.memory
        assert memory.limit is not None
        self.release_arrived()
        while memory.used + size > memory.limit:
            if not self.relieve():
                return

    def relieve(self) -> bool:
        """Swap out a value and wait for it; return false if none is left."""
        self.release_arrived()
        if not self.outgoing and not self._swap_out_oldest():
            return False
        self.memory.wait(self.outgoing[0][0])
        self.copier.wait(self.outgoing[0][1].host_copy)
        self.release_arrived()
        return True

    def release_arrived(self) -> None:
        """Release the values whose copies are in host memory."""
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
        """Start to swap out the oldest value; return false if there is none."""
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
        """Copy a value back to the device."""
        memory = self.memory
        value = self.copier.copy_back(entry.host_copy)
        self.meter.count_value(value, memory)
        entry.value, entry.host_copy = value, None
        memory.swapped_in.add(entry.bytes)
        entry.ready = self.timer.copy(memory.device, entry.node, entry.bytes, out=False)
