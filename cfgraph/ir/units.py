"""Byte sizes, durations, and counts as text: `4GiB`, `1.5 ms`, `2 nodes`."""

from __future__ import annotations

import re
from typing import Final

from cfgraph.errors import UsageError

_KILO: Final = 1024
_BYTE_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_MAX_SIZE: Final = 1 << 62
_BYTE_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}ib": _KILO**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
}


def parse_byte_size(text: str) -> int:
    """Parse a number of bytes: `4GiB` (2³⁰ each), `4GB` (10⁹ each), `4096`.

    Raises UsageError for an invalid size or one below a byte.
    """
    match = _BYTE_SIZE.fullmatch(text.strip())
    unit = _BYTE_UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        hint = "write a number and B, KiB, MiB, GiB, TiB (powers of 1024) or kB, MB, GB, TB"
        raise UsageError(f"{text!r} is not a size in bytes", hint=hint)
    size = int(min(float(match[1]) * unit, _MAX_SIZE))
    if size < 1:
        raise UsageError(f"{text!r} is less than one byte", hint="for example 4GiB")
    return size


def format_count(count: int, noun: str) -> str:
    """Format a number of things: `1 node`, `2 nodes`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def format_byte_size(count: float) -> str:
    """Format a number of bytes: `1.5 KiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < _KILO:
            return f"{count:.4g} {unit}"
        count /= _KILO
    return f"{count:.4g} TiB"


_TIME_UNITS: Final = (("s", 1e9), ("ms", 1e6), ("µs", 1e3))
# above this, four digits would drop whole seconds
_MIN_WHOLE_NUMBER: Final = 10_000


def format_duration(ns: float) -> str:
    """Format nanoseconds with four digits."""
    for unit, size in _TIME_UNITS:
        if ns >= size:
            number = ns / size
            return f"{number:.4g} {unit}" if number < _MIN_WHOLE_NUMBER else f"{number:.0f} {unit}"
    return f"{ns:.4g} ns" if ns else "0"
