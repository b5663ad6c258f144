"""Send and Recv pairs of a partitioned graph, matched by rendezvous key."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from cfgraph.ir.graph import Graph, Node
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
