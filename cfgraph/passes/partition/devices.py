"""The device of every node, by its full name."""

from __future__ import annotations

from collections.abc import Iterable

from cfgraph.errors import InvalidInput
from cfgraph.ir.device_name import DeviceName
from cfgraph.ir.graph import Graph, Node

Places = dict[Node, str]


def places(graph: Graph) -> Places:
    """Where every node is: `/job:localhost/replica:0/task:0/device:CPU:0`.

    Raises InvalidInput for a node whose device is not said in full.
    """
    full: dict[str, str] = {}
    found: Places = {}
    for node in graph:
        device = full.get(node.device)
        if device is None:
            device = full[node.device] = _full(node)
        found[node] = device
    return found


def _full(node: Node) -> str:
    parts = DeviceName.parse(node.device)
    if parts is not None and None not in parts:
        return str(parts)
    asked = f"only {node.device!r}" if node.device else "no device"
    message = f"the node is not placed: it asks for {asked}, a full device name is wanted"
    hint = "place the graph first, with cfgraph.place or the option --devices"
    raise InvalidInput(message, node=node, hint=hint, code="CFG420")


def in_order(devices: Iterable[str]) -> list[str]:
    """Devices by job, replica, task, kind and number, each once."""
    return sorted(dict.fromkeys(devices), key=_sort_key)


def _sort_key(device: str) -> tuple[tuple[int, str], ...]:
    parts = DeviceName.parse(device) or ()
    return tuple(
        (len(part or ""), part or "") if _is_number(part) else (0, part or "") for part in parts
    )


def _is_number(part: str | None) -> bool:
    return part is not None and part.isdigit()
