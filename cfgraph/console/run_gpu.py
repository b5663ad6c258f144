"""What a `run` says of its gpus: which kind they were, and what had no kernel there."""

from __future__ import annotations

from typing import Any, Final

from cfgraph.ir.names import first_names
from cfgraph.runtime.session import Session

# ops that a note names
_NAMED: Final = 5


def gpu_json(session: Session) -> dict[str, Any] | None:
    """The kind and the devices as a member of a JSON document; None for a run without a gpu."""
    devices = session.gpus
    if not devices:
        return None
    found, kind = session.on_card, "simulated" if session.on_card is None else "real"
    told: dict[str, Any] = {"kind": kind, "devices": list(devices)}
    return told if found is None else {**told, "name": found.card.name, "on_host": found.fallen}


def gpu_notes(session: Session) -> list[str]:
    """The same as notes."""
    devices, found = ", ".join(session.gpus), session.on_card
    if not devices:
        return []
    if found is None:
        return [f"{devices}: simulated by NumPy"]
    notes = [f"{devices}: {found.card.name}"]
    ops = sorted(found.fallen)
    if ops:
        notes.append(f"on the host, for want of a kernel: {first_names(ops, _NAMED)}")
    return notes
