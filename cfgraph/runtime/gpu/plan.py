"""Plans bound to a real GPU: which nodes compute there, what is copied, and what the host runs.

A kernel that fails on the GPU runs on the host from then on, and its op is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cfgraph.analysis.transfers import RendezvousKey, rendezvous_key
from cfgraph.ir import registry
from cfgraph.ir.devices import short_device_name
from cfgraph.ir.dtypes import DType, int32
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.ops.families.constants import identity
from cfgraph.ops.families.optional import OptionalVariant
from cfgraph.ops.families.tensor_list import TensorList
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.opdef.op import Kernel, OpError
from cfgraph.ops.opdef.variant_math import map_objects
from cfgraph.runtime.device_kinds import is_gpu
from cfgraph.runtime.engine.plan import NodePlan, Plan
from cfgraph.runtime.gpu.context import GpuContext
from cfgraph.runtime.gpu.kernels import with_bfloat16_outputs
from cfgraph.runtime.gpu.memory_pool import fatal_error
from cfgraph.runtime.gpu.shared_variables import SharedVariables, require_colocated_references
from cfgraph.runtime.gpu.stream import SMALL_COPY, GpuStream
from cfgraph.runtime.memory.placement import MemoryPlacement


def map_contained(value: Any, move: Callable[[Any], Any]) -> Any:
    """A value moved, with all that is in it."""
    if isinstance(value, TensorList):
        items = [None if item is None else map_contained(item, move) for item in value.all()]
        return value.replaced(items)
    if isinstance(value, OptionalVariant):
        held = value.values
        return (
            value
            if held is None
            else OptionalVariant(tuple(map_contained(item, move) for item in held))
        )
    if isinstance(value, np.ndarray) and value.dtype == object:
        return map_objects(lambda item: map_contained(item, move), value) if value.size else value
    return value if isinstance(value, bytes) else move(value)


def is_container(value: Any) -> bool:
    """True for a value that holds others."""
    if isinstance(value, np.ndarray):
        return bool(value.dtype.hasobject)
    return isinstance(value, TensorList | OptionalVariant)


Move = Callable[[Any], Any]


class GpuPlan:
    """The plans of a run bound to a card: `lanes` and `homes` of its gpus, by device.

    `fallen` are the ops whose kernels ran on the host after all, with the reason.
    """

    def __init__(self, plans: Sequence[Plan], card: GpuContext) -> None:
        self.card = card
        self.host_fallbacks: dict[str, str] = {}
        self.lanes: dict[str, GpuStream] = {}
        self.homes: dict[str, MemoryPlacement] = {}
        for plan in plans:
            if is_gpu(plan.device):
                self.lanes[plan.device] = card.lane(short_device_name(plan.device))
                self.homes[plan.device] = MemoryPlacement(plan.nodes)
        require_colocated_references(plans, self.lanes)
        self.cells = SharedVariables(card, self.lanes)
        # the messages that are wanted in host memory
        self._to_host: dict[RendezvousKey, bool] = {}
        for plan in plans:
            for node in plan.nodes_of_role(Role.RECV):
                self._to_host[rendezvous_key(node)] = self.is_host(plan, node.output())
        for plan in plans:
            if plan.device in self.lanes:
                _GpuBinding(self, plan)
            else:
                self._host_plan(plan)

    def begin(self) -> None:
        """What earlier runs left on one gpu is there before another one reads it."""
        lanes = self.card.lanes()
        for lane in lanes:
            lane.follow(lanes)

    def is_host(self, plan: Plan, item: Output) -> bool:
        """True for an output in host memory."""
        homes = self.homes.get(plan.device)
        return homes is None or homes.is_host(item)

    def receiving(self, node: Node, lane: GpuStream | None) -> Move:
        """What a Recv does with its message."""
        key = rendezvous_key(node)
        sender, to_host = self.lanes.get(key.send_device), self._to_host[key]

        other = lane or sender
        if other is None:
            return identity

        def land(message: Any) -> Any:
            if message is None or not is_container(message):
                return None if message is None else other.collect(message, sender, to_host=to_host)
            return map_contained(message, part)

        def part(one: Any) -> Any:
            """What a list holds is where what computed it would have put it."""
            hosts = lane is None or getattr(one, "dtype", None) == np.int32
            return other.collect(one, sender, to_host=hosts)

        return land

    def sending(self, node: Node, lane: GpuStream) -> Move:
        """What a Send does with its value."""
        to_host = self._to_host.get(rendezvous_key(node), True)
        return lambda value: lane.post(value, to_host=to_host)

    def home(self, cell: Variable) -> None:
        """Bring a variable to the host."""
        cell.value = self.card.to_host(cell.value)

    def _host_plan(self, plan: Plan) -> None:
        """On a CPU of the run: messages come from the card, and variables may be there."""
        for node_plan in plan.nodes.values():
            if node_plan.op.role is Role.RECV:
                node_plan.kernel = self.receiving(node_plan.node, None)
            elif node_plan.op.effects.stateful:
                node_plan.kernel = _with_local_variables(node_plan.kernel, self.home)


class _GpuBinding:
    """The plan of one gpu."""

    def __init__(self, owner: GpuPlan, plan: Plan) -> None:
        self.owner, self.plan = owner, plan
        self.lane, self.homes = owner.lanes[plan.device], owner.homes[plan.device]
        self.early: set[Output] = set()
        for node_plan in plan.nodes.values():
            node_plan.moves = tuple(self._moves(node_plan))
        for node_plan in plan.nodes.values():
            node_plan.kernel = self._kernel(node_plan)

    def _moves(self, plan: NodePlan) -> list[tuple[int, Move]]:
        """What takes the inputs of a node over to where it wants them."""
        node, role, found = plan.node, plan.op.role, list[tuple[int, Move]]()
        if role is Role.SEND:
            return [(plan.base, self.owner.sending(node, self.lane))]
        for slot, item in enumerate(node.inputs):
            merges = role is Role.MERGE
            wanted = self.homes.is_host(node.output()) if merges else self.homes.wanted(node, slot)
            # a variable that is read is wherever it was written
            there = slot not in plan.deref_slots and wanted is self.homes.is_host(item)
            if wanted is None or there or slot in plan.forwarded_slots:
                continue
            found.append((plan.base + slot, self.lane.to_host if wanted else self.lane.to_device))
            if wanted:
                self.early.add(item)
        return found

    def _kernel(self, plan: NodePlan) -> Kernel:
        node, op = plan.node, plan.op
        if op.role is Role.RECV:
            return self.owner.receiving(node, self.lane)
        if op.role or op.aliasing.is_identity:
            return plan.kernel
        if not node.inputs and not op.effects.stateful:
            return self._constant(plan)
        if plan.gpu_kernel is not None:
            kernel = _with_local_variables(plan.gpu_kernel(self.lane), self._settle)
        elif op.calls.kind or not self._computes(plan):
            kernel = self._on_host(plan, plan.kernel)
        elif op.algebra.shape_only or op.placement.host_only or op.placement.swap_role:
            kernel = plan.kernel
        else:
            kernel = self._guarded(plan)
        return self._placed(plan, kernel)

    def _computes(self, plan: NodePlan) -> bool:
        """True where the card knows all types of a node."""
        types = [
            *(registry.input_types(plan.node) or ()),
            *(registry.output_types(plan.node) or ()),
        ]
        return all(dtype.is_object or dtype.is_ref or self._held(dtype) for dtype in types)

    def _held(self, dtype: DType) -> bool:
        return self.owner.card.holds(np.dtype(dtype.numpy))

    def _constant(self, plan: NodePlan) -> Kernel:
        """What needs no input is brought to the card once, when it is first wanted."""
        if self.homes.is_host(plan.node.output()):
            return plan.kernel
        kernel, known = plan.kernel, list[Any]()

        def constant() -> Any:
            if not known:
                known.append(self.lane.to_device(kernel()))
            return known[0]

        return constant

    def _guarded(self, plan: NodePlan) -> Kernel:
        """The kernel on the card, until it fails and the one of the host does not."""
        op, node, xp = plan.op, plan.node, self.owner.card.xp
        on_host = self._on_host(plan, plan.kernel)
        about_shapes = all(self.homes.wanted(node, slot) for slot in range(len(node.inputs)))
        if about_shapes and all(map(self.homes.is_host, _outputs(plan))):
            return (
                _with_local_variables(plan.kernel, self._settle)
                if op.effects.stateful
                else plan.kernel
            )
        try:
            kernel = op.prepare(node, xp) if op.effects.stateful else op.bind(node, xp)
        except Exception as error:
            self.owner.host_fallbacks[op.name] = _error_summary(error)
            return on_host
        kernel = with_bfloat16_outputs(node, kernel)
        if op.effects.stateful:
            kernel = _with_local_variables(kernel, self._settle)

        def run(*inputs: Any) -> Any:
            nonlocal kernel
            try:
                return kernel(*inputs)
            except Exception as error:
                if op.effects.stateful and isinstance(error, OpError):
                    raise
                instead = fatal_error(error)
                if instead is not None:
                    raise instead from error
                result = on_host(*inputs)
                kernel = on_host
                self.owner.host_fallbacks[op.name] = _error_summary(error)
                return result

        return run

    def _on_host(self, plan: NodePlan, kernel: Kernel) -> Kernel:
        """The kernel of the host, on values that come from the card."""
        move = self.lane.to_host

        def to_host(value: Any) -> Any:
            return map_contained(value, move)

        if not plan.op.effects.stateful:
            return lambda *inputs: kernel(*map(to_host, inputs))
        kernel = _with_local_variables(kernel, self.owner.home)
        return lambda step, *inputs: kernel(step, *map(to_host, inputs))

    def _settle(self, cell: Variable) -> None:
        """Bring a variable to where its kernels want it."""
        self.owner.cells.use(cell, self.lane)
        value = cell.value
        if cell.dtype is not int32 and isinstance(value, np.ndarray | np.generic):
            cell.value = self.lane.to_device(value)
        elif cell.dtype is int32:
            cell.value = self.lane.to_host(value)

    def _placed(self, plan: NodePlan, kernel: Kernel) -> Kernel:
        """A kernel whose results are where they belong; copies that the host waits for begin."""
        lane, array, outputs = self.lane, self.owner.card.array, _outputs(plan)
        if not outputs:
            return kernel
        hosts = [self.homes.is_host(item) for item in outputs]
        early = [item in self.early for item in outputs]

        def place(value: Any, host: bool, early: bool) -> Any:
            if host:
                return lane.to_host(value)
            if type(value) is not array:
                value = lane.to_device(value)
            if early and value.nbytes <= SMALL_COPY:
                lane.begin(value)
            return value

        if len(outputs) == 1:
            return _place_single_output(kernel, place, hosts[0], early[0], array)
        return lambda *inputs: tuple(map(place, kernel(*inputs), hosts, early))


def _place_single_output(
    kernel: Kernel, place: Callable[..., Any], host: bool, early: bool, array: type[Any]
) -> Kernel:
    if host or early:
        return lambda *inputs: place(kernel(*inputs), host, early)

    def run(*inputs: Any) -> Any:
        value = kernel(*inputs)
        return value if type(value) is array else place(value, host, early)

    return run


def _with_local_variables(kernel: Kernel, settle: Callable[[Variable], None]) -> Kernel:
    """A stateful kernel that finds variables where it computes, and leaves them there."""

    def run(step: Any, *inputs: Any) -> Any:
        for item in inputs:
            if isinstance(item, Variable):
                settle(item)
        result = kernel(step, *inputs)
        if isinstance(result, Variable):
            settle(result)
        return result

    return run


def _outputs(plan: NodePlan) -> list[Output]:
    return [plan.node.output(port) for port in range(plan.outputs)]


def _error_summary(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
