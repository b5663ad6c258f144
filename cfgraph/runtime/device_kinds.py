"""Kinds of devices: those with memory of their own, and those that NumPy simulates."""

from __future__ import annotations

from functools import cache

from cfgraph.ir.devices import DeviceName, short_device_name


@cache
def has_own_memory(device: str) -> bool:
    """True for a device that is not a CPU: values are copied to it."""
    parts = DeviceName.parse(device)
    return parts is not None and parts.kind not in (None, "CPU")


@cache
def is_gpu(device: str) -> bool:
    """True for a device that a real GPU can run."""
    parts = DeviceName.parse(device)
    return parts is not None and parts.kind == "GPU"


def is_simulated(device: str, *, real: bool = False) -> bool:
    """True for a device that NumPy simulates: any that is not a CPU, unless it is `real`."""
    return has_own_memory(device) and not real


def device_label(device: str, *, real: bool = False) -> str:
    """The short name, `cpu:0`, or the full name on another host; marked if simulated."""
    text = short_device_name(device)
    return f"{text} (simulated)" if is_simulated(device, real=real) else text


def host_device(device: str) -> str:
    """The CPU on the host of a device, for copies: `cpu:0` for `gpu:1`."""
    parts = DeviceName.parse(device)
    if parts is None or parts.job is None:
        return "cpu:0"
    return short_device_name(str(parts._replace(kind="CPU", number="0")))
