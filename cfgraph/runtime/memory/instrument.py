"""Instrumentation of a plan for memory accounting, and the owners of a device's memory.

A run without accounting has none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cfgraph.ir.devices import has_own_memory, short_device_name
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import rendezvous_key
from cfgraph.ops.families.constants import identity
from cfgraph.ops.families.stacks import Stack
from cfgraph.ops.families.tensor_array import TensorArray
from cfgraph.ops.families.tensor_list import TensorList
from cfgraph.ops.families.variables import Variable
from cfgraph.runtime.engine.executor import Executor
from cfgraph.runtime.engine.link import FireWrapper
from cfgraph.runtime.engine.plan import NodePlan, Plan
from cfgraph.runtime.engine.propagate import Consumers, Fire, FrameState, Iteration, Send
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.engine.token_trace import message_bytes
from cfgraph.runtime.memory.accounting import (
    ITERATIONS,
    STACK,
    CountedBuffer,
    DeviceMemory,
    MemoryMeter,
    MemoryOwner,
)
from cfgraph.runtime.memory.placement import MemoryPlacement, buffer_of, copy_of_value, is_gpu_array
from cfgraph.runtime.memory.swapping import StackEntry


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
        """Count a buffer for its owner unless another owner has it."""
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
    waiting = [
        pair
        for executor in local
        if executor.root is not None
        for pair in _waiting_values(executor.root)
    ]
    for _, value in waiting:
        contents = _container_contents(value, meter.makers.get(id(value), ""))
        if contents is not None:
            search.add(*contents)
    for path, value in waiting:
        kind = ITERATIONS if path else "values outside of"
        search.add(kind, path or "loops", [value])
    for key, counted in meter.buffers.items():
        plan = counted.plan
        constant = plan is not None and not plan.node.inputs and not plan.op.effects.is_input
        search.add_buffer("", "constants" if constant else "others", key, counted)
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
    """The contents of a container: kind, name, and values, or None for other values."""
    if isinstance(value, Stack):
        items = [entry.value if isinstance(entry, StackEntry) else entry for entry in value.items]
        return STACK, maker or value.name, items
    if isinstance(value, TensorArray):
        return "tensor array", maker or value.name, value.stored_values()
    if isinstance(value, TensorList):
        return "tensor list", f"of {value.element_dtype}{value.element_shape}", value.all()
    return None


Kernel = Callable[..., Any]


class MemoryInstrumentation:
    """Memory accounting of one device in a run."""

    def __init__(self, plan: Plan, meter: MemoryMeter) -> None:
        self.plan = plan
        self.meter = meter
        self.memory: DeviceMemory = meter.memory(plan.device)
        self.placement = MemoryPlacement(plan.nodes)
        self.crossing_slots: dict[Node, list[tuple[int, bool]]] = {}
        if self.memory.is_separate:
            for node, slot, out in self.placement.crossings():
                index = plan.nodes[node].base + slot
                self.crossing_slots.setdefault(node, []).append((index, out))
        for node_plan in plan.nodes.values():
            self._instrument(node_plan)

    def _is_host(self, output: Output) -> bool:
        return self.memory.is_separate and self.placement.is_host(output)

    def _instrument(self, plan: NodePlan) -> None:
        """Wrap the kernel of a node by one that counts its outputs."""
        op = plan.op
        if op.role is Role.RECV:
            plan.kernel = self._receive_kernel(plan)
        elif (
            op.placement.swap_role == "push"
            and plan.node.attr("swap_memory")
            and self.memory.is_separate
        ):
            plan.kernel = self._push_kernel(plan.kernel)
        elif op.placement.swap_role == "pop":
            plan.kernel = self._pop_kernel(plan.kernel)
        elif not op.role:
            plan.kernel = self._counting_kernel(plan)

    def _counting_kernel(self, plan: NodePlan) -> Kernel:
        kernel, memory, count = plan.kernel, self.memory, self.meter.count_value
        makers = self.meter.makers
        hosts = [self._is_host(Output(plan.node, port)) for port in range(plan.outputs)]

        def run(*inputs: Any) -> Any:
            result = kernel(*inputs)
            if len(hosts) == 1:
                count(result, memory, host=hosts[0])
            else:
                for value, host in zip(result or (), hosts, strict=True):
                    count(value, memory, host=host)
            return result

        def run_stateful(*inputs: Any) -> Any:
            result = run(*inputs)
            for value in inputs:
                if isinstance(value, Variable):
                    count(value.value, memory)
            if isinstance(result, Stack | TensorArray):
                makers[id(result)] = plan.node.name
            return result

        return run_stateful if plan.op.effects.stateful else run

    def _push_kernel(self, kernel: Kernel) -> Kernel:
        swapper = self.memory.swapper

        def push(step: Any, stack: Stack, value: Any) -> Any:
            result = kernel(step, stack, value)
            swapper.after_push(stack)
            return result

        return push

    def _pop_kernel(self, kernel: Kernel) -> Kernel:
        swapper = self.memory.swapper
        return lambda step, stack: swapper.after_pop(kernel(step, stack), stack)

    def _receive_kernel(self, plan: NodePlan) -> Kernel:
        """The kernel of a Recv: a message is a copy, unless it comes from the same device."""
        receive, key = plan.kernel, rendezvous_key(plan.node)
        source = self.meter.memory(key.send_device)
        if source is self.memory:
            return receive
        memory, host = self.memory, self._is_host(plan.node.output())
        crosses, peer = memory.is_separate and not host, source.is_separate
        count = self._count_copy if receive is identity else self._counted

        def receive_copy(message: Any) -> Any:
            if message is None:
                return None
            if crosses:
                (memory.from_devices if peer else memory.to_device).add(message_bytes(message))
            return count(receive(message), host)

        return receive_copy

    def _count_copy(self, value: Any, host: bool) -> Any:
        return self._counted(copy_of_value(value), host)

    def wrap(self, inner: FireWrapper | None) -> FireWrapper:
        """A wrapper that notes the running node and counts copies before `inner`."""
        memory, count_crossing = self.memory, self.meter.count_crossing

        def wrap(
            plan: NodePlan, ports: list[Consumers], live: Fire, dead: Fire
        ) -> tuple[Fire, Fire]:
            if inner is not None:
                live, dead = inner(plan, ports, live, dead)
            slots = self.crossing_slots.get(plan.node, ())
            sent = plan.base if self._copies_out(plan) else -1

            def fire(iteration: Iteration) -> None:
                memory.running = plan
                for index, out in slots:
                    value = iteration.values[index]
                    count_crossing(value, memory, message_bytes(value), out=out)
                if sent >= 0:
                    memory.to_host.add(message_bytes(iteration.values[sent]))
                live(iteration)
                if iteration.values:
                    # the slot of values that no input reads
                    iteration.values[0] = None

            return fire, dead

        return wrap

    def _copies_out(self, plan: NodePlan) -> bool:
        """True for a Send from this device's own memory to a host."""
        if plan.op.role is not Role.SEND or not self.memory.is_separate:
            return False
        if has_own_memory(rendezvous_key(plan.node).recv_device):
            return False
        return not self.placement.is_host(plan.node.inputs[0])

    def feed_sender(self, send: Send, output: Output) -> Send:
        """Deliver a fed value and count its copy from the host."""
        memory, host = self.memory, self._is_host(output)
        if not memory.is_separate or host:
            return lambda iteration, value: send(iteration, self._counted(value, host))

        def deliver(iteration: Iteration, value: Any) -> int:
            memory.to_device.add(message_bytes(value))
            count = self._counted if is_gpu_array(value) else self._count_copy
            return send(iteration, count(value, host))

        return deliver

    def _counted(self, value: Any, host: bool) -> Any:
        self.meter.count_value(value, self.memory, host=host)
        return value

    def count_fetched(self, results: Sequence[Any]) -> None:
        """Count the copies of fetched values to the host."""
        for index, output in self.plan.fetches.items():
            if (
                self.memory.is_separate
                and not self._is_host(output)
                and hasattr(results[index], "nbytes")
            ):
                self.memory.to_host.add(message_bytes(results[index]))
