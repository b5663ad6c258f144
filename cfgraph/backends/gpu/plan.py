"""Plans bound to a real GPU: which nodes compute there, what is copied, and what the host runs.

References cannot be ordered this way, since a value is read before a kernel is queued: all
references to a variable are on one device.

A kernel that fails on the GPU runs on the host from then on, and its op is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cfgraph.analysis.resource_handles import is_variable, variable_key
from cfgraph.backends.gpu.context import GpuContext
from cfgraph.backends.gpu.kernels import (
    GpuTarget,
    bind_on_gpu,
    nothing_to_undo,
    undo_of_effects,
)
from cfgraph.backends.gpu.stream import SMALL_COPY, GpuStream, fatal_error
from cfgraph.errors import Unsupported
from cfgraph.ir.devices import is_gpu, short_device_name
from cfgraph.ir.dtypes import DType, int32, variant
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import RendezvousKey, rendezvous_key
from cfgraph.ops.families.constants import identity
from cfgraph.ops.families.optional import OptionalVariant
from cfgraph.ops.families.tensor_array import TensorArray
from cfgraph.ops.families.tensor_list import TensorList
from cfgraph.ops.families.variables import Variable
from cfgraph.ops.kernels.variant_math import map_objects
from cfgraph.ops.opdef.op import Kernel, OpError
from cfgraph.runtime.engine.plan import NodePlan, Plan
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.memory.placement import MemoryPlacement, is_host_arithmetic
from cfgraph.runtime.run_executor import GpuReport


def require_colocated_references(plans: Sequence[Plan], streams: Mapping[str, GpuStream]) -> None:
    """Raise Unsupported for a reference to a variable that is also used on another device.

    `streams` contains the run's streams by device; only variables on a real GPU are checked.
    """
    seen: dict[tuple[str, str], tuple[str, Node]] = {}
    for plan in plans:
        for node in plan.nodes:
            if not is_variable(node):
                continue
            device, first = seen.setdefault(variable_key(node), (plan.device, node))
            if device != plan.device and streams.keys() & {device, plan.device}:
                _require_handles(node, plan.device, first, device)


def _require_handles(node: Node, device: str, first: Node, first_device: str) -> None:
    if not any(
        dtype is not None and dtype.is_ref for dtype in (_handle_type(node), _handle_type(first))
    ):
        return
    name = variable_key(node)[1]
    message = (
        f"'{name}' is one variable for {node.op} '{node.name}' on {short_device_name(device)} and "
        f"{first.op} '{first.name}' on {short_device_name(first_device)}; "
        "a reference variable must stay on one device when a GPU is real"
    )
    hint = "put both on one device, or use handles (VarHandleOp)"
    raise Unsupported(
        message, node=node, device=short_device_name(device), hint=hint, code="CFG403"
    )


def _handle_type(node: Node) -> Any:
    return node.output().dtype


class SharedVariables:
    """Order of the kernels of several GPU devices that use one variable.

    `streams` contains the run's streams by device.
    """

    def __init__(self, context: GpuContext, streams: Mapping[str, GpuStream]) -> None:
        self._array, self._streams = context.array, streams
        # the last stream that used a variable, and the value that all devices have borrowed
        self._last: dict[Variable, GpuStream] = {}
        self._lent: dict[Variable, Any] = {}

    def use(self, variable: Variable, stream: GpuStream) -> None:
        """Order a kernel that reads or replaces a variable after the kernels of other devices."""
        if len(self._streams) < 2:
            return
        previous, self._last[variable] = self._last.get(variable, stream), stream
        if previous is stream:
            return
        stream.follow([previous])
        if type(variable.value) is self._array and self._lent.get(variable) is not variable.value:
            # any stream may be the last one to read it
            variable.value = self._lent[variable] = stream.lend(
                variable.value, [*self._streams.values()]
            )


def map_contained(value: Any, move: Callable[[Any], Any]) -> Any:
    """Apply `move` to a value, or to all elements of a container."""
    if isinstance(value, TensorList):
        elements = [None if x is None else map_contained(x, move) for x in value.all()]
        return value.replaced(elements)
    if isinstance(value, OptionalVariant):
        values = value.values
        if values is None:
            return value
        return OptionalVariant(tuple(map_contained(x, move) for x in values))
    if isinstance(value, np.ndarray) and value.dtype == object:
        return map_objects(lambda x: map_contained(x, move), value) if value.size else value
    return value if isinstance(value, bytes) else move(value)


def is_container(value: Any) -> bool:
    """True for a value that contains others."""
    if isinstance(value, np.ndarray):
        return bool(value.dtype.hasobject)
    return isinstance(value, TensorList | OptionalVariant)


Move = Callable[[Any], Any]


class GpuPlan:
    """Plans of a run bound to a GPU: `streams` and `placements` of its GPU devices.

    `host_fallbacks` maps ops whose kernels ran on the host to the reason.
    """

    def __init__(self, plans: Sequence[Plan], context: GpuContext) -> None:
        self.context = context
        self.host_fallbacks: dict[str, str] = {}
        self.streams: dict[str, GpuStream] = {}
        self.placements: dict[str, MemoryPlacement] = {}
        for plan in plans:
            if is_gpu(plan.device):
                self.streams[plan.device] = context.stream(short_device_name(plan.device))
                self.placements[plan.device] = MemoryPlacement(plan.nodes)
        require_colocated_references(plans, self.streams)
        self.shared_variables = SharedVariables(context, self.streams)
        # whether the receiver of a message reads it in host memory
        self._to_host: dict[RendezvousKey, bool] = {}
        for plan in plans:
            for node in plan.nodes_of_role(Role.RECV):
                self._to_host[rendezvous_key(node)] = self.is_host(plan, node.output())
        for plan in plans:
            if plan.device in self.streams:
                _GpuBinding(self, plan)
            else:
                self._host_plan(plan)

    def report(self, gpus: Sequence[str]) -> GpuReport:
        """The GPU, and the ops that ran on the host."""
        return GpuReport("real", gpus, self.context.name, self.host_fallbacks)

    def prepare_variables(self, state: State) -> None:
        """Leave variables where the last run had them; kernels move them to where they compute."""
        state.to_host = self.context.to_host
        self.order_streams()

    def order_streams(self) -> None:
        """Order the streams behind everything that earlier runs queued on any of them."""
        streams = self.context.streams()
        for stream in streams:
            stream.follow(streams)

    def is_host(self, plan: Plan, output: Output) -> bool:
        """True for an output in host memory."""
        placement = self.placements.get(plan.device)
        return placement is None or placement.is_host(output)

    def receive_kernel(self, node: Node, stream: GpuStream | None) -> Move:
        """The kernel of a Recv, which moves its message."""
        key = rendezvous_key(node)
        sender, to_host = self.streams.get(key.send_device), self._to_host[key]

        endpoint = stream or sender
        if endpoint is None:
            return identity

        def receive(message: Any) -> Any:
            if message is None or not is_container(message):
                return (
                    None if message is None else endpoint.collect(message, sender, to_host=to_host)
                )
            return map_contained(message, move_element)

        def move_element(element: Any) -> Any:
            """Move an element of a container to where its producer would have placed it."""
            hosts = stream is None or getattr(element, "dtype", None) == np.int32
            return endpoint.collect(element, sender, to_host=hosts)

        return receive

    def send_kernel(self, node: Node, stream: GpuStream) -> Move:
        """The kernel of a Send, which starts the transfer of its value."""
        to_host = self._to_host.get(rendezvous_key(node), True)
        return lambda value: stream.post(value, to_host=to_host)

    def move_to_host(self, resource: Variable | TensorArray) -> None:
        """Move a variable, or the elements of an array, to the host."""
        if isinstance(resource, TensorArray):
            resource.place(np, lambda value: map_contained(value, self.context.to_host))
        else:
            resource.value = self.context.to_host(resource.value)

    def _host_plan(self, plan: Plan) -> None:
        """Bind the plan of a CPU: messages come from the GPU, and variables may be there."""
        for node_plan in plan.nodes.values():
            if node_plan.op.role is Role.RECV:
                node_plan.kernel = self.receive_kernel(node_plan.node, None)
            elif node_plan.op.effects.stateful:
                node_plan.kernel = _with_local_variables(node_plan.kernel, self.move_to_host)


class _GpuBinding:
    """Binding of the plan of one GPU device."""

    def __init__(self, owner: GpuPlan, plan: Plan) -> None:
        self.owner, self.plan = owner, plan
        self.stream, self.placement = owner.streams[plan.device], owner.placements[plan.device]
        self.prefetched: set[Output] = set()
        for node_plan in plan.nodes.values():
            node_plan.moves = tuple(self._moves(node_plan))
        for node_plan in plan.nodes.values():
            node_plan.kernel = self._kernel(node_plan)

    def _moves(self, plan: NodePlan) -> list[tuple[int, Move]]:
        """The copies that move the inputs of a node to the memory it reads them from."""
        node, role, moves = plan.node, plan.op.role, list[tuple[int, Move]]()
        if role is Role.SEND:
            return [(plan.base, self.owner.send_kernel(node, self.stream))]
        for slot, output in enumerate(node.inputs):
            merges = role is Role.MERGE
            needs_host = (
                self.placement.is_host(node.output())
                if merges
                else self.placement.needs_host(node, slot)
            )
            # a dereferenced variable is where it was written last
            is_local = slot not in plan.deref_slots and needs_host is self.placement.is_host(output)
            if needs_host is None or is_local or slot in plan.forwarded_slots:
                continue
            moves.append(
                (plan.base + slot, self.stream.to_host if needs_host else self.stream.to_device)
            )
            if needs_host:
                self.prefetched.add(output)
        return moves

    def _kernel(self, plan: NodePlan) -> Kernel:
        node, op = plan.node, plan.op
        if op.role is Role.RECV:
            return self.owner.receive_kernel(node, self.stream)
        if op.role or op.aliasing.is_identity:
            return plan.kernel
        if not node.inputs and not op.effects.stateful:
            return self._constant(plan)
        if _is_plain_host_arithmetic(plan):
            return plan.kernel
        plan.is_on_device = True
        if plan.gpu_kernel is not None:
            kernel = _with_local_variables(plan.gpu_kernel(GpuTarget(self.stream)), self._localize)
        elif op.calls.kind or not self._runs_on_gpu(plan):
            kernel = self._host_kernel(plan, plan.kernel)
        elif op.algebra.shape_only or op.placement.host_only or op.placement.swap_role:
            kernel = plan.kernel
        else:
            kernel = self._with_fallback(plan)
        return self._with_output_copies(plan, kernel)

    def _runs_on_gpu(self, plan: NodePlan) -> bool:
        """True if the GPU supports all dtypes of a node."""
        types = [
            *(plan.node.input_types or ()),
            *(plan.node.output_types or ()),
        ]
        return all(dtype.is_object or dtype.is_ref or self._is_supported(dtype) for dtype in types)

    def _is_supported(self, dtype: DType) -> bool:
        return self.owner.context.supports(np.dtype(dtype.numpy))

    def _constant(self, plan: NodePlan) -> Kernel:
        """A constant that is copied to the GPU once, on first use."""
        if self.placement.is_host(plan.node.output()):
            return plan.kernel
        kernel, known = plan.kernel, list[Any]()

        def constant() -> Any:
            if not known:
                known.append(self.stream.to_device(kernel()))
            return known[0]

        return constant

    def _with_fallback(self, plan: NodePlan) -> Kernel:
        """The GPU kernel, replaced by the host kernel if it fails and that one succeeds."""
        op, node, xp = plan.op, plan.node, self.owner.context.xp
        host_kernel = self._host_kernel(plan, plan.kernel)
        all_host = all(self.placement.needs_host(node, slot) for slot in range(len(node.inputs)))
        kernel = plan.kernel
        if all_host and all(map(self.placement.is_host, _outputs(plan))):
            # variants, and variables, may hold arrays of the GPU
            if not op.effects.stateful and variant not in (node.input_types or []):
                return kernel
        else:
            try:
                kernel = bind_on_gpu(node, op, xp)
            except Exception as error:
                self.owner.host_fallbacks[op.name] = _error_summary(error)
                return host_kernel
        if op.effects.stateful:
            kernel = _with_local_variables(kernel, self._localize)

        may_have_effects = op.effects.stateful or not _has_plain_inputs(plan)

        def run(*inputs: Any) -> Any:
            nonlocal kernel
            undo = undo_of_effects(inputs) if may_have_effects else nothing_to_undo
            try:
                return kernel(*inputs)
            except Exception as error:
                if op.effects.stateful and isinstance(error, OpError):
                    raise
                fatal = fatal_error(error)
                if fatal is not None:
                    raise fatal from error
                undo()
                result = host_kernel(*inputs)
                kernel = host_kernel
                self.owner.host_fallbacks[op.name] = _error_summary(error)
                return result

        return run

    def _host_kernel(self, plan: NodePlan, kernel: Kernel) -> Kernel:
        """The host kernel, on inputs that are copied to the host."""
        move = self.stream.to_host

        def to_host(value: Any) -> Any:
            return map_contained(value, move)

        if not plan.op.effects.stateful:
            return lambda *inputs: kernel(*map(to_host, inputs))
        kernel = _with_local_variables(kernel, self.owner.move_to_host)
        return lambda step, *inputs: kernel(step, *map(to_host, inputs))

    def _localize(self, variable: Variable | TensorArray) -> None:
        """Move a variable, or the elements of an array, to where its kernels compute."""
        if isinstance(variable, TensorArray):
            stays = variable.dtype is int32
            variable.place(self.owner.context.xp, identity if stays else self._contained_to_device)
            return
        self.owner.shared_variables.use(variable, self.stream)
        value = variable.value
        if variable.dtype is not int32 and isinstance(value, np.ndarray | np.generic):
            variable.value = self.stream.to_device(value)
        elif variable.dtype is int32:
            variable.value = self.stream.to_host(value)

    def _contained_to_device(self, value: Any) -> Any:
        return map_contained(value, self.stream.to_device)

    def _with_output_copies(self, plan: NodePlan, kernel: Kernel) -> Kernel:
        """A kernel whose outputs are placed; copies that the host waits for start at once."""
        stream, array, outputs = self.stream, self.owner.context.array, _outputs(plan)
        if not outputs:
            return kernel
        hosts = [self.placement.is_host(output) for output in outputs]
        prefetched = [output in self.prefetched for output in outputs]

        def deliver(value: Any, host: bool, prefetched: bool) -> Any:
            if host:
                return stream.to_host(value)
            if type(value) is not array:
                value = stream.to_device(value)
            if prefetched and value.nbytes <= SMALL_COPY:
                stream.start_copy(value)
            return value

        if len(outputs) == 1:
            return _place_single_output(kernel, deliver, hosts[0], prefetched[0], array)
        return lambda *inputs: tuple(map(deliver, kernel(*inputs), hosts, prefetched))


def _place_single_output(
    kernel: Kernel, deliver: Callable[..., Any], host: bool, prefetched: bool, array: type[Any]
) -> Kernel:
    if host or prefetched:
        return lambda *inputs: deliver(kernel(*inputs), host, prefetched)

    def run(*inputs: Any) -> Any:
        value = kernel(*inputs)
        return value if type(value) is array else deliver(value, host, prefetched)

    return run


def _with_local_variables(
    kernel: Kernel, localize: Callable[[Variable | TensorArray], None]
) -> Kernel:
    """A stateful kernel that first moves its variables and arrays to where it computes."""

    def run(step: Any, *inputs: Any) -> Any:
        for value in inputs:
            if isinstance(value, Variable | TensorArray):
                localize(value)
        result = kernel(step, *inputs)
        if isinstance(result, Variable):
            localize(result)
        return result

    return run


def _has_plain_inputs(plan: NodePlan) -> bool:
    """True for a node that reads numbers alone: no handles, references, and containers."""
    types = plan.node.input_types
    return types is not None and not any(dtype.is_object or dtype.is_ref for dtype in types)


def _is_plain_host_arithmetic(plan: NodePlan) -> bool:
    """True for int32 arithmetic, whose kernel needs no copies: inputs are in host memory."""
    op, node = plan.op, plan.node
    return (
        not op.effects.stateful
        and not op.calls.kind
        and _has_plain_inputs(plan)
        and not any(dtype.is_object for dtype in node.output_types or ())
        and is_host_arithmetic(node, op)
    )


def _outputs(plan: NodePlan) -> list[Output]:
    return [plan.node.output(port) for port in range(plan.outputs)]


def _error_summary(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
