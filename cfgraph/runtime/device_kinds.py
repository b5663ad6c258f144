"""Devices with memory of their own, and which of them NumPy simulates."""

from __future__ import annotations

from functools import cache

from cfgraph.ir.devices import DeviceName, short_device_name


@cache
def has_own_memory(device: str) -> bool:
    """True for a device that is no CPU: what it computes with is copied there."""
    parts = DeviceName.parse(device)
    return parts is not None and parts.kind not in (None, "CPU")


def is_simulated(device: str, *, real: bool = False) -> bool:
    """True for a device that NumPy stands in for: any that is no CPU, unless it was `real`."""
    return has_own_memory(device) and not real


def device_label(device: str, *, real: bool = False) -> str:
    """`cpu:0`, or the full name of a device that is elsewhere; what NumPy stands in for says so."""
    text = short_device_name(device)
    return f"{text} (simulated)" if is_simulated(device, real=real) else text


def host_device(device: str) -> str:
    """The CPU beside a device, to whose memory it copies: `cpu:0` for `gpu:1`."""
    parts = DeviceName.parse(device)
    if parts is None or parts.job is None:
        return "cpu:0"
    return short_device_name(str(parts._replace(kind="CPU", number="0")))
