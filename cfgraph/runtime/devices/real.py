"""Which kind of gpu a run has: a card of this machine, or NumPy that stands in for one."""

from __future__ import annotations

from typing import Final

from cfgraph.errors import UsageError
from cfgraph.runtime.devices.card import Card, card

KINDS: Final = ("simulated", "real")


def require_kind(kind: str) -> Card | None:
    """The card for real GPUs, None for simulated ones.

    Raises UsageError for what is no kind of GPU, Unsupported for one that cannot be had.
    """
    if kind not in KINDS:
        raise UsageError(f"unknown kind of gpu {kind!r}", hint=f"one of {', '.join(KINDS)}")
    return card() if kind == "real" else None
