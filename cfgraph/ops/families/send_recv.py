"""Send and Recv ops for edges between devices; the executor transfers the values."""

from __future__ import annotations

from cfgraph.ir.role import Role
from cfgraph.ops.opdef.facts import HostPlacement, SideEffects
from cfgraph.ops.opdef.op import Op

_KEY = (
    "tensor_name: string, send_device: string, send_device_incarnation: int,"
    " recv_device: string, client_terminated: bool = false"
)


class _Send(Op):
    """Send a tensor to the Recv with the same rendezvous key."""

    signature = "tensor: T ->"
    attrs = _KEY
    effects = SideEffects(stateful=True)
    role = Role.SEND


class _HostSend(_Send):
    """Send a tensor in host memory to the Recv with the same rendezvous key."""

    placement = HostPlacement(host_inputs=(0,))


class Send(_Send):
    """Public name of _Send in old GraphDefs."""


class _Recv(Op):
    """Tensor received from the Send with the same rendezvous key."""

    signature = "-> tensor: tensor_type"
    attrs = _KEY
    effects = SideEffects(stateful=True)
    role = Role.RECV


class _HostRecv(_Recv):
    """Tensor in host memory received from the Send with the same rendezvous key."""


class Recv(_Recv):
    """Public name of _Recv in old GraphDefs."""
