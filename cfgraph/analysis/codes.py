"""Catalog of error codes, printed by `cfgraph explain CODE`. The texts are in `codes.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from cfgraph.errors import UsageError
from cfgraph.ir.names import did_you_mean


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of finding: title, level, explanation, and fix."""

    code: str
    title: str
    level: str
    explanation: str
    fix: str


@cache
def catalog() -> dict[str, Code]:
    """All codes in ascending order."""
    text = resources.files("cfgraph.analysis").joinpath("codes.toml").read_text("utf-8")
    return {code: Code(code, **entry) for code, entry in sorted(tomllib.loads(text).items())}


def find_code(code: str) -> Code:
    """The entry of a code, ignoring case. Raises UsageError for an unknown code."""
    known = catalog()
    entry = known.get(code.upper())
    if entry is None:
        raise UsageError(f"unknown code {code!r}", hint=similar_code_hint(code) or "as in CFG201")
    return entry


def similar_code_hint(code: str) -> str | None:
    """A hint that names the closest code with the same first digit, or None."""
    kind = code.upper()[: len("CFG0")]
    return did_you_mean(code.upper(), [known for known in catalog() if known.startswith(kind)])
