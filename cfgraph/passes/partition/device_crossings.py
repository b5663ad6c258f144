"""The device of each node, and the tensors that cross devices, checked before any change."""

from __future__ import annotations

from collections.abc import Iterable

from cfgraph.errors import InvalidInput, Unsupported
from cfgraph.ir import registry
from cfgraph.ir.devices import DeviceName
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.registry import ROLES
from cfgraph.ir.role import Role
from cfgraph.limits import check_deadline

# every device that reads one of these has a copy, so that only its source crosses
COPIED_ROLES = frozenset({Role.ENTER, Role.NEXT_ITERATION})


class DeviceCrossings:
    """Cross-device tensors, their dtypes, and a carrier for each (node, device).

    A carrier is an output of the node that is sent to the device and is live if and only if the
    node is; a control edge from the node can wait for it. `readers` are the nodes with an edge from
    another device, in graph order.

    Raises Unsupported for a reference that would cross as a reference, and for an unknown dtype.
    """

    def __init__(self, device_of: NodeDevices) -> None:
        self.device_of = device_of
        self.types: dict[Output, DType] = {}
        self.carriers: dict[tuple[Node, str], Output] = {}
        self._added: set[tuple[Output, str]] = set()
        self.readers = [node for node, device in device_of.items() if self._is_reader(node, device)]
        for node in self.readers:
            check_deadline()
            self._add_inputs(node, device_of[node])

    def _is_reader(self, node: Node, device: str) -> bool:
        device_of = self.device_of
        for source, _ in node.inputs:
            if device_of[source] != device:
                return True
        return bool(node.controls) and any(
            device_of[control] != device for control in node.controls
        )

    def _add_inputs(self, node: Node, device: str) -> None:
        for slot, tensor in enumerate(node.inputs):
            if self.device_of[tensor.node] != device:
                self._add_input(node, slot, tensor, device)
        for control in node.controls:
            if self.device_of[control] != device and self.is_copied(control):
                self._add_input(control, 0, control.inputs[0], device)

    def is_copied(self, control: Node) -> bool:
        """Return true for a control input that each device gets a copy of.

        A handle stays on its device: a message without data replaces its control edges.
        """
        if ROLES[control.op] not in COPIED_ROLES:
            return False
        return not any(dtype.is_handle for dtype in control.output_types or ())

    def _add_input(self, node: Node, slot: int, tensor: Output, device: str) -> None:
        is_reference = self._reads_reference(node, slot)
        if not is_reference:
            if (tensor, device) in self._added:
                return
            self._added.add((tensor, device))
        while self.device_of[tensor.node] != device:
            check_deadline()
            if is_reference:
                raise self._reference_error(node, tensor, device)
            if ROLES[tensor.node.op] not in COPIED_ROLES:
                self._add_tensor(tensor, node, device)
                return
            node, tensor = tensor.node, tensor.node.inputs[0]
            is_reference = self._reads_reference(node, 0)

    def _add_tensor(self, tensor: Output, reader: Node, device: str) -> None:
        dtype = self.types.get(tensor)
        if dtype is None:
            dtype = tensor.dtype
            if dtype is None:
                message = f"{tensor.name} goes to another device, but its type is unknown"
                source = f"{tensor.node.name!r} ({tensor.node.op})"
                hint = f"keep {source} and {reader.name!r} on one device"
                raise Unsupported(message, node=tensor.node, hint=hint, code="CFG422")
            self.types[tensor] = dtype
        if not dtype.is_ref and ROLES[tensor.node.op] not in (Role.SWITCH, Role.RECV):
            self.carriers.setdefault((tensor.node, device), tensor)

    def _reads_reference(self, node: Node, slot: int) -> bool:
        op = registry.lookup(node.op)
        if op is None or not op.parsed().has_references:
            return False
        types = node.input_types
        return types is not None and slot < len(types) and types[slot].is_ref

    def _reference_error(self, node: Node, tensor: Output, device: str) -> Unsupported:
        message = (
            f"input {tensor.name} is a reference, which cannot cross devices: it is on "
            f"{self.device_of[tensor.node]}, the node is on {device}"
        )
        hint = "place both on one device"
        return Unsupported(message, node=node, hint=hint, code="CFG421")


NodeDevices = dict[Node, str]


def node_devices(graph: Graph) -> NodeDevices:
    """Return the device of every node, such as `/job:localhost/replica:0/task:0/device:CPU:0`.

    Raises InvalidInput for a node without a full device name.
    """
    full: dict[str, str] = {}
    devices: NodeDevices = {}
    for node in graph:
        device = full.get(node.device)
        if device is None:
            device = full[node.device] = _full_device_name(node)
        devices[node] = device
    return devices


def _full_device_name(node: Node) -> str:
    parts = DeviceName.parse(node.device)
    if parts is not None and None not in parts:
        return str(parts)
    request = f"only {node.device!r}" if node.device else "no device"
    message = f"the node is not placed: it has {request}, expected a full device name"
    hint = "name the devices, such as cpu:0,gpu:0, or place the graph first"
    raise InvalidInput(message, node=node, hint=hint, code="CFG420")


def sorted_devices(devices: Iterable[str]) -> list[str]:
    """Return unique devices, sorted by job, replica, task, kind, and number."""
    return sorted(dict.fromkeys(devices), key=_device_sort_key)


def _device_sort_key(device: str) -> tuple[tuple[int, str], ...]:
    parts = DeviceName.parse(device) or ()
    return tuple(
        (len(part or ""), part or "") if _is_number(part) else (0, part or "") for part in parts
    )


def _is_number(part: str | None) -> bool:
    return part is not None and part.isdigit()
