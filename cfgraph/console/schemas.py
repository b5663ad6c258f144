"""The JSON Schema of what a command answers with under `--json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from cfgraph.errors import UsageError
from cfgraph.ir.names import did_you_mean

_ENVELOPE: Final = "envelope"
_FOLDER: Final = Path(__file__).parent.parent / "schemas"


def schema(command: str) -> dict[str, Any]:
    """The schema of a command's document, whole: what all commands share is among its `$defs`.

    Raises UsageError for what is no command.
    """
    known = schema_names()
    if command not in known:
        hint = did_you_mean(command, known) or f"one of {', '.join(known)}"
        raise UsageError(f"there is no schema {command!r}", hint=hint)
    found, shared = _read(command), _read(_ENVELOPE)
    return {**found, "$defs": {**found.get("$defs", {}), _ENVELOPE: shared}}


def schema_names() -> list[str]:
    """The commands that have a schema."""
    return sorted(file.stem for file in _FOLDER.glob("*.json") if file.stem != _ENVELOPE)


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_FOLDER / f"{name}.json").read_text("utf-8"))
    return found
