"""Send and Recv: an edge cut at a device boundary. The executor carries the value."""

from __future__ import annotations

from cfgraph.ir.role import Role
from cfgraph.ops.opdef.facts import HostPlacement, SideEffects
from cfgraph.ops.opdef.op import Op

_KEY = (
    "tensor_name: string, send_device: string, send_device_incarnation: int,"
    " recv_device: string, client_terminated: bool = false"
)


class _Send(Op):
    """Hand a tensor to the Recv of the same key."""

    signature = "tensor: T ->"
    attrs = _KEY
    effects = SideEffects(stateful=True)
    role = Role.SEND


class _HostSend(_Send):
    """Hand a tensor in host memory to the Recv of the same key."""

    placement = HostPlacement(host_inputs=(0,))


class Send(_Send):
    """Hand a tensor to the Recv of the same key; the name in very old files."""


class _Recv(Op):
    """The tensor that the Send of the same key hands over."""

    signature = "-> tensor: tensor_type"
    attrs = _KEY
    effects = SideEffects(stateful=True)
    role = Role.RECV


class _HostRecv(_Recv):
    """The tensor, in host memory, that the Send of the same key hands over."""


class Recv(_Recv):
    """The tensor that the Send of the same key hands over; the name in very old files."""
