"""Which Send each Recv hears from, in a graph that holds both."""

from __future__ import annotations

from cfgraph.analysis.frames import Frames
from cfgraph.ir.graph import Node
from cfgraph.ir.walk import Roles

_KEY = ("tensor_name", "send_device", "recv_device")


def senders(frames: Frames, roles: Roles) -> dict[Node, Node]:
    """The Send of each Recv: the only one of its key, in the same frame."""
    sends: dict[tuple[object, ...], list[Node]] = {}
    recvs: list[tuple[tuple[object, ...], Node]] = []
    for node in frames.of:
        role = roles[node.op]
        if role in ("send", "recv"):
            key = (*(node.attrs.get(name) for name in _KEY), frames.of[node])
            if role == "send" and node.inputs:
                sends.setdefault(key, []).append(node)
            elif role == "recv":
                recvs.append((key, node))
    return {recv: sends[key][0] for key, recv in recvs if len(sends.get(key, ())) == 1}
