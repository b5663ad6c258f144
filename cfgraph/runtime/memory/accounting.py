"""Memory accounting: the bytes that each device holds, their limits, and out-of-memory errors.

A device other than a CPU has its own memory. What belongs in host memory there (shapes, counters,
handles, swapped values) is counted separately and has no limit.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from cfgraph.errors import ExecutionError, UsageError
from cfgraph.ir.devices import (
    device_label,
    has_own_memory,
    parse_devices,
    short_device_name,
    short_device_names,
)
from cfgraph.ir.units import format_byte_size
from cfgraph.reports import Count
from cfgraph.runtime.engine.plan import NodePlan
from cfgraph.runtime.memory.placement import Buffer, buffer_of
from cfgraph.runtime.memory.swapping import DEFAULT_SWAP_ABOVE, Swapper
from cfgraph.runtime.trace.events import CopyTimer, Observer, TraceEvent

# owners that an error names
_MAX_NAMED_OWNERS: Final = 3
STACK: Final = "stack"
ITERATIONS: Final = "iterations of"


@dataclass(frozen=True, slots=True)
class MemoryOwner:
    """Owner of values in memory: a stack, an array, a variable, or the iterations of a loop."""

    kind: str
    name: str
    bytes: int
    values: int

    def __str__(self) -> str:
        count = f" in {self.values} values" if self.values > 1 else ""
        return f"{self.label} {format_byte_size(self.bytes)}{count}"

    @property
    def label(self) -> str:
        """The kind and the name, or the one that there is."""
        return f"{self.kind} {self.name}".strip()


def out_of_memory(memory: DeviceMemory, size: int) -> ExecutionError:
    """The error of a device with less free memory than requested."""
    limit = memory.limit or 0
    owners = memory.owners(memory)
    requested, free_bytes = format_byte_size(size), max(limit - memory.used, 0)
    free = (
        format_byte_size(free_bytes)
        if format_byte_size(free_bytes) != requested
        else f"{free_bytes} B"
    )
    device = device_label(memory.device, real=memory.real)
    message = (
        f"{device} is out of memory: {requested} requested, {free} free of "
        f"{format_byte_size(limit)}{_owners_text(owners)}"
    )
    hint = _hint(memory, size, owners)
    return ExecutionError(message, device=memory.device, hint=hint, code="CFG711")


def gpu_out_of_memory(
    device: str, reason: str, memory: DeviceMemory | None, node: object = None
) -> ExecutionError:
    """The error of a real GPU without free memory, whatever the limit; `reason` is its message."""
    owners = [] if memory is None else memory.owners(memory)
    hint = f"--memory {device} reports the owners of its memory"
    if memory is not None:
        hint = _hint(memory, 0, owners)
    message = f"{device} is out of memory: {reason}{_owners_text(owners)}"
    return ExecutionError(message, node=node, device=device, hint=hint, code="CFG711")


def _owners_text(owners: list[MemoryOwner]) -> str:
    """The largest owners by name, and the others by kind."""
    if not owners:
        return ""
    named = [str(owner) for owner in owners[:_MAX_NAMED_OWNERS]]
    rest = sorted(owners[_MAX_NAMED_OWNERS:], key=lambda owner: owner.kind)
    for kind, group in groupby(rest, key=lambda owner: owner.kind):
        group_owners = list(group)
        total = format_byte_size(sum(owner.bytes for owner in group_owners))
        is_single = len(group_owners) == 1
        what = group_owners[0].label if is_single else f"{len(group_owners)} more: {kind}"
        named.append(f"{what} {total}")
    return f"; owned by {'; '.join(named)}"


def _hint(memory: DeviceMemory, size: int, owners: list[MemoryOwner]) -> str:
    """The option that would help most."""
    advice = (
        f"--memory {memory.device}={format_byte_size(2 * (memory.limit or 0)).replace(' ', '')}"
    )
    if memory.limit is None:
        advice = "reduce the size of the inputs"
    if memory.limit is not None and size > memory.limit:
        return f"this value alone exceeds the limit: {advice}"
    by_kind: dict[str, int] = {}
    for owner in owners:
        by_kind[owner.kind] = by_kind.get(owner.kind, 0) + owner.bytes
    most = max(by_kind, key=by_kind.__getitem__, default="")
    if most == STACK and memory.is_separate and not memory.swapped_out.count:
        return (
            f"`grad --swap-memory` lets stacks swap to the host, `--recompute` saves less; {advice}"
        )
    if most == STACK:
        return f"`grad --recompute auto` saves less in the forward loop; {advice}"
    if most == ITERATIONS:
        return f"reduce parallel_iterations of the loop to hold fewer iterations; {advice}"
    return f"more memory: {advice}"


@dataclass(slots=True)
class CopyTotals:
    """Number and total size of copies of one kind."""

    count: Count = 0
    bytes: Count = 0

    def add(self, size: int) -> None:
        """Count one copy of this many bytes."""
        self.count += 1
        self.bytes += size


@dataclass(slots=True, eq=False)
class CountedBuffer:
    """A counted buffer; `host` is true if it is in host memory."""

    bytes: int
    memory: DeviceMemory
    plan: NodePlan | None
    host: bool
    mirrored: bool = False  # true if a copy exists in the other memory, host or device
    ref: Any = None


@dataclass(slots=True, eq=False)
class DeviceMemory:
    """Memory of one device; a `limit` of None means unlimited.

    `used` and `peak` are bytes in the device's own memory, `host` and `host_peak` are bytes in host
    memory. `stalls` are tokens that waited for a copy, `stalled` is their total wait in seconds.
    """

    device: str
    limit: int | None = None
    used: int = 0
    peak: int = 0
    peak_node: str | None = None
    host: int = 0
    host_peak: int = 0
    to_host: CopyTotals = field(default_factory=CopyTotals)
    to_device: CopyTotals = field(default_factory=CopyTotals)
    from_devices: CopyTotals = field(default_factory=CopyTotals)
    swapped_out: CopyTotals = field(default_factory=CopyTotals)
    swapped_in: CopyTotals = field(default_factory=CopyTotals)
    stalls: int = 0
    stalled: float = 0.0
    is_separate: bool = False
    real: bool = False  # a real GPU
    running: NodePlan | None = field(default=None, repr=False)
    waits_until: float = 0.0  # time until which the running token waits
    swapper: Swapper = field(init=False, repr=False)
    owners: Callable[[DeviceMemory], list[MemoryOwner]] = field(
        default=lambda memory: [], repr=False
    )

    def __post_init__(self) -> None:
        self.is_separate = has_own_memory(self.device)

    def claim(self, size: int, *, host: bool = False) -> None:
        """Reserve bytes. Raises ExecutionError if they are not available."""
        if host:
            self.host += size
            self.host_peak = max(self.host, self.host_peak)
            return
        if self.limit is not None and self.used + size > self.limit:
            self.swapper.make_room(size)
            if self.used + size > self.limit:
                raise out_of_memory(self, size)
        self.used += size
        if self.used > self.peak:
            self.peak = self.used
            self.peak_node = self.running.node.name if self.running else None

    def release(self, size: int, *, host: bool = False) -> None:
        """Subtract freed bytes from the memory in use, of the device or its host."""
        if host:
            self.host -= size
        else:
            self.used -= size

    def wait(self, until: float) -> None:
        """Let the running token wait for a copy."""
        self.waits_until = max(self.waits_until, until)

    def end_token(self) -> float:
        """The wait of the token that ran, which is counted as a stall."""
        waited, self.waits_until = max(self.waits_until - self.swapper.timer.now(), 0.0), 0.0
        if waited > 0:
            self.stalls += 1
            self.stalled += waited
        return waited

    def reset_counts(self) -> None:
        """Reset the counts of a run; bytes in use remain."""
        self.peak, self.peak_node, self.host_peak = self.used, None, self.host
        self.to_host, self.to_device, self.from_devices = CopyTotals(), CopyTotals(), CopyTotals()
        self.swapped_out, self.swapped_in = CopyTotals(), CopyTotals()
        self.stalls, self.stalled, self.waits_until = 0, 0.0, 0.0
        self.running = None
        self.swapper.reset()


class MemoryMeter:
    """Memory of all devices of a session, and the counted buffers."""

    def __init__(
        self, limits: Mapping[str, int | None], swap_above: float = DEFAULT_SWAP_ABOVE
    ) -> None:
        # also rejects NaN
        if not 0 <= swap_above <= 1:
            message = f"the swap threshold must be between 0 and 1, got {swap_above:g}"
            raise UsageError(message, hint="0.7 is 70 % of the limit")
        self.swap_above = swap_above
        self.limits = {
            short_device_name(parse_devices(name)[0]): size for name, size in limits.items()
        }
        self.memories: dict[str, DeviceMemory] = {}
        self.buffers: dict[int, CountedBuffer] = {}
        self.makers: dict[int, str] = {}  # the nodes that made stacks and arrays, by identity

    def memory(self, device: str) -> DeviceMemory:
        """The memory of a device."""
        name = short_device_name(device)
        memory = self.memories.get(name)
        if memory is None:
            memory = self.memories[name] = DeviceMemory(name, self.limits.get(name))
            memory.swapper = Swapper(memory, self, self.swap_above)
        return memory

    def start_run(
        self, timer: CopyTimer, owners: Callable[[DeviceMemory], list[MemoryOwner]]
    ) -> None:
        """Start a run: `timer` dates its copies, `owners` lists who owns memory for errors."""
        self.makers.clear()
        for memory in self.memories.values():
            memory.owners = owners
            memory.reset_counts()
            memory.swapper.timer = timer

    def require(self, devices: Sequence[str]) -> None:
        """Raise UsageError for a device that the run does not use."""
        for name in self.limits:
            if name not in map(short_device_name, devices):
                message = f"the run has no device {name} to count the memory of"
                raise UsageError(message, hint=f"it runs on {short_device_names(devices)}")

    def count_value(self, value: Any, memory: DeviceMemory, *, host: bool = False) -> None:
        """Count the buffer of a value, unless it is counted already."""
        buffer = buffer_of(value)
        if buffer is None or id(buffer) in self.buffers:
            return
        self._count_buffer(buffer, memory, host and memory.is_separate)

    def _count_buffer(self, buffer: Buffer, memory: DeviceMemory, host: bool) -> None:
        size = buffer.nbytes
        memory.claim(size, host=host)
        counted = CountedBuffer(size, memory, memory.running, host)
        key = id(buffer)
        self.buffers[key] = counted
        counted.ref = weakref.ref(buffer, lambda ref: self._release(key))

    def _release(self, key: int) -> None:
        counted = self.buffers.pop(key)
        counted.memory.release(counted.bytes, host=counted.host)
        if counted.mirrored:
            counted.memory.release(counted.bytes, host=not counted.host)

    def count_crossing(self, value: Any, memory: DeviceMemory, size: int, *, out: bool) -> None:
        """Count a copy between device and host memory.

        The copy exists as long as the value.
        """
        (memory.to_host if out else memory.to_device).add(size)
        buffer = buffer_of(value)
        counted = None if buffer is None else self.buffers.get(id(buffer))
        if (
            counted is not None
            and counted.memory is memory
            and counted.host is not out
            and not counted.mirrored
        ):
            memory.claim(counted.bytes, host=out)
            counted.mirrored = True

    def find(self, value: Any) -> CountedBuffer | None:
        """The counted buffer of a value."""
        buffer = buffer_of(value)
        return None if buffer is None else self.buffers.get(id(buffer))


class MemoryTrace:
    """Observer that adds the memory use of the device to each token."""

    def __init__(self, observer: Observer, meter: MemoryMeter) -> None:
        self.observer = observer
        self._meter = meter

    def with_memory(self, event: TraceEvent) -> TraceEvent:
        """The event with the current memory use of its device."""
        memory = self._meter.memories.get(event.device)
        if memory is None or not event.is_token:
            return event
        return event._replace(memory=memory.used)

    def event(self, event: TraceEvent) -> None:
        """Forward an event, with the memory in use."""
        self.observer.event(self.with_memory(event))
