"""How many bytes each device holds: every buffer is counted from birth until nobody holds it.

A device that is no CPU has memory of its own. What belongs in host memory there (shapes, counters,
handles, what was swapped out) is counted apart, and bounded by no limit.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cfgraph.errors import UsageError
from cfgraph.ir.devices import parse_devices, short_device_name, short_device_names
from cfgraph.runtime.devices.simulated import has_own_memory
from cfgraph.runtime.memory.buffers import Buffer, buffer_of
from cfgraph.runtime.memory.out_of_memory import Holder, out_of_memory
from cfgraph.runtime.memory.swapping import THRESHOLD, Swapper
from cfgraph.runtime.memory.times import Times
from cfgraph.runtime.plan import NodePlan


@dataclass(slots=True)
class Copies:
    """Copies of one kind: how many, and their bytes."""

    count: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        """Count one."""
        self.count += 1
        self.bytes += size


@dataclass(slots=True, eq=False)
class Held:
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
    to_host: Copies = field(default_factory=Copies)
    to_device: Copies = field(default_factory=Copies)
    from_devices: Copies = field(default_factory=Copies)
    swapped_out: Copies = field(default_factory=Copies)
    swapped_in: Copies = field(default_factory=Copies)
    stalls: int = 0
    stalled: float = 0.0
    apart: bool = False
    real: bool = False  # on a card
    running: NodePlan | None = field(default=None, repr=False)
    awaited: float = 0.0  # the time until which the token that runs waits
    swapper: Swapper = field(init=False, repr=False)
    holders: Callable[[DeviceMemory], list[Holder]] = field(default=lambda memory: [], repr=False)

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
        self.awaited = max(self.awaited, until)

    def end_token(self) -> float:
        """How long the token that ran has waited; counted as a stall."""
        waited, self.awaited = max(self.awaited - self.swapper.times.now(), 0.0), 0.0
        if waited > 0:
            self.stalls += 1
            self.stalled += waited
        return waited

    def begin(self) -> None:
        """Count anew; what is held stays."""
        self.peak, self.peak_node, self.host_peak = self.used, None, self.host
        self.to_host, self.to_device, self.from_devices = Copies(), Copies(), Copies()
        self.swapped_out, self.swapped_in = Copies(), Copies()
        self.stalls, self.stalled, self.awaited = 0, 0.0, 0.0
        self.running = None
        self.swapper.begin()


class Meter:
    """The memories of a session's devices, and the buffers that are in them."""

    def __init__(self, limits: Mapping[str, int], above: float = THRESHOLD) -> None:
        # not a number is in no range
        if not 0 <= above <= 1:
            message = f"{above:g} is no share of a limit of memory"
            raise UsageError(message, hint="from 0 to 1; 0.7 is 70 %")
        self.above = above
        self.limits = {
            short_device_name(parse_devices(name)[0]): size for name, size in limits.items()
        }
        self.memories: dict[str, DeviceMemory] = {}
        self.held: dict[int, Held] = {}
        self.makers: dict[int, str] = {}  # the nodes that made stacks and arrays, by identity

    def memory(self, device: str) -> DeviceMemory:
        """The memory of a device."""
        name = short_device_name(device)
        found = self.memories.get(name)
        if found is None:
            found = self.memories[name] = DeviceMemory(name, self.limits.get(name))
            found.swapper = Swapper(found, self, self.above)
        return found

    def begin(self, times: Times, holders: Callable[[DeviceMemory], list[Holder]]) -> None:
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
        held = Held(size, memory, memory.running, host)
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

    def find(self, value: Any) -> Held | None:
        """What is counted for a value."""
        buffer = buffer_of(value)
        return None if buffer is None else self.held.get(id(buffer))
