"""Cut every edge that crosses devices: one _Send/_Recv pair per tensor and destination.

A node controlled by the pivot of the body (an Identity of a Switch on the predicate) is controlled
by the same side of the local driver; a node controlled by the Merge of a loop variable is
controlled by the local pivot Merge. The first is as live, and as late, as the original if the
LoopCond depends on that variable. The pivot Merge of a control loop is live even if the loop is
entered dead, and it waits for no variable. A constant Enter therefore carries the liveness of the
loop, and an edge that may order side effects still crosses.

        x on A --> y on B            x --> Send (A)        Recv (B) --> y

        x on A --^ y on B            x --^ Const --> Send (A)      Recv --> Identity (B) --^ y

The Identity is needed because a _Recv that receives a dead message is itself live. If an output of
x is sent to B anyway and is live when x is, the Identity reads that and nothing more is sent. An
Enter and a NextIteration send nothing: each device that reads one has a copy, so that its input
crosses once in its own frame, however many loops it enters. In a loop, a _Recv waits for the driver
of the loop on its device, and a _Send for the control loop there, because its input may never
change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from cfgraph.analysis.loops.frame import Frame
from cfgraph.ir.colocation import without_groups
from cfgraph.ir.dtypes import DType, float32
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import downstream, upstream
from cfgraph.limits import check_deadline
from cfgraph.ops.opdef.op import has_effect, makes_handle, may_write, role_of
from cfgraph.passes.partition.control_loops import (
    CONTROL_TOKEN,
    AddedNodes,
    ControlLoops,
    DistributedLoops,
)
from cfgraph.passes.partition.device_crossings import COPIED_ROLES, DeviceCrossings, NodeDevices

EntryTensorOnDevice = Callable[[Node, str], Output]


class LocalControlEdges:
    """Local replacements for control edges from another device."""

    def __init__(self, graph: Graph, loops: DistributedLoops, control_loops: ControlLoops) -> None:
        self._graph = graph
        self._loops = loops
        self._control_loops = control_loops
        self._effects: EffectReachability | None = None

    def replacements(
        self, node: Node, device: str, reader: Node, entry_tensor: EntryTensorOnDevice
    ) -> list[Node] | None:
        """Return local control inputs of `reader` instead of `node`, None if the edge must cross.

        `entry_tensor(enter, device)` is a constant tensor in the loop that is live if `enter` is.
        """
        frame = self._loops.frames.of[node]
        if frame.parent is None:
            return None
        if self._loops.is_variable(node):
            return self._for_variable(node, frame, device, reader, entry_tensor)
        pivot = self._loops.pivot(node)
        if pivot is None:
            return None
        merge = pivot.node.inputs[0].node
        is_early = self._control_loops.is_before_condition(merge, frame)
        if not is_early and self._are_ordered(merge, reader):
            return None
        return [self._control_loops.pivot_branch(frame, device, pivot.port)]

    def _for_variable(
        self,
        merge: Node,
        frame: Frame,
        device: str,
        reader: Node,
        entry_tensor: EntryTensorOnDevice,
    ) -> list[Node] | None:
        if self._are_ordered(merge, reader):
            return None
        conditions, pivot = self._loops.conditions, self._control_loops.pivot_merge(frame, device)
        is_variable = not self._control_loops.is_control_loop(frame, device)
        available = conditions.of_node(pivot) if is_variable else conditions.none
        required = conditions.of_node(merge)
        if available is required:
            return [pivot]
        if not required.implies(available):
            return None
        enter = next(t.node for t in merge.inputs if ROLES[t.node.op] is Role.ENTER)
        return [pivot, entry_tensor(enter, device).node]

    def _are_ordered(self, first: Node, second: Node) -> bool:
        if self._effects is None:
            self._effects = EffectReachability(self._graph)
        return self._effects.are_ordered(first, second)


class EffectReachability:
    """Nodes downstream of an effect, and nodes upstream of one, in any iteration of a loop."""

    def __init__(self, graph: Graph) -> None:
        stateful = [node for node in graph if _touches_state(node)]
        if not any(map(may_write, stateful)):
            stateful = []
        self._downstream, self._upstream = downstream(stateful), upstream(stateful)

    def are_ordered(self, first: Node, second: Node) -> bool:
        """Return true if a path from `first` to `second` may order two effects."""
        return first in self._downstream and second in self._upstream


def _touches_state(node: Node) -> bool:
    """Return true for nodes with effects, and for references, which any node may read."""
    if role_of(node):
        return False
    return has_effect(node) or (makes_handle(node) and _has_reference(node))


def _has_reference(node: Node) -> bool:
    return any(dtype.is_ref for dtype in node.output_types or ())


# TensorFlow rejects 0, which stands for an unknown device
INCARNATION: Final = 1
# an output of a node with such a role can be dead when the node is live
_PARTLY_DEAD_ROLES: Final = frozenset({Role.SWITCH, Role.RECV})


class EdgeCutter:
    """Cuts the edges of one graph; existing nodes are rewired after all new ones are added."""

    def __init__(
        self,
        graph: Graph,
        device_of: NodeDevices,
        loops: DistributedLoops,
        crossings: DeviceCrossings,
        fan_out: int | None,
    ) -> None:
        self.graph = graph
        self.device_of = device_of
        self.loops = loops
        self.crossings = crossings
        self.fan_out = fan_out
        self.added = AddedNodes(graph)
        self.control_loops = ControlLoops(self.added, loops, device_of, self.on_device)
        self.local_control_edges = LocalControlEdges(graph, loops, self.control_loops)
        self.pairs: list[tuple[Node, Frame]] = []
        self._received: dict[tuple[Output, str], Output] = {}
        self._senders: dict[Frame, dict[str, str]] = {}
        self._waits: dict[tuple[Node, str], Node] = {}
        self._copies: dict[tuple[Node, str], Node] = {}
        self._entry_tensors: dict[tuple[Node, str], Output] = {}

    def cut(self) -> None:
        """Cut all edges that cross devices."""
        self.control_loops.add_control_loops()
        readers = self.crossings.readers
        edges = [self._local_edges(node) for node in readers]
        for node, (inputs, controls) in zip(readers, edges, strict=True):
            check_deadline()
            self.graph.connect(node, inputs, controls)

    def _local_edges(self, node: Node) -> tuple[list[Output], list[Node]]:
        """Return the inputs and control inputs of a node on its own device."""
        device = self.device_of[node]
        inputs = [self._local_input(tensor, device, node) for tensor in node.inputs]
        return inputs, self._local_controls(node, device)

    def _local_input(self, tensor: Output, device: str, reader: Node) -> Output:
        dtype = self.crossings.types.get(tensor)
        if dtype is not None and dtype.is_ref and self.device_of[tensor.node] != device:
            return self._dereferenced(tensor, dtype, device, reader)
        return self.on_device(tensor, device)

    def _local_controls(self, node: Node, device: str) -> list[Node]:
        controls: list[Node] = []
        for control in node.controls:
            if self.device_of[control] == device:
                controls.append(control)
            else:
                controls.extend(self._control_on_device(control, device, node))
        return controls

    # -- data ------------------------------------------------------------------------------------

    def on_device(self, tensor: Output, device: str) -> Output:
        """Return a tensor as it is available on a device, after adding a message if necessary."""
        source = tensor.node
        if self.device_of[source] == device:
            return tensor
        if ROLES[source.op] in COPIED_ROLES:
            return self._copy(source, device).output()
        known = self._received.get((tensor, device))
        if known is None:
            dtype = self.crossings.types.get(tensor) or _known_dtype(tensor)
            frame = self.loops.frames.of_outputs[source]
            sender = self._sender(tensor, frame, device)
            local = self.on_device(tensor, sender)
            known = self._send(local, sender, device, dtype.base, frame, source)
            self._received[tensor, device] = known
        return known

    def _sender(self, tensor: Output, frame: Frame, device: str) -> str:
        """Return the device that sends a tensor to another one.

        Its own, except for the predicate of a loop: with a fan-out, the devices of the loop are a
        tree in which each sends to at most that many.
        """
        source = tensor.node
        if self.fan_out is None or ROLES[source.op] is not Role.LOOP_COND:
            return self.device_of[source]
        senders = self._senders.get(frame)
        if senders is None:
            devices = self.control_loops.devices.get(frame, [])
            senders = self._senders[frame] = {
                name: devices[(number - 1) // self.fan_out]
                for number, name in enumerate(devices)
                if number
            }
        return senders.get(device, self.device_of[source])

    def _send(
        self,
        tensor: Output,
        source: str,
        device: str,
        dtype: DType,
        frame: Frame,
        origin: Node,
        controls: Iterable[Node] = (),
    ) -> Output:
        """Add a _Send/_Recv pair in a frame for an edge from `origin`; return the output."""
        name, add = tensor.node.name, self.added.add
        key = {
            "tensor_name": f"edge_{len(self.pairs)}_{origin.name}".encode(),
            "send_device": source.encode(),
            "send_device_incarnation": INCARNATION,
            "recv_device": device.encode(),
            "client_terminated": False,
        }
        waits = (*controls, *self._send_controls(frame, source))
        send = add(f"{name}/send", "_Send", source, (tensor,), waits, T=dtype, **key)
        if self.device_of.get(origin, source) == source:
            self.added.send_nodes.setdefault(origin, []).append(send)
        self.pairs.append((send, frame))
        pivots = () if frame.parent is None else (self.control_loops.pivot_merge(frame, device),)
        recv = add(f"{name}/recv", "_Recv", device, (), pivots, tensor_type=dtype, **key)
        return recv.output()

    def _send_controls(self, frame: Frame, device: str) -> tuple[Node, ...]:
        """Return the driver that a _Send must wait for, so that pruning keeps the control loop."""
        if frame.parent is None:
            return ()
        pivot = self.control_loops.pivot_merge(frame, device)
        return (pivot,) if self.control_loops.is_control_loop(frame, device) else ()

    def _copy(self, node: Node, device: str) -> Node:
        """Copy an Enter or NextIteration to a device, with the ones that it reads."""
        chain = []
        while self.device_of[node] != device and (node, device) not in self._copies:
            check_deadline()
            chain.append(node)
            source = node.inputs[0].node
            if ROLES[source.op] not in COPIED_ROLES:
                break
            node = source
        for each in reversed(chain):
            attrs = without_groups(each.attrs)
            inputs = [self.on_device(tensor, device) for tensor in each.inputs]
            controls = self._local_controls(each, device)
            self._copies[each, device] = self.added.add(
                each.name, each.op, device, inputs, controls, **attrs
            )
        return self._copies[chain[0] if chain else node, device]

    def _dereferenced(self, tensor: Output, dtype: DType, device: str, reader: Node) -> Output:
        """Send the value of a reference, read once all else that the reader waits for is done."""
        source = self.device_of[tensor.node]
        inputs = [each.node for each in reader.inputs if each.node is not tensor.node]
        waits: list[Node] = []
        for node in dict.fromkeys([*inputs, *reader.controls]):
            if node.inputs or node.controls:
                is_local = self.device_of[node] == source
                waits.extend([node] if is_local else self._control_on_device(node, source, reader))
        frame = self.loops.frames.of_outputs[tensor.node]
        return self._send(tensor, source, device, dtype.base, frame, tensor.node, waits)

    # -- control edges ---------------------------------------------------------------------------

    def _control_on_device(self, node: Node, device: str, reader: Node) -> list[Node]:
        """Return nodes on `device` that replace `node` as control inputs of `reader`.

        Adds a copy of `node`, a control loop, or a message where no such node exists yet.
        """
        if self.crossings.is_copied(node):
            return [self._copy(node, device)]
        if ROLES[node.op] is Role.ENTER and node.attrs.get("is_constant"):
            return [self._entry_tensor(node, device).node]
        local = self.local_control_edges.replacements(node, device, reader, self._entry_tensor)
        return [self._wait(node, device)] if local is None else local

    def _wait(self, node: Node, device: str) -> Node:
        """Return an Identity on a device that is live when a node on another device is."""
        known = self._waits.get((node, device))
        if known is not None:
            return known
        carrier = self.crossings.carriers.get((node, device))
        if carrier is not None:
            dtype, recv = self.crossings.types[carrier], self.on_device(carrier, device)
        else:
            frame = self.loops.frames.of_outputs[node]
            dtype = float32
            recv = self._send_token(node, self.device_of[node], device, frame)
        wait = self.added.add(f"{node.name}/wait", "Identity", device, (recv,), T=dtype)
        self._waits[node, device] = wait
        return wait

    def _send_token(self, node: Node, source: str, device: str, frame: Frame) -> Output:
        """Send an empty tensor that is live if the node is."""
        name = f"{node.name}/ctrl"
        token = self.added.add(
            name, "Const", source, (), (node,), dtype=float32, value=CONTROL_TOKEN
        )
        self.added.send_nodes.setdefault(node, []).append(token)
        return self._send(token.output(), source, device, float32, frame, node)

    # -- liveness of loop entries ----------------------------------------------------------------

    def _entry_tensor(self, enter: Node, device: str) -> Output:
        """Return a constant tensor in a loop on a device that is live if `enter` is."""
        known = self._entry_tensors.get((enter, device))
        if known is None:
            outer = self._outer_entry_tensor(enter.inputs[0], device)
            attrs = without_groups(enter.attrs) | {"T": _known_dtype(outer), "is_constant": True}
            controls = self._local_controls(enter, device)
            name = f"{enter.name}/alive"
            node = self.added.add(name, "Enter", device, (outer,), controls, **attrs)
            known = self._entry_tensors[enter, device] = node.output()
        return known

    def _outer_entry_tensor(self, tensor: Output, device: str) -> Output:
        """Return a tensor on a device that is live if `tensor` is."""
        source, role = tensor.node, ROLES[tensor.node.op]
        source_device = self.device_of[source]
        dtype = _known_dtype(tensor)
        if source_device == device and not dtype.is_ref:
            return self.on_device(tensor, device)
        if role in COPIED_ROLES and not dtype.is_handle:
            return self.on_device(tensor, device)
        if role not in _PARTLY_DEAD_ROLES:
            return self._wait(source, device).output()
        frame = self.loops.frames.of_outputs[source]
        name = f"{source.name}/live"
        live = self.added.add(name, "Identity", source_device, (tensor,), T=dtype.base)
        return self._send_token(live, source_device, device, frame)


def _known_dtype(tensor: Output) -> DType:
    dtype = tensor.dtype
    assert dtype is not None, tensor
    return dtype
