"""Reachability over data, control, and rendezvous edges.

A rendezvous edge leads from a Send to the Recv with the same key, so the ancestors of a node cross
devices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.role import Role
from cfgraph.ir.topological_order import OpRoles


class RendezvousKey(NamedTuple):
    """Key shared by a Send and its Recv within one frame and iteration."""

    send_device: str
    recv_device: str
    tensor_name: str

    def __str__(self) -> str:
        return f"{self.tensor_name!r} from {self.send_device} to {self.recv_device}"


def rendezvous_key(node: Node) -> RendezvousKey:
    """The key of a Send or a Recv. Raises InvalidInput if an attribute is missing."""
    return RendezvousKey(*[_text(node.attr(name)) for name in RendezvousKey._fields])


def _text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def is_transfer(node: Node, roles: OpRoles) -> bool:
    """True for a Send or Recv whose other end is a node, not the client."""
    return roles[node.op] in (Role.SEND, Role.RECV) and not node.attrs.get("client_terminated")


def is_partitioned(graph: Graph) -> bool:
    """True if the graph contains transfers between devices."""
    roles = OpRoles()
    if not any(roles[op] in (Role.SEND, Role.RECV) for op in graph.ops):
        return False
    return any(is_transfer(node, roles) for node in graph)


def sends_by_key(nodes: Iterable[Node]) -> dict[RendezvousKey, Node]:
    """The first Send of each key."""
    roles, sends = OpRoles(), dict[RendezvousKey, Node]()
    for node in nodes:
        if roles[node.op] is Role.SEND and is_transfer(node, roles):
            sends.setdefault(rendezvous_key(node), node)
    return sends


def sends_by_recv(nodes: Collection[Node]) -> dict[Node, Node]:
    """The Send of each Recv, without Recvs whose Send is not among the nodes."""
    roles = OpRoles()
    recvs = [node for node in nodes if roles[node.op] is Role.RECV and is_transfer(node, roles)]
    sent = sends_by_key(nodes) if recvs else {}
    pairs = ((node, sent.get(rendezvous_key(node))) for node in recvs)
    return {node: send for node, send in pairs if send is not None}


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
