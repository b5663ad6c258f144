"""JSON documents of commands: their envelope, strict rendering, and the published schemas."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from cfgraph.errors import UsageError
from cfgraph.ir.names import did_you_mean
from cfgraph.ir.printable import clean_json
from cfgraph.version import __version__

_MAX_EXACT_INT = 2**53  # JSON readers that use doubles lose digits of larger integers


def document(
    command: str,
    *,
    result: Mapping[str, Any] | None = None,
    inputs: Sequence[Mapping[str, Any]] = (),
    findings: Sequence[Any] = (),
    summary: Mapping[str, Any] | None = None,
    artifacts: Sequence[Mapping[str, Any]] = (),
    error: Mapping[str, Any] | None = None,
    exit_code: int = 0,
) -> dict[str, Any]:
    """Return the output of a command in the envelope that all commands share."""
    status = "error" if error else "findings" if exit_code == 1 else "ok"
    return {
        "schema": f"cfgraph.{command}/1",
        "tool": {"name": "cfgraph", "version": __version__},
        "inputs": list(inputs),
        "status": status,
        "exit_code": exit_code,
        "summary": dict(summary or {}),
        "findings": list(findings),
        "result": dict(result or {}),
        "artifacts": list(artifacts),
        "error": error,
    }


def render_json(value: Any) -> str:
    """Render a document as strict JSON: NaN, infinities and large integers become strings."""
    text = json.dumps(json_value(value), indent=2, ensure_ascii=False, allow_nan=False)
    return clean_json(text)


def json_value(value: Any) -> Any:
    """Convert a value to JSON types without loss."""
    if isinstance(value, Mapping):
        return {str(key): json_value(member) for key, member in value.items()}
    if isinstance(value, str | bool | None):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _MAX_EXACT_INT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else _non_finite_text(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if to_json := getattr(value, "to_json", None):
        return json_value(to_json())
    if to_list := getattr(value, "tolist", None):  # NumPy's arrays and scalars
        return json_value(to_list())
    if isinstance(value, Sequence | set | frozenset):
        return [json_value(member) for member in value]
    return str(value)


def _non_finite_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


# inputs and artifacts so far, for the document of a failed command
_PARTIAL_MEMBERS: Final[ContextVar[dict[str, list[Any]] | None]] = ContextVar("done", default=None)


def print_document(command: str, **members: Any) -> None:
    """Print the JSON document of a command; `members` as in `document`."""
    print(render_json(document(command, **members)))


def start_document() -> None:
    """Reset inputs and artifacts at the start of a command."""
    _PARTIAL_MEMBERS.set({"inputs": [], "artifacts": []})


def add_member(kind: str, member: Any) -> None:
    """Record an input (`inputs`) or a written file (`artifacts`) of the command."""
    done = _PARTIAL_MEMBERS.get()
    if done is not None:
        done[kind].append(member)


def partial_document() -> dict[str, list[Any]]:
    """Return the recorded members of the document."""
    return _PARTIAL_MEMBERS.get() or {}


_ENVELOPE: Final = "envelope"
_SCHEMA_FOLDER: Final = Path(__file__).parent.parent / "schemas"


def schema(command: str) -> dict[str, Any]:
    """Return the complete schema of a command's document; the envelope is among its `$defs`.

    Raises UsageError for an unknown command.
    """
    known = schema_names()
    if command not in known:
        hint = did_you_mean(command, known) or f"use one of {', '.join(known)}"
        raise UsageError(f"unknown schema {command!r}", hint=hint)
    own, shared = _read_schema(command), _read_schema(_ENVELOPE)
    return {**own, "$defs": {**own.get("$defs", {}), _ENVELOPE: shared}}


def schema_names() -> list[str]:
    """Return the commands that have a schema."""
    return sorted(file.stem for file in _SCHEMA_FOLDER.glob("*.json") if file.stem != _ENVELOPE)


def _read_schema(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((_SCHEMA_FOLDER / f"{name}.json").read_text("utf-8"))
    return content
