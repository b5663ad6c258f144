"""Executables of XLA in the user's cache, so that the next process does not compile them again.

jax asks a cache for the executable of a program by a key that identifies the program, options,
device, and version of XLA. Its own cache trusts a folder and never removes from it; here the files
are entries of the cache of generated code. They hold machine code, so the key has the processor.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import local
from typing import Any, Final

from cfgraph.runtime.code_cache import CacheEntry, CodeCache

# seconds of a compilation that is stored: shorter ones take about as long as reading
_MIN_SECONDS: Final = 0.1
_DIGEST_BYTES: Final = hashlib.sha256().digest_size


class StoredExecutables(local):
    """The cache of jax while this thread compiles with one of ours; otherwise it is empty."""

    cache: CodeCache | None = None
    loads = 0
    stores = 0

    def get(self, key: str) -> bytes | None:
        """The executable that jax stored under a key, or None."""
        if self.cache is None:
            return None
        data = _entry(self.cache, key).load() or b""
        digest, executable = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        # jax warns of what it cannot read
        if not executable or hashlib.sha256(executable).digest() != digest:
            return None
        self.loads += 1
        return executable

    def put(self, key: str, executable: bytes) -> None:
        """Store an executable of jax."""
        if self.cache is not None:
            self.stores += 1
            digest = hashlib.sha256(executable).digest()
            _entry(self.cache, key).store(digest + executable)

    @property
    def compiled_nothing(self) -> bool:
        """True if the cache had what takes long to compile since the context was entered."""
        return self.loads > 0 and not self.stores


_stored = StoredExecutables()


@contextmanager
def stored_executables(chosen: CodeCache | None) -> Iterator[StoredExecutables]:
    """Context in which this thread compiles with a cache, unless the program has one of jax.

    Where several threads compile, one that ends first leaves the others without it, which is all.
    """
    _stored.loads = _stored.stores = 0
    settings = None if chosen is None else _jax_cache()
    if settings is None:
        yield _stored
        return
    slot, least_seconds = settings
    _stored.cache = chosen
    slot._cache = _stored
    try:
        with least_seconds(_MIN_SECONDS):
            yield _stored
    finally:
        _stored.cache = None
        if slot._cache is _stored:
            slot._cache = None


def _jax_cache() -> tuple[Any, Any] | None:
    """The module in which jax has its cache, and the context of the least seconds, or None."""
    try:
        from jax._src import compilation_cache, config

        if compilation_cache._cache in (None, _stored) and not config.compilation_cache_dir.value:
            return compilation_cache, config.persistent_cache_min_compile_time_secs
    except (ImportError, AttributeError):  # they are internal, and another version may differ
        pass
    return None


def _entry(cache: CodeCache, key: str) -> CacheEntry:
    return cache.executable(_processor(), key)


@cache
def _processor() -> str:
    """The processor and its instructions, which the machine code may use."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return f"{os.uname().machine} {os.uname().nodename}"
    names = ("model name", "flags", "Features")
    return "\n".join(sorted({line for line in lines if line.startswith(names)}))
