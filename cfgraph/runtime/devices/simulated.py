"""Which devices NumPy stands in for, and how their names say so."""

from __future__ import annotations

from functools import cache

from cfgraph.ir.device_name import DeviceName
from cfgraph.ir.device_set import short_name


@cache
def is_simulated(device: str) -> bool:
    """True for a device that is no CPU: NumPy computes what it would."""
    parts = DeviceName.parse(device)
    return parts is not None and parts.kind not in (None, "CPU")


@cache
def device_text(device: str) -> str:
    """`cpu:0`, or the full name of a device that is elsewhere; what NumPy stands in for says so."""
    text = short_name(device)
    return f"{text} (simulated)" if is_simulated(device) else text


def host_of(device: str) -> str:
    """The CPU beside a device, to whose memory it copies: `cpu:0` for `gpu:1`."""
    parts = DeviceName.parse(device)
    if parts is None or parts.job is None:
        return "cpu:0"
    return short_name(str(parts._replace(kind="CPU", number="0")))
