"""Reachability: the ancestors that a run needs, and the nodes that depend on a node.

A Recv depends on its Send, so the ancestors cross devices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cfgraph.analysis.transfers import RendezvousKey, is_transfer, rendezvous_key, sends_by_key
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.topological_order import OpRoles


def ancestors(
    graph: Graph,
    wanted: Iterable[Node],
    fed: Collection[Output] = (),
    fed_nodes: Collection[Node] = (),
) -> list[Node]:
    """The nodes that `wanted` need, in graph order.

    An edge from a `fed` output needs nobody, nor does a control edge from one of `fed_nodes`
    (placeholders, which do not run when they are fed).
    """
    found = set(wanted)
    queue = list(found)
    roles = OpRoles()
    sends: dict[RendezvousKey, Node] | None = None
    while queue:
        node = queue.pop()
        if not node.inputs and roles[node.op] is Role.RECV and is_transfer(node, roles):
            sends = sends_by_key(graph) if sends is None else sends
            send = sends.get(rendezvous_key(node))
            if send is not None and send not in found:
                found.add(send)
                queue.append(send)
        for item in node.inputs:
            source = item[0]
            if source not in found and not (fed and item in fed):
                found.add(source)
                queue.append(source)
        for source in node.controls:
            if source not in found and source not in fed_nodes:
                found.add(source)
                queue.append(source)
    return [node for node in graph if node in found]


def reachable_from(graph: Graph, sources: Iterable[Node]) -> set[Node]:
    """Some nodes, and all that need one of them."""
    found = set(sources)
    readers: dict[Node, list[Node]] = {}
    for node in graph if found else ():
        for source in (*(item.node for item in node.inputs), *node.controls):
            readers.setdefault(source, []).append(node)
    queue = list(found)
    while queue:
        new = [node for node in readers.get(queue.pop(), ()) if node not in found]
        found.update(new)
        queue.extend(new)
    return found
