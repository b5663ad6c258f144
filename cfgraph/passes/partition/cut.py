"""Cut every edge that crosses devices: one _Send/_Recv pair per tensor and destination.

        x on A --> y on B            x --> Send (A)        Recv (B) --> y

        x on A --^ y on B            x --^ Const --> Send (A)      Recv --> Identity (B) --^ y

The Identity is needed because a _Recv that receives a dead message is itself live. If an output of
x is sent to B anyway and is live when x is, the Identity reads that and nothing more is sent. An
Enter and a NextIteration send nothing: each device that reads one has a copy, so that its input
crosses once in its own frame, however many loops it enters. In a loop, a _Recv waits for the driver
of the loop on its device, and a _Send for the control loop there, because its input may never
change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cfgraph.analysis.loops.frames import Frame
from cfgraph.ir.dtypes import DType, float32
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.passes.partition.control_loops import CONTROL_TOKEN, AddedNodes, ControlLoops
from cfgraph.passes.partition.device_crossings import COPIED_ROLES, DeviceCrossings, NodeDevices
from cfgraph.passes.partition.distributed_loops import DistributedLoops
from cfgraph.passes.partition.local_control_edges import LocalControlEdges

# 0 would be refused: it stands for a device that is not there
INCARNATION: Final = 1
# an output of these can be dead when the node is live
_PARTLY_DEAD_ROLES: Final = frozenset({Role.SWITCH, Role.RECV})


class EdgeCutter:
    """Makes what crosses; the edges of the old nodes are changed in the end, by `apply`."""

    def __init__(
        self, graph: Graph, where: NodeDevices, loops: DistributedLoops, crossings: DeviceCrossings
    ) -> None:
        self.graph = graph
        self.where = where
        self.loops = loops
        self.crossings = crossings
        self.maker = AddedNodes(graph)
        self.control_loops = ControlLoops(self.maker, loops, where, self.at)
        self.ties = LocalControlEdges(graph, self.maker, loops, self.control_loops)
        self.pairs: list[tuple[Node, Frame]] = []
        self._recvs: dict[tuple[Output, str], Output] = {}
        self._waits: dict[tuple[Node, str], Node] = {}
        self._copies: dict[tuple[Node, str], Node] = {}
        self._alive: dict[tuple[Node, str], Output] = {}

    def cut(self) -> None:
        """Cut all edges that cross."""
        self.control_loops.add_control_loops()
        readers = self.crossings.readers
        edges = [self._edges(node) for node in readers]
        for node, (inputs, controls) in zip(readers, edges, strict=True):
            self.graph.connect(node, inputs, controls)

    def _edges(self, node: Node) -> tuple[list[Output], list[Node]]:
        """What a node reads and waits for on its own device."""
        device = self.where[node]
        inputs = [self._input(item, device, node) for item in node.inputs]
        return inputs, self._controls(node, device)

    def _input(self, item: Output, device: str, reader: Node) -> Output:
        dtype = self.crossings.types.get(item)
        if dtype is not None and dtype.is_ref and self.where[item.node] != device:
            return self._read_reference(item, dtype, device, reader)
        return self.at(item, device)

    def _controls(self, node: Node, device: str) -> list[Node]:
        found: list[Node] = []
        for control in node.controls:
            if self.where[control] == device:
                found.append(control)
            else:
                found.extend(self._local_waits(control, device, node))
        return found

    # -- data ------------------------------------------------------------------------------------

    def at(self, item: Output, device: str) -> Output:
        """A tensor as it is found on a device."""
        source = item.node
        if self.where[source] == device:
            return item
        if self.loops.roles[source.op] in COPIED_ROLES:
            return self._copy(source, device).output()
        known = self._recvs.get((item, device))
        if known is None:
            dtype = self.crossings.types.get(item) or _known_dtype(item)
            frame = self.loops.found.of_outputs[source]
            known = self._send(item, self.where[source], device, dtype.base, frame, source)
            self._recvs[item, device] = known
        return known

    def _send(
        self,
        item: Output,
        source: str,
        device: str,
        dtype: DType,
        frame: Frame,
        of: Node,
        controls: Iterable[Node] = (),
    ) -> Output:
        """A pair of Send and Recv in a frame; what is received. It concerns the node `of`."""
        name = item.node.name
        key = {
            "tensor_name": f"edge_{len(self.pairs)}_{of.name}".encode(),
            "send_device": source.encode(),
            "send_device_incarnation": INCARNATION,
            "recv_device": device.encode(),
            "client_terminated": False,
        }
        drivers = self._driver(frame, source)
        waits = (*controls, *drivers)
        send = self.maker.make(f"{name}/send", "_Send", source, (item,), waits, T=dtype, **key)
        self.maker.beside.setdefault(of, []).append(send)
        self.pairs.append((send, frame))
        gates = () if frame.parent is None else (self.control_loops.gate(frame, device),)
        recv = self.maker.make(f"{name}/recv", "_Recv", device, (), gates, tensor_type=dtype, **key)
        return recv.output()

    def _driver(self, frame: Frame, device: str) -> tuple[Node, ...]:
        """What a Send waits for, so that no run goes without the control loop that repeats it."""
        if frame.parent is None:
            return ()
        gate = self.control_loops.gate(frame, device)
        return (gate,) if self.control_loops.is_control_loop(frame, device) else ()

    def _copy(self, node: Node, device: str) -> Node:
        """An Enter or a NextIteration on another device, with all that enters before it."""
        chain = []
        while self.where[node] != device and (node, device) not in self._copies:
            chain.append(node)
            source = node.inputs[0].node
            if self.loops.roles[source.op] not in COPIED_ROLES:
                break
            node = source
        for each in reversed(chain):
            attrs = {key: value for key, value in each.attrs.items() if key != "_class"}
            inputs = [self.at(item, device) for item in each.inputs]
            controls = self._controls(each, device)
            self._copies[each, device] = self.maker.make(
                each.name, each.op, device, inputs, controls, **attrs
            )
        return self._copies[chain[0] if chain else node, device]

    def _read_reference(self, item: Output, dtype: DType, device: str, reader: Node) -> Output:
        """The value of a reference, read when all else that the reader waits for is there."""
        source = self.where[item.node]
        before = [other.node for other in reader.inputs if other.node is not item.node]
        waits: list[Node] = []
        for node in dict.fromkeys([*before, *reader.controls]):
            if node.inputs or node.controls:
                here = self.where[node] == source
                waits.extend([node] if here else self._local_waits(node, source, reader))
        frame = self.loops.found.of_outputs[item.node]
        return self._send(item, source, device, dtype.base, frame, item.node, waits)

    # -- order -----------------------------------------------------------------------------------

    def _local_waits(self, node: Node, device: str, reader: Node) -> list[Node]:
        """What `reader` waits for on a device, for a node that is on another."""
        if self.loops.roles[node.op] in COPIED_ROLES:
            return [self._copy(node, device)]
        local = self.ties.local(node, device, reader, self._entry_tensor)
        return [self._wait(node, device)] if local is None else local

    def _wait(self, node: Node, device: str) -> Node:
        """An Identity on a device that is live when the node, which is on another, is."""
        known = self._waits.get((node, device))
        if known is not None:
            return known
        carrier = self.crossings.carriers.get((node, device))
        if carrier is not None:
            dtype, recv = self.crossings.types[carrier], self.at(carrier, device)
        else:
            frame = self.loops.found.of_outputs[node]
            dtype = float32
            recv = self._send_token(node, self.where[node], device, frame)
        wait = self.maker.make(f"{node.name}/wait", "Identity", device, (recv,), T=dtype)
        self._waits[node, device] = wait
        return wait

    def _send_token(self, node: Node, source: str, device: str, frame: Frame) -> Output:
        """An empty tensor that goes to a device, live if the node is."""
        name = f"{node.name}/ctrl"
        token = self.maker.make(
            name, "Const", source, (), (node,), dtype=float32, value=CONTROL_TOKEN
        )
        self.maker.beside.setdefault(node, []).append(token)
        return self._send(token.output(), source, device, float32, frame, node)

    # -- whether a loop is entered alive ---------------------------------------------------------

    def _entry_tensor(self, enter: Node, device: str) -> Output:
        """A constant tensor in a loop on a device, live if `enter` is."""
        known = self._alive.get((enter, device))
        if known is None:
            outside = self._outer_entry_tensor(enter.inputs[0], device)
            attrs = {key: value for key, value in enter.attrs.items() if key != "_class"}
            attrs |= {"T": _known_dtype(outside), "is_constant": True}
            controls = self._controls(enter, device)
            name = f"{enter.name}/alive"
            made = self.maker.make(name, "Enter", device, (outside,), controls, **attrs)
            known = self._alive[enter, device] = made.output()
        return known

    def _outer_entry_tensor(self, item: Output, device: str) -> Output:
        """A tensor on a device that is live if `item` is."""
        source, role = item.node, self.loops.roles[item.node.op]
        here = self.where[source]
        dtype = _known_dtype(item)
        if role in COPIED_ROLES or (here == device and not dtype.is_ref):
            return self.at(item, device)
        if role not in _PARTLY_DEAD_ROLES:
            return self._wait(source, device).output()
        frame = self.loops.found.of_outputs[source]
        live = self.maker.make(f"{source.name}/live", "Identity", here, (item,), T=dtype.base)
        return self._send_token(live, here, device, frame)


def _known_dtype(item: Output) -> DType:
    dtype = item.dtype
    assert dtype is not None, item
    return dtype
