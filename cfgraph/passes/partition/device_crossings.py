"""The device of each node, and the tensors that cross devices, checked before any change."""

from __future__ import annotations

from collections.abc import Iterable

from cfgraph.errors import InvalidInput, Unsupported
from cfgraph.ir import registry
from cfgraph.ir.devices import DeviceName
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.topological_order import OpRoles

# there is one of these on every device that reads it, so it is their source that crosses
COPIED_ROLES = frozenset({Role.ENTER, Role.NEXT_ITERATION})


class DeviceCrossings:
    """The tensors that cross, their types, and one output of each node that does so whole.

    `carriers` gives for a node and a device an output that goes there, and is live if and only if
    the node is: who waits for the node there can wait for that. `readers` are the nodes with an
    edge from another device, in graph order.

    Raises Unsupported for a reference that would have to cross as one, and for an unknown type.
    """

    def __init__(self, where: NodeDevices) -> None:
        self.where = where
        self.roles = OpRoles()
        self.types: dict[Output, DType] = {}
        self.carriers: dict[tuple[Node, str], Output] = {}
        self.readers = [node for node, device in where.items() if self._is_reader(node, device)]
        for node in self.readers:
            self._read_all(node, where[node])

    def _is_reader(self, node: Node, device: str) -> bool:
        where = self.where
        for source, _ in node.inputs:
            if where[source] != device:
                return True
        return bool(node.controls) and any(where[control] != device for control in node.controls)

    def _read_all(self, node: Node, device: str) -> None:
        for slot, item in enumerate(node.inputs):
            if self.where[item.node] != device:
                self._read(node, slot, item, device)
        for control in node.controls:
            if self.where[control] != device and self.roles[control.op] in COPIED_ROLES:
                self._read(control, 0, control.inputs[0], device)

    def _read(self, node: Node, slot: int, item: Output, device: str) -> None:
        is_reference = self._wants_reference(node, slot)
        while self.where[item.node] != device:
            if is_reference:
                raise self._reference(node, item, device)
            if self.roles[item.node.op] not in COPIED_ROLES:
                self._cross(item, node, device)
                return
            node, item = item.node, item.node.inputs[0]
            is_reference = self._wants_reference(node, 0)

    def _cross(self, item: Output, reader: Node, device: str) -> None:
        dtype = self.types.get(item)
        if dtype is None:
            dtype = item.dtype
            if dtype is None:
                message = f"{item.name} goes to another device, and its type is not known"
                hint = f"keep {item.node.name!r} ({item.node.op}) and {reader.name!r} on one device"
                raise Unsupported(message, node=item.node, hint=hint, code="CFG422")
            self.types[item] = dtype
        if not dtype.is_ref and self.roles[item.node.op] not in (Role.SWITCH, Role.RECV):
            self.carriers.setdefault((item.node, device), item)

    def _wants_reference(self, node: Node, slot: int) -> bool:
        op = registry.lookup(node.op)
        if op is None or not op.parsed().has_references:
            return False
        types = registry.input_types(node)
        return types is not None and slot < len(types) and types[slot].is_ref

    def _reference(self, node: Node, item: Output, device: str) -> Unsupported:
        message = (
            f"input {item.name} is a reference, which cannot leave its device: it is on "
            f"{self.where[item.node]}, the node on {device}"
        )
        hint = "place both on one device"
        return Unsupported(message, node=node, hint=hint, code="CFG421")


NodeDevices = dict[Node, str]


def node_devices(graph: Graph) -> NodeDevices:
    """Where every node is: `/job:localhost/replica:0/task:0/device:CPU:0`.

    Raises InvalidInput for a node whose device is not said in full.
    """
    full: dict[str, str] = {}
    found: NodeDevices = {}
    for node in graph:
        device = full.get(node.device)
        if device is None:
            device = full[node.device] = _full_device_name(node)
        found[node] = device
    return found


def _full_device_name(node: Node) -> str:
    parts = DeviceName.parse(node.device)
    if parts is not None and None not in parts:
        return str(parts)
    asked = f"only {node.device!r}" if node.device else "no device"
    message = f"the node is not placed: it asks for {asked}, a full device name is wanted"
    hint = "place the graph first, with cfgraph.place or the option --devices"
    raise InvalidInput(message, node=node, hint=hint, code="CFG420")


def sorted_devices(devices: Iterable[str]) -> list[str]:
    """Devices by job, replica, task, kind and number, each once."""
    return sorted(dict.fromkeys(devices), key=_device_sort_key)


def _device_sort_key(device: str) -> tuple[tuple[int, str], ...]:
    parts = DeviceName.parse(device) or ()
    return tuple(
        (len(part or ""), part or "") if _is_number(part) else (0, part or "") for part in parts
    )


def _is_number(part: str | None) -> bool:
    return part is not None and part.isdigit()
