"""Rules on partitioned graphs: every edge is cut, each Send has its Recv, messages make no circle.

A part that was cut off from the others is a graph too, and what it sends leaves it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from cfgraph.analysis.cycles import in_a_circle
from cfgraph.analysis.findings import Finding
from cfgraph.analysis.subject import Subject
from cfgraph.analysis.transfers import Key, is_transfer, key_of
from cfgraph.errors import InvalidInput
from cfgraph.ir.graph import Node
from cfgraph.ir.walk import Roles

_OTHER: Final = {"send": "recv", "recv": "send"}
Ends = Mapping[str, Mapping[Key, Node]]


def transfers(subject: Subject) -> Iterator[Finding]:
    """A partitioned graph is whole: nothing crosses devices but messages, and all of them arrive.

    What is missing may be fed, so that it is no error.
    """
    roles = subject.roles
    ops = [op for op in subject.by_op if roles[op] in _OTHER]
    found = [node for op in ops for node in subject.by_op[op] if is_transfer(node, roles)]
    if not found:
        return
    yield from uncut(subject.nodes)
    keys = _keys(found)
    yield from _doubled(keys, roles)
    ends: dict[str, dict[Key, Node]] = {"send": {}, "recv": {}}
    for node, key in keys.items():
        ends[roles[node.op]].setdefault(key, node)
    yield from _alone(ends, {node.device for node in subject.nodes})
    if not subject.frames.cycles:
        yield from _circles(subject, ends)


def uncut(nodes: Iterable[Node]) -> Iterator[Finding]:
    """Every node of a partitioned graph has a device, and reads from that device only."""
    here = dict.fromkeys(nodes)
    for node in here:
        device = node.device
        if not device:
            message = f"{node.name!r} of a partitioned graph has no device"
            yield Finding("CFG430", "error", message, node.name)
            continue
        for source in (*[item[0] for item in node.inputs], *node.controls):
            # without a device, it is a fault of its own
            if source.device != device and (source.device or source not in here):
                message = f"an edge of a partitioned graph crosses devices: {source.name!r}"
                message = f"{message} is on {source.device or 'none'}, its reader on {device}"
                hint = "partition the graph anew, from the file before it was partitioned"
                yield Finding("CFG430", "error", message, node.name, hint, (source.name,))
                break


def doubled(nodes: Iterable[Node]) -> Iterator[Finding]:
    """No two messages have one key: they could not be told apart."""
    roles = Roles()
    return _doubled(_keys(node for node in nodes if is_transfer(node, roles)), roles)


def _doubled(keys: Mapping[Node, Key], roles: Roles) -> Iterator[Finding]:
    first: dict[tuple[str, Key], Node] = {}
    for node, key in keys.items():
        other = first.setdefault((roles[node.op], key), node)
        if other is not node:
            message = f"{other.name!r} has the same key: {key}"
            yield Finding("CFG431", "error", message, node.name, None, (other.name,))


def _keys(transfers: Iterable[Node]) -> dict[Node, Key]:
    """The keys of transfers; none where attributes are missing, which is a fault of its own."""
    keys: dict[Node, Key] = {}
    for node in transfers:
        with suppress(InvalidInput):
            keys[node] = key_of(node)
    return keys


def _alone(ends: Ends, devices: set[str]) -> Iterator[Finding]:
    """Transfers without the other end; those with a device that is not here, all in one."""
    abroad = Counter[str]()
    for role, other in _OTHER.items():
        for key, node in ends[role].items():
            if key in ends[other]:
                continue
            there = key.recv_device if role == "send" else key.send_device
            if there not in devices:
                abroad[there] += 1
                continue
            message = f"no {'Recv takes' if role == 'send' else 'Send gives'} {key}"
            hint = _meant(key, ends[other])
            yield Finding("CFG432", "warning", message, node.name, hint)
    for device, count in abroad.items():
        message = (
            f"the graph is a part: of {device} it has nothing but the ends of {count} transfer"
        )
        yield Finding("CFG434", "note", message + "s" * (count != 1))


def _meant(key: Key, others: Iterable[Key]) -> str | None:
    same = next((one for one in others if one.tensor_name == key.tensor_name), None)
    if same is None:
        return None
    return f"the one of that name goes from {same.send_device} to {same.recv_device}"


def _circles(subject: Subject, ends: Ends) -> Iterator[Finding]:
    """No node waits for itself by way of messages within an iteration."""
    pairs = [(ends["send"][key], recv) for key, recv in ends["recv"].items() if key in ends["send"]]
    if not pairs:
        return
    import rustworkx

    nodes, roles = list(subject.graph), subject.roles
    places = {node: place for place, node in enumerate(nodes)}
    edges = [(places[send], places[recv]) for send, recv in pairs]
    for place, node in enumerate(nodes):
        merges = roles[node.op] == "merge"
        for source, _ in node.inputs:
            if not (merges and roles[source.op] == "next_iteration") and source in places:
                edges.append((places[source], place))
        for source in node.controls:
            if source in places:
                edges.append((places[source], place))
    waits = rustworkx.PyDiGraph()
    waits.add_nodes_from(range(len(nodes)))
    waits.add_edges_from_no_data(edges)
    if rustworkx.is_directed_acyclic_graph(waits):
        return
    for group in sorted(map(sorted, rustworkx.strongly_connected_components(waits))):
        if len(group) > 1:
            part = waits.subgraph(group)
            circle = [nodes[part[start]] for start, _ in rustworkx.digraph_find_cycle(part, 0)]
            names, related = in_a_circle(circle, places)
            message = f"devices wait for each other's messages: {names}"
            hint = "partition the graph anew, or send what is there before what waits"
            yield Finding("CFG433", "warning", message, related[0], hint, related[1:])
