"""Which nodes, fetches and feeds of a run belong to which device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cfgraph.analysis.transfers import Key, is_partitioned, is_transfer, key_of
from cfgraph.errors import InvalidInput
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.walk import Roles


@dataclass(slots=True)
class Part:
    """One device's nodes in graph order; fetches and feeds by their places in the run's lists."""

    device: str
    nodes: list[Node] = field(default_factory=list)
    fetches: dict[int, Output] = field(default_factory=dict)
    feeds: dict[int, Output] = field(default_factory=dict)


def parts(
    graph: Graph,
    nodes: Iterable[Node],
    fetches: Sequence[Output],
    feeds: Sequence[Output],
    device: str | None,
) -> list[Part]:
    """Divide a run among devices: those of a partitioned graph, else all of it is on `device`.

    Without a `device` any graph is taken for a partitioned one, also where nothing crosses.

    Raises InvalidInput for a partitioned graph where a node has no device, or an edge crosses.
    """
    if device is not None and not is_partitioned(graph):
        whole = Part(device, list(nodes), dict(enumerate(fetches)), dict(enumerate(feeds)))
        return [whole]
    found: dict[str, Part] = {}

    def part(node: Node) -> Part:
        name = node.device
        return found.get(name) or found.setdefault(name, Part(name))

    for node in nodes:
        _require_local(node)
        part(node).nodes.append(node)
    for place, item in enumerate(fetches):
        part(item.node).fetches[place] = item
    for place, item in enumerate(feeds):
        part(item.node).feeds[place] = item
    _require_one_of_each(found.values())
    return [found[name] for name in sorted(found)]


def _require_local(node: Node) -> None:
    device = node.device
    if not device:
        message = f"{node.name!r} of a partitioned graph has no device"
        raise InvalidInput(message, node=node, code="CFG430")
    for source in (*(item.node for item in node.inputs), *node.controls):
        if source.device != device:
            message = f"an edge of a partitioned graph crosses devices: {source.name!r}"
            message = f"{message} is on {source.device}, its reader on {device}"
            hint = "partition the graph anew, from the file before it was partitioned"
            raise InvalidInput(message, node=node, hint=hint, code="CFG430")


def _require_one_of_each(found: Iterable[Part]) -> None:
    """Two messages of one key could not be told apart."""
    roles, first = Roles(), dict[tuple[str, Key], Node]()
    for part in found:
        for node in part.nodes:
            if is_transfer(node, roles):
                key = key_of(node)
                other = first.setdefault((roles[node.op], key), node)
                if other is not node:
                    message = f"{other.name!r} has the same key: {key}"
                    raise InvalidInput(message, node=node, code="CFG431")
