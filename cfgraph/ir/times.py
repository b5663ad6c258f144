"""Times as people read them: `1.5 ms`."""

from __future__ import annotations

from typing import Final

_UNITS: Final = (("s", 1e9), ("ms", 1e6), ("µs", 1e3))
# beyond it four digits would leave out whole seconds
_WHOLE: Final = 10_000


def time_text(ns: float) -> str:
    """A time to read, given in nanoseconds, to four digits; pages about runs write it like that."""
    for unit, size in _UNITS:
        if ns >= size:
            number = ns / size
            return f"{number:.4g} {unit}" if number < _WHOLE else f"{number:.0f} {unit}"
    return f"{ns:.4g} ns" if ns else "0"
