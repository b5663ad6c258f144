"""JSON and TOML that people write, up to a depth that every reader of the result can follow."""

from __future__ import annotations

import re
from typing import Any, Final

# late imports: few commands read JSON or TOML

MAX_DEPTH: Final = 100
# all but brackets: text in quotes and other characters; in TOML also comments
_NO_JSON_BRACKETS: Final = re.compile(r'"(?:\\.|[^"\\])*"|[^][{}"]+', re.DOTALL)
_NO_TOML_BRACKETS: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}'
    r'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[^][{}"\'#]+',
    re.DOTALL,
)


def parse_json(text: str, **options: Any) -> Any:
    """The value of a JSON text. Raises ValueError for another text, and for one nested too deeply.

    `options` are those of `json.loads`.
    """
    import json

    _require_flat(text, _NO_JSON_BRACKETS)
    return json.loads(text, **options)


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text. Raises ValueError as `parse_json`."""
    import tomllib

    _require_flat(text, _NO_TOML_BRACKETS)
    return tomllib.loads(text)


def _require_flat(text: str, no_brackets: re.Pattern[str]) -> None:
    """Raise ValueError for a text whose brackets are nested more than `MAX_DEPTH` deep."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for bracket in no_brackets.sub("", text):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_DEPTH:
            message = f"it is nested more than {MAX_DEPTH} deep"
            raise ValueError(message)
