"""Which kind of gpu a run has: a card of this machine, or NumPy that stands in for one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cfgraph.errors import Unsupported, UsageError
from cfgraph.runtime.devices.card import Card, card, present
from cfgraph.runtime.devices.on_card import is_gpu
from cfgraph.runtime.plan import Plan

KINDS: Final = ("simulated", "real")


def require_kind(gpu: str | Card | None, costs: Any = None) -> Card | str | None:
    """What gpus are to be: a card, `simulated`, or None where nobody asked.

    Raises UsageError for what is no kind of gpu, and for a real one in virtual time, Unsupported
    for one that cannot be had.
    """
    if gpu is None or isinstance(gpu, Card):
        return gpu
    if gpu not in KINDS:
        raise UsageError(f"unknown kind of gpu {gpu!r}", hint=f"one of {', '.join(KINDS)}")
    if gpu == "real" and costs is not None:
        raise UsageError("virtual time does not come from a real gpu", hint="simulate it")
    return card() if gpu == "real" else gpu


def chosen(gpu: Card | str | None, plans: Sequence[Plan]) -> Card | None:
    """The card that the gpus of a run are on; None where NumPy simulates them, or there are none.

    Where nobody asked, a card is taken if there is one, and CuPy is installed.
    """
    if gpu == "simulated" or not any(is_gpu(plan.device) for plan in plans):
        return None
    if isinstance(gpu, Card):
        return gpu
    try:
        return card() if present() else None
    except Unsupported:
        return None
