"""Names of the variables in generated Python files.

A name is derived from the name of a node. It has ASCII letters, digits, and underscores only,
starts with a letter, and is no keyword, no builtin, and no other name of the file, so that a graph
cannot change the meaning of the source.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable
from typing import Final

_MAX_LENGTH: Final = 40
_NO_NAME: Final = re.compile(r"[^a-z0-9]+")
_WORD_START: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", re.ASCII)
_RESERVED: Final = frozenset({*keyword.kwlist, *keyword.softkwlist, *dir(builtins)})
# the counters of loops
_COUNTER: Final = re.compile(r"i\d+")


class Identifiers:
    """The names of one file; each is used once."""

    def __init__(self, reserved: Iterable[str]) -> None:
        self._reserved = _RESERVED | frozenset(reserved)
        self._suffixes: dict[str, int] = {}
        self._used: set[str] = set()

    def unique(self, text: str) -> str:
        """An unused name like a text."""
        base = snake_case(text)
        name, suffix = base, self._suffixes.get(base, 1)
        while name in self._reserved or name in self._used or _COUNTER.fullmatch(name):
            suffix += 1
            name = f"{base}_{suffix}"
        self._suffixes[base] = suffix
        self._used.add(name)
        return name


def snake_case(text: str) -> str:
    """A text in lower case, with an underscore for each run of other characters."""
    words = _WORD_START.sub("_", text[: 2 * _MAX_LENGTH])
    name = _NO_NAME.sub("_", words.lower()).strip("_")[:_MAX_LENGTH].strip("_")
    if not name:
        return "value"
    return name if name[0].isalpha() else f"v_{name}"
