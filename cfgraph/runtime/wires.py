"""The wires between devices in virtual time: messages and copies that follow one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cfgraph.runtime.cost_model import CostModel
from cfgraph.runtime.devices.simulated import host_of
from cfgraph.runtime.memory.times import tell_copy
from cfgraph.runtime.trace import Observer

_NS: Final = 1e9


class Wires:
    """When each wire is free again. A wire goes one way, or both ways where it is half duplex."""

    def __init__(self, model: CostModel) -> None:
        self.model = model
        self._free: dict[tuple[str, str], float] = {}

    def clear(self) -> None:
        """All are free."""
        self._free.clear()

    def send(self, source: str, destination: str, size: int, now: float) -> tuple[float, float]:
        """Send so many bytes as soon as the wire is free; when they go, and when they are there."""
        wire = self.model.wire(source, destination)
        ends = (source, destination)
        if wire.half and destination < source:
            ends = (destination, source)
        begin = max(now, self._free.get(ends, 0.0))
        free = begin + size / wire.bandwidth
        self._free[ends] = free
        return begin, free + wire.latency


class WireTimes:
    """Copies between a device and its host in virtual time, beside what the device computes."""

    def __init__(
        self, wires: Wires, clock: Callable[[], float], observer: Observer | None = None
    ) -> None:
        self.wires = wires
        self.now = clock
        self.observer = observer

    def copy(self, device: str, node: str, size: int, *, out: bool) -> float:
        """Copy bytes on the wire that messages take too; when they are there."""
        host = host_of(device)
        source, destination = (device, host) if out else (host, device)
        begin, end = self.wires.send(source, destination, size, self.now())
        span = round(begin * _NS), round(end * _NS)
        tell_copy(self.observer, device, node, size, span, out=out)
        return end
