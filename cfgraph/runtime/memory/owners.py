"""Owners of the memory of a device, found by a search through the state of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cfgraph.ir.devices import short_device_name
from cfgraph.ops.families.stacks import Stack
from cfgraph.ops.families.tensor_array import TensorArray
from cfgraph.ops.families.tensor_list import TensorList
from cfgraph.ops.families.variables import Variable
from cfgraph.runtime.engine.executor import Executor
from cfgraph.runtime.engine.frame_state import FrameState, Iteration
from cfgraph.runtime.memory.accounting import (
    ITERATIONS,
    STACK,
    CountedBuffer,
    DeviceMemory,
    MemoryMeter,
    MemoryOwner,
)
from cfgraph.runtime.memory.placement import buffer_of
from cfgraph.runtime.memory.swapping import StackEntry
from cfgraph.runtime.state import State


@dataclass(slots=True)
class _OwnerSearch:
    """Search for owners: a buffer belongs to the first owner that is visited."""

    meter: MemoryMeter
    memory: DeviceMemory
    seen: set[int] = field(default_factory=set)
    totals: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def add(self, kind: str, name: str, values: Iterable[Any]) -> None:
        """Add to an owner the buffers on the device that were not seen before."""
        for value in values:
            buffer = buffer_of(value)
            counted = None if buffer is None else self.meter.buffers.get(id(buffer))
            if counted is not None:
                self.add_buffer(kind, name, id(buffer), counted)

    def add_buffer(self, kind: str, name: str, key: int, counted: CountedBuffer) -> None:
        """Add one buffer."""
        if (
            counted.memory is not self.memory
            or key in self.seen
            or (counted.host and not counted.mirrored)
        ):
            return
        self.seen.add(key)
        total = self.totals.setdefault((kind, name), [0, 0])
        total[0] += counted.bytes
        total[1] += 1


def memory_owners(
    meter: MemoryMeter, memory: DeviceMemory, executors: Sequence[Executor], state: State
) -> list[MemoryOwner]:
    """All owners of memory on a device, largest first."""
    search = _OwnerSearch(meter, memory)
    for resource in state.objects():
        if isinstance(resource, Variable):
            search.add("variable", resource.name, [resource.value])
    local = [
        executor
        for executor in executors
        if short_device_name(executor.plan.device) == memory.device
    ]
    slots = [
        slot
        for executor in local
        if executor.root is not None
        for slot in _waiting_values(executor.root)
    ]
    for _, value in slots:
        contents = _container_contents(value, meter.makers.get(id(value), ""))
        if contents is not None:
            search.add(*contents)
    for path, value in slots:
        kind = ITERATIONS if path else "values outside of"
        search.add(kind, path or "loops", [value])
    for key, counted in meter.buffers.items():
        plan = counted.plan
        constant = plan is not None and not plan.node.inputs and not plan.op.effects.is_input
        search.add_buffer(*(("", "constants") if constant else ("", "others")), key, counted)
    owners = (MemoryOwner(kind, name, *total) for (kind, name), total in search.totals.items())
    return sorted(owners, key=lambda owner: (-owner.bytes, owner.kind, owner.name))


def _waiting_values(root: FrameState) -> Iterator[tuple[str, Any]]:
    """The values that wait for a consumer, with the path of their loop; `` for the root."""
    frames = [(root, "")]
    while frames:
        frame, path = frames.pop()
        for value in frame.values:
            yield path, value
        iteration: Iteration | None = frame.first
        while iteration is not None:
            for value in iteration.values:
                yield path, value
            for plan, child in (iteration.children or {}).items():
                frames.append((child, f"{path}/{plan.name}"))
            iteration = iteration.next


def _container_contents(value: Any, maker: str) -> tuple[str, str, list[Any]] | None:
    """The contents of a container: kind, name, and values; None for other values."""
    if isinstance(value, Stack):
        items = [entry.value if isinstance(entry, StackEntry) else entry for entry in value.items]
        return STACK, maker or value.name, items
    if isinstance(value, TensorArray):
        return "tensor array", maker or value.name, value.kept()
    if isinstance(value, TensorList):
        return "tensor list", f"of {value.element_dtype}{value.element_shape}", value.all()
    return None
