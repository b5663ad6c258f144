"""Compiled kernels on disk, where CuPy keeps its own: what one process compiles others find.

CuPy's variables say where, and whether: CUPY_CACHE_DIR, CUPY_CACHE_IN_MEMORY=1. A folder that
cannot be written to, or a file that is not whole, costs time and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

_FOLDER: Final = "~/.cupy/kernel_cache"
_DIGEST: Final = hashlib.sha256().digest_size


def folder() -> Path | None:
    """Where kernels are kept; None where nowhere."""
    if os.environ.get("CUPY_CACHE_IN_MEMORY", "") not in ("", "0"):
        return None
    try:
        return Path(os.environ.get("CUPY_CACHE_DIR") or _FOLDER).expanduser()
    except RuntimeError:
        # whoever runs this has no home
        return None


def name_of(xp: Any, source: str, options: Sequence[str]) -> str:
    """The file of a kernel for the card that is current: another compiler or card, another file."""
    target = xp.cuda.Device().compute_capability, xp.cuda.nvrtc.getVersion()
    told = repr((target, tuple(options), source)).encode()
    return f"cfgraph-{hashlib.sha256(told).hexdigest()}.cubin"


def load(name: str) -> bytes | None:
    """The code that is kept under a name; None where there is none, or not all of it."""
    place = folder()
    try:
        found = b"" if place is None else (place / name).read_bytes()
    except OSError:
        return None
    digest, code = found[:_DIGEST], found[_DIGEST:]
    return code if code and hashlib.sha256(code).digest() == digest else None


def save(name: str, code: bytes) -> None:
    """Keep code under a name; readers see all of it or nothing."""
    place = folder()
    if place is None:
        return
    written = ""
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place, delete=False) as file:
            written = file.name
            file.write(hashlib.sha256(code).digest() + code)
        Path(written).replace(place / name)
    except OSError:
        if written:
            Path(written).unlink(missing_ok=True)
