"""Partitions of a graph: the nodes on each device, and the messages between devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated

from cfgraph.analysis.loops.frame import Frames
from cfgraph.analysis.loops.frames import frames
from cfgraph.ir.devices import is_simulated, short_device_name
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import RendezvousKey, rendezvous_key, transfers
from cfgraph.ir.units import format_byte_size
from cfgraph.ops.shape_inference import StaticShapes, infer_shapes
from cfgraph.reports import Column, Count, Record

# of Sends and Recvs, in graph order
TransferKeys = Mapping[Node, RendezvousKey]


class DevicePartition(Record):
    """A device: its nodes, its control loops, and the messages that it sends.

    `control_loops` are the paths of loops that it executes without their LoopCond; `once` and
    `iteration` count the messages sent outside loops, and in one iteration of each loop. It is
    `simulated` if no machine has it.
    """

    device: str
    nodes: Count
    control_loops: tuple[str, ...]  #: The loops that the device drives by a message an iteration.
    once: Count  #: Messages that it sends once.
    iteration: Count  #: Messages that it sends in each iteration.
    simulated: bool


class MessageRoute(Record):
    """The messages from one device to another in one frame (`/` is outside loops).

    `bytes` is the sum of the static sizes, `unknown` the number of other messages.
    """

    source: Annotated[str, Column("from", style="cyan", cell=short_device_name)]
    target: Annotated[str, Column("to", style="cyan", cell=short_device_name)]
    frame: Annotated[
        str, Column(title="loop", cell=lambda frame: "once" if frame == "/" else frame)
    ]
    messages: Count
    bytes: Count  #: Of those whose size is known.
    unknown: Count  #: Messages of unknown size.

    @property
    def loop(self) -> str:
        """The path of the loop, in words."""
        return "once" if self.frame == "/" else self.frame

    @property
    def size(self) -> Annotated[str, Column(title="bytes", right=True)]:
        """The static sizes as text."""
        if not self.unknown:
            return str(self.bytes)
        return f"{self.bytes} + ?" if self.bytes else "?"


class SentTensor(Record):
    """A tensor that one device sends to another, with its size if that is known."""

    tensor: Annotated[str, Column(style="cyan", names=True, scoped=True)]
    source: Annotated[str, Column("from", cell=short_device_name)]
    target: Annotated[str, Column("to", cell=short_device_name)]
    bytes: Count | None

    @property
    def size(self) -> Annotated[str, Column(title="bytes", right=True)]:
        """The size as text."""
        return "?" if self.bytes is None else format_byte_size(self.bytes)


@dataclass(frozen=True, slots=True)
class Partitions:
    """Devices in sorted order, the routes between them, and the tensors sent, large ones first.

    A graph that is not partitioned has neither routes nor sent tensors. `missing` has the names of
    what is received from each device that has no nodes here.
    """

    parts: tuple[DevicePartition, ...]
    routes: tuple[MessageRoute, ...]
    tensors: tuple[SentTensor, ...]
    missing: Mapping[str, tuple[str, ...]]


def device_partitions(graph: Graph, graph_frames: Frames | None = None) -> Partitions:
    """Summarize the partitions of a graph; a graph that is not partitioned has no routes."""
    graph_frames = frames(graph) if graph_frames is None else graph_frames
    keys = {node: rendezvous_key(node) for node in transfers(graph)}
    sizes = _message_sizes(graph, keys)
    routes = _routes(sizes, keys, graph_frames)
    nodes = Counter(node.device for node in graph)
    once, iteration = Counter[str](), Counter[str]()
    for route in routes:
        (once if route.frame == graph_frames.root.path else iteration)[route.source] += (
            route.messages
        )
    loops = _control_loops(graph_frames)
    return Partitions(
        tuple(
            DevicePartition(
                device,
                nodes[device],
                loops.get(device, ()),
                once[device],
                iteration[device],
                is_simulated(device),
            )
            for device in sorted(nodes)
        ),
        routes,
        tuple(sorted((_sent_tensor(n, keys[n], sizes[n]) for n in sizes), key=_by_size)),
        _missing_parts({keys[send] for send in sizes}, keys, nodes),
    )


def _missing_parts(
    sent: Collection[RendezvousKey], keys: TransferKeys, devices: Collection[str]
) -> dict[str, tuple[str, ...]]:
    unsent = [key for key in keys.values() if key not in sent]
    absent = dict.fromkeys(key.send_device for key in unsent if key.send_device not in devices)
    return {
        device: tuple(dict.fromkeys(key.sent_name for key in unsent if key.send_device == device))
        for device in absent
    }


def _sent_tensor(send: Node, key: RendezvousKey, size: int | None) -> SentTensor:
    return SentTensor(send.inputs[0].name, key.send_device, key.recv_device, size)


def _by_size(sent: SentTensor) -> tuple[int, str, str, str]:
    return -(sent.bytes or 0), sent.tensor, sent.source, sent.target


def _routes(
    sizes: Mapping[Node, int | None], keys: TransferKeys, graph_frames: Frames
) -> tuple[MessageRoute, ...]:
    path_of = {frame: frame.path for frame in graph_frames.all}
    count, size = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
    unknown = Counter[tuple[str, str, str]]()
    for node, known in sizes.items():
        key = keys[node]
        route = (key.send_device, key.recv_device, path_of[graph_frames.of[node]])
        count[route] += 1
        if known is None:
            unknown[route] += 1
        else:
            size[route] += known
    return tuple(
        MessageRoute(*route, count[route], size[route], unknown[route]) for route in sorted(count)
    )


def _bytes(tensor: Output, shapes: StaticShapes) -> int | None:
    elements, dtype = shapes[tensor].elements, tensor.dtype
    if elements is None or dtype is None or dtype.base.is_object:
        return None
    return elements * int(dtype.base.numpy.itemsize)


def _message_sizes(graph: Graph, keys: TransferKeys) -> dict[Node, int | None]:
    """The static size of each Send's message, or None."""
    sends = [node for node in keys if ROLES[node.op] is Role.SEND]
    if not sends:
        return {}
    sender = {keys[send]: send for send in reversed(sends)}  # the first of each key
    received = {
        recv: sender[key].inputs[0]
        for recv, key in keys.items()
        if ROLES[recv.op] is Role.RECV and key in sender
    }
    shapes = infer_shapes(graph, sent=[send.inputs[0] for send in sends], received=received)
    return {send: _bytes(send.inputs[0], shapes) for send in sends}


def _control_loops(graph_frames: Frames) -> dict[str, tuple[str, ...]]:
    """The loops of which each device has nodes but not the LoopCond."""
    loops: dict[str, list[str]] = {}
    for frame in graph_frames.all[1:]:
        leaders = {node.device for node in frame.loop_conds}
        for device in dict.fromkeys(node.device for node in frame.nodes):
            if device not in leaders:
                loops.setdefault(device, []).append(frame.path)
    return {device: tuple(paths) for device, paths in loops.items()}
