"""Which devices NumPy stands in for, and how their names say so."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final

from cfgraph.ir.device_name import DeviceName
from cfgraph.ir.device_set import short_name

# the devices that were on a card in their last run
_ON_CARD: Final[set[str]] = set()


@cache
def has_own_memory(device: str) -> bool:
    """True for a device that is no CPU: what it computes with is copied there."""
    parts = DeviceName.parse(device)
    return parts is not None and parts.kind not in (None, "CPU")


def note_kind(devices: Iterable[str], *, real: bool) -> None:
    """Remember what devices are in the run that begins, for all who name them."""
    names = set(map(short_name, devices))
    if real:
        _ON_CARD.update(names)
    else:
        _ON_CARD.difference_update(names)


def is_simulated(device: str) -> bool:
    """True for a device that NumPy stands in for."""
    return has_own_memory(device) and short_name(device) not in _ON_CARD


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
