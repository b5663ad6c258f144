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
    targets: Iterable[Node],
    fed: Collection[Output] = (),
    fed_nodes: Collection[Node] = (),
) -> list[Node]:
    """The nodes that `targets` depend on, in graph order.

    Dependencies end at `fed` outputs, and at control edges from `fed_nodes` (placeholders, which do
    not run when fed).
    """
    needed = set(targets)
    queue = list(needed)
    roles = OpRoles()
    sends: dict[RendezvousKey, Node] | None = None
    while queue:
        node = queue.pop()
        if not node.inputs and roles[node.op] is Role.RECV and is_transfer(node, roles):
            sends = sends_by_key(graph) if sends is None else sends
            send = sends.get(rendezvous_key(node))
            if send is not None and send not in needed:
                needed.add(send)
                queue.append(send)
        for tensor in node.inputs:
            source = tensor[0]
            if source not in needed and not (fed and tensor in fed):
                needed.add(source)
                queue.append(source)
        for source in node.controls:
            if source not in needed and source not in fed_nodes:
                needed.add(source)
                queue.append(source)
    return [node for node in graph if node in needed]


def reachable_from(graph: Graph, sources: Iterable[Node]) -> set[Node]:
    """The sources and all nodes that depend on one of them."""
    reached = set(sources)
    readers: dict[Node, list[Node]] = {}
    for node in graph if reached else ():
        for source in (*(tensor.node for tensor in node.inputs), *node.controls):
            readers.setdefault(source, []).append(node)
    queue = list(reached)
    while queue:
        new = [node for node in readers.get(queue.pop(), ()) if node not in reached]
        reached.update(new)
        queue.extend(new)
    return reached
