"""Numbers of bytes as people write them: `4GiB`, `512 MiB`, `1.5GB`."""

from __future__ import annotations

import re
from typing import Final

from cfgraph.errors import UsageError

_KILO: Final = 1024
_TEXT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}ib": _KILO**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
}


def parse_size(text: str) -> int:
    """The bytes that a text says: `4GiB` (2³⁰ each), `4GB` (10⁹ each), `4096`.

    Raises UsageError for what is no size, and for none at all.
    """
    match = _TEXT.fullmatch(text.strip())
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        hint = "write a number and B, KiB, MiB, GiB, TiB (powers of 1024) or kB, MB, GB, TB"
        raise UsageError(f"{text!r} is no size of memory", hint=hint)
    size = int(float(match[1]) * unit)
    if size < 1:
        raise UsageError(f"{text!r} is less than a byte", hint="such as 4GiB")
    return size


def size_text(count: float) -> str:
    """A number of bytes to read: `1.5 KiB`."""
    for unit in ("B", "KiB", "MiB"):
        if count < _KILO:
            return f"{count:.4g} {unit}"
        count /= _KILO
    return f"{count:.4g} GiB"
