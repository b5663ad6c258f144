"""Which kind of gpu a run has: a card of this machine, or NumPy that stands in for one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

from cfgraph.errors import Unsupported, UsageError
from cfgraph.runtime.devices.card import Card, card, present
from cfgraph.runtime.devices.on_card import is_gpu
from cfgraph.runtime.plan import Plan

KINDS: Final = ("simulated", "real")
Gpu: TypeAlias = Card | Literal["simulated", "real"] | None


def require_kind(kind: str, costs: Any = None) -> Gpu:
    """The card for real gpus, `simulated` for simulated ones.

    Raises UsageError for what is no kind of gpu, and for a real one in virtual time, Unsupported
    for one that cannot be had.
    """
    if kind not in KINDS:
        raise UsageError(f"unknown kind of gpu {kind!r}", hint=f"one of {', '.join(KINDS)}")
    if kind == "real" and costs is not None:
        raise UsageError("virtual time does not come from a real gpu", hint="simulate it")
    return card() if kind == "real" else "simulated"


def chosen(gpu: Gpu, plans: Sequence[Plan], costs: Any) -> Card | None:
    """The card that the gpus of a run are on; None where NumPy simulates them, or there are none.

    Where nobody asked, a card is taken if there is one, and CuPy is installed.
    """
    if gpu == "simulated" or costs is not None or not any(is_gpu(plan.device) for plan in plans):
        return None
    if isinstance(gpu, Card):
        return gpu
    try:
        return card() if gpu == "real" or present() else None
    except Unsupported:
        return None
