"""Whether a real GPU can be used; until one can, every gpu is simulated."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from cfgraph.errors import Unsupported, UsageError

KINDS: Final = ("simulated", "real")


def require_kind(kind: str) -> None:
    """Raise UsageError for what is no kind of GPU, Unsupported for one that cannot be had."""
    if kind not in KINDS:
        raise UsageError(f"unknown kind of gpu {kind!r}", hint=f"one of {', '.join(KINDS)}")
    if kind == "real":
        lacking = "" if find_spec("cupy") else ", and CuPy is not installed"
        raise Unsupported(f"no real GPU can be used{lacking}; NumPy simulates every gpu")
