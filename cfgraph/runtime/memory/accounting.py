"""Memory accounting: the bytes that each device holds, their limits, and out-of-memory errors.

A device other than a CPU has memory of its own. What belongs in host memory there (shapes,
counters, handles, swapped values) is counted separately and has no limit.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from cfgraph.errors import ExecutionError, UsageError
from cfgraph.ir.devices import parse_devices, short_device_name, short_device_names
from cfgraph.ir.units import format_byte_size
from cfgraph.runtime.device_kinds import device_label, has_own_memory
from cfgraph.runtime.engine.plan import NodePlan
from cfgraph.runtime.memory.placement import Buffer, buffer_of
from cfgraph.runtime.memory.swapping import DEFAULT_SWAP_ABOVE, Swapper
from cfgraph.runtime.trace.events import CopyTimer, Observer, TraceEvent

# holders that are named
_MAX_NAMED_OWNERS: Final = 3
STACK: Final = "stack"
ITERATIONS: Final = "iterations of"


@dataclass(frozen=True, slots=True)
class MemoryOwner:
    """What keeps values in memory: a stack, an array, a variable, the iterations of a loop."""

    kind: str
    name: str
    bytes: int
    values: int

    def __str__(self) -> str:
        count = f" in {self.values} values" if self.values > 1 else ""
        return f"{self.label} {format_byte_size(self.bytes)}{count}"

    @property
    def label(self) -> str:
        """The kind, and the name where there is one."""
        return f"{self.kind} {self.name}".rstrip()


def out_of_memory(memory: DeviceMemory, size: int) -> ExecutionError:
    """The error of a device that has less left than what is asked for."""
    limit = memory.limit or 0
    holders = memory.holders(memory)
    asked, left = format_byte_size(size), max(limit - memory.used, 0)
    free = format_byte_size(left) if format_byte_size(left) != asked else f"{left} B"
    device = device_label(memory.device, real=memory.real)
    message = (
        f"{device} is out of memory: {asked} asked for, {free} free of "
        f"{format_byte_size(limit)}{_owners_text(holders)}"
    )
    hint = _hint(memory, size, holders)
    return ExecutionError(message, device=memory.device, hint=hint, code="CFG711")


def gpu_out_of_memory(
    device: str, said: str, memory: DeviceMemory | None, node: object = None
) -> ExecutionError:
    """The error of a gpu on a card that has nothing left, whatever the limit; `said` is why."""
    holders = [] if memory is None else memory.holders(memory)
    hint = f"--memory {device} tells who holds it"
    if memory is not None:
        hint = _hint(memory, 0, holders)
    message = f"{device} is out of memory: {said}{_owners_text(holders)}"
    return ExecutionError(message, node=node, device=device, hint=hint, code="CFG711")


def _owners_text(holders: list[MemoryOwner]) -> str:
    """The greatest holders, and what all others have together."""
    if not holders:
        return ""
    named = [str(holder) for holder in holders[:_MAX_NAMED_OWNERS]]
    rest = sorted(holders[_MAX_NAMED_OWNERS:], key=lambda holder: holder.kind)
    for kind, group in groupby(rest, key=lambda holder: holder.kind):
        several = list(group)
        total = format_byte_size(sum(holder.bytes for holder in several))
        one = len(several) == 1
        what = several[0].label if one else f"{len(several)} more: {kind}"
        named.append(f"{what} {total}")
    return f"; held by {'; '.join(named)}"


def _hint(memory: DeviceMemory, size: int, holders: list[MemoryOwner]) -> str:
    """The option that would help most."""
    more = f"--memory {memory.device}={format_byte_size(2 * (memory.limit or 0)).replace(' ', '')}"
    if memory.limit is None:
        more = "smaller inputs need less"
    if memory.limit is not None and size > memory.limit:
        return f"this one value needs more: {more}"
    by_kind: dict[str, int] = {}
    for holder in holders:
        by_kind[holder.kind] = by_kind.get(holder.kind, 0) + holder.bytes
    most = max(by_kind, key=by_kind.__getitem__, default="")
    if most == STACK and memory.apart and not memory.swapped_out.count:
        return (
            f"`grad --swap-memory` lets stacks move to the host, `--recompute` saves less; {more}"
        )
    if most == STACK:
        return f"`grad --recompute auto` saves less in the forward loop; {more}"
    if most == ITERATIONS:
        return f"a smaller parallel_iterations of the loop holds fewer at once; {more}"
    return f"more memory: {more}"


@dataclass(slots=True)
class CopyTotals:
    """Copies of one kind: how many, and their bytes."""

    count: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        """Count one."""
        self.count += 1
        self.bytes += size


@dataclass(slots=True, eq=False)
class CountedBuffer:
    """A buffer that something holds; `host` where it is in the host's memory."""

    bytes: int
    memory: DeviceMemory
    plan: NodePlan | None
    host: bool
    also: bool = False  # a copy of what is in host memory is on the device too, or the other way
    ref: Any = None


@dataclass(slots=True, eq=False)
class DeviceMemory:
    """The memory of one device; `limit` None is as much as there is.

    `used` and `peak` are bytes in the device's own memory, `host` and `host_peak` those in the
    host's. `stalls` are tokens that waited for a copy, `stalled` the seconds that they did.
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
    apart: bool = False
    real: bool = False  # on a card
    running: NodePlan | None = field(default=None, repr=False)
    waits_until: float = 0.0  # the time until which the token that runs waits
    swapper: Swapper = field(init=False, repr=False)
    holders: Callable[[DeviceMemory], list[MemoryOwner]] = field(
        default=lambda memory: [], repr=False
    )

    def __post_init__(self) -> None:
        self.apart = has_own_memory(self.device)

    def claim(self, size: int, *, host: bool = False) -> None:
        """Take bytes. Raises ExecutionError where they are not there."""
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
        """Give bytes back."""
        if host:
            self.host -= size
        else:
            self.used -= size

    def wait(self, until: float) -> None:
        """Let the token that runs wait for a copy."""
        self.waits_until = max(self.waits_until, until)

    def end_token(self) -> float:
        """How long the token that ran has waited; counted as a stall."""
        waited, self.waits_until = max(self.waits_until - self.swapper.times.now(), 0.0), 0.0
        if waited > 0:
            self.stalls += 1
            self.stalled += waited
        return waited

    def begin(self) -> None:
        """Count anew; what is held stays."""
        self.peak, self.peak_node, self.host_peak = self.used, None, self.host
        self.to_host, self.to_device, self.from_devices = CopyTotals(), CopyTotals(), CopyTotals()
        self.swapped_out, self.swapped_in = CopyTotals(), CopyTotals()
        self.stalls, self.stalled, self.waits_until = 0, 0.0, 0.0
        self.running = None
        self.swapper.begin()


class MemoryMeter:
    """The memories of a session's devices, and the buffers that are in them."""

    def __init__(self, limits: Mapping[str, int], above: float = DEFAULT_SWAP_ABOVE) -> None:
        # not a number is in no range
        if not 0 <= above <= 1:
            message = f"{above:g} is no share of a limit of memory"
            raise UsageError(message, hint="from 0 to 1; 0.7 is 70 %")
        self.above = above
        self.limits = {
            short_device_name(parse_devices(name)[0]): size for name, size in limits.items()
        }
        self.memories: dict[str, DeviceMemory] = {}
        self.held: dict[int, CountedBuffer] = {}
        self.makers: dict[int, str] = {}  # the nodes that made stacks and arrays, by identity

    def memory(self, device: str) -> DeviceMemory:
        """The memory of a device."""
        name = short_device_name(device)
        found = self.memories.get(name)
        if found is None:
            found = self.memories[name] = DeviceMemory(name, self.limits.get(name))
            found.swapper = Swapper(found, self, self.above)
        return found

    def begin(self, times: CopyTimer, holders: Callable[[DeviceMemory], list[MemoryOwner]]) -> None:
        """Begin a run: `times` date its copies, `holders` say who holds what if it fails."""
        self.makers.clear()
        for memory in self.memories.values():
            memory.holders = holders
            memory.begin()
            memory.swapper.times = times

    def require(self, devices: Sequence[str]) -> None:
        """Raise UsageError for a limit on a device that takes no part in a run."""
        for name in self.limits:
            if name not in map(short_device_name, devices):
                message = f"the run has no device {name}, whose memory is to be limited"
                raise UsageError(message, hint=f"it runs on {short_device_names(devices)}")

    def keep(self, value: Any, memory: DeviceMemory, *, host: bool = False) -> None:
        """Count the buffer behind a value from now on, if it is not counted yet."""
        buffer = buffer_of(value)
        if buffer is None or id(buffer) in self.held:
            return
        self._keep(buffer, memory, host and memory.apart)

    def _keep(self, buffer: Buffer, memory: DeviceMemory, host: bool) -> None:
        size = buffer.nbytes
        memory.claim(size, host=host)
        held = CountedBuffer(size, memory, memory.running, host)
        key = id(buffer)
        self.held[key] = held
        held.ref = weakref.ref(buffer, lambda ref: self._gone(key))

    def _gone(self, key: int) -> None:
        held = self.held.pop(key)
        held.memory.release(held.bytes, host=held.host)
        if held.also:
            held.memory.release(held.bytes, host=not held.host)

    def cross(self, value: Any, memory: DeviceMemory, size: int, *, out: bool) -> None:
        """Count a copy between a device's memory and the host's: a value is needed in the other.

        The copy stays as long as the value.
        """
        (memory.to_host if out else memory.to_device).add(size)
        buffer = buffer_of(value)
        held = None if buffer is None else self.held.get(id(buffer))
        if held is not None and held.memory is memory and held.host is not out and not held.also:
            memory.claim(held.bytes, host=out)
            held.also = True

    def find(self, value: Any) -> CountedBuffer | None:
        """What is counted for a value."""
        buffer = buffer_of(value)
        return None if buffer is None else self.held.get(id(buffer))


class MemoryTrace:
    """Hands on each event of a token with the bytes that its device holds after it."""

    def __init__(self, observer: Observer, meter: MemoryMeter) -> None:
        self.observer = observer
        self._meter = meter

    def noted(self, event: TraceEvent) -> TraceEvent:
        """The event with what its device holds now."""
        memory = self._meter.memories.get(event.device)
        if memory is None or not event.is_token:
            return event
        return event._replace(memory=memory.used)

    def event(self, event: TraceEvent) -> None:
        """Hand on one event."""
        self.observer.event(self.noted(event))
