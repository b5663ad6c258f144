"""The one JSON document that a command answers with under `--json`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from cfgraph import __version__

_EXACT = 2**53  # beyond it a JSON reader that uses doubles loses digits


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
    """Put the answer of a command into the envelope that all commands share."""
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


def render(value: Any) -> str:
    """Print a document as strict JSON: NaN, infinities and large integers become strings."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """Turn a value into what JSON can say without loss."""
    if isinstance(value, Mapping):
        return {str(key): plain(member) for key, member in value.items()}
    if isinstance(value, str | bool | None):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _EXACT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else _word(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if to_json := getattr(value, "to_json", None):
        return plain(to_json())
    if to_list := getattr(value, "tolist", None):  # NumPy's arrays and scalars
        return plain(to_list())
    if isinstance(value, Sequence | set | frozenset):
        return [plain(member) for member in value]
    return str(value)


def _word(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
