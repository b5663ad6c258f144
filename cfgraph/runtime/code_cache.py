"""Cache of generated code in a folder of the user, so that the next process need not analyze.

Writing an entry is enough to run code as the user. The folder is therefore used only if the user
owns it and nobody else may write to it, and so is each file in it. An entry has the code of one run
of one graph, as text, made by one version of cfgraph, Python, and NumPy; or an executable of XLA.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final

import numpy as np

from cfgraph import version
from cfgraph.reports import Count, Record

MAX_BYTES: Final = 256 << 20
_FORMAT: Final = 1
_SUFFIX: Final = ".json"
_EXECUTABLE_SUFFIX: Final = ".xla"
_NAME_BYTES: Final = 8
# of entries and temporary files: no other file of the folder is removed
_OWN_NAME: Final = re.compile(
    rf"[0-9a-f]{{64}}({re.escape(_SUFFIX)}|{re.escape(_EXECUTABLE_SUFFIX)})"
    rf"|\.[0-9a-f]{{{2 * _NAME_BYTES}}}"
)
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class CodeCache:
    """The cache of a session. `graph_digest` identifies the graph that the session starts with.

    A folder that cannot be used is no error. The oldest entries are removed beyond `max_bytes`.
    """

    graph_digest: str = ""
    folder: Path | None = None
    max_bytes: int = MAX_BYTES

    def entry(self, *parts: object) -> CacheEntry:
        """The entry of a run, which the parts identify."""
        return CacheEntry(self, parts)

    def executable(self, *parts: object) -> CacheEntry:
        """The entry of an executable, which the parts identify."""
        return CacheEntry(self, parts, _EXECUTABLE_SUFFIX)


@dataclass(frozen=True)
class CacheEntry:
    """One file of a cache, which the parts identify."""

    cache: CodeCache
    parts: tuple[object, ...]
    suffix: str = _SUFFIX

    @cached_property
    def key(self) -> str:
        """The name of the file, without its suffix."""
        versions = _FORMAT, version.__version__, sys.version, np.__version__, _code_state()
        digest = hashlib.sha256(repr((*versions, *self.parts)).encode(errors="backslashreplace"))
        return digest.hexdigest()

    def load(self) -> bytes | None:
        """The content of the file, or None."""
        with _open_folder(self.cache.folder) as folder:
            if folder is None:
                return None

            def open_in_folder(name: str, flags: int) -> int:
                return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)

            name = self.key + self.suffix
            with suppress(OSError), open(name, "rb", opener=open_in_folder) as file:
                status = os.fstat(file.fileno())
                if stat.S_ISREG(status.st_mode) and _is_private(status):
                    with suppress(OSError):
                        os.utime(file.fileno())  # the oldest entry is the one least recently used
                    return file.read()
        return None

    def store(self, data: bytes) -> None:
        """Write the file, and remove the oldest ones; an error of the file system is ignored."""
        if len(data) > self.cache.max_bytes:
            return
        with _open_folder(self.cache.folder, create=True) as folder:
            if folder is None:
                return
            with suppress(OSError):
                _replace(folder, self.key + self.suffix, data)
                _remove_oldest(folder, self.cache.max_bytes)


def default_folder() -> Path | None:
    """The folder of the cache: $CFGRAPH_CACHE, or `cfgraph` in the user's folder of caches."""
    if chosen := os.environ.get("CFGRAPH_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "cfgraph"
    home = os.path.expanduser("~")
    return Path(home) / ".cache" / "cfgraph" if os.path.isabs(home) else None


class CacheStatus(Record):
    """The folder of the cache, its entries and their bytes, and whether runs use it."""

    folder: str | None
    exists: bool
    usable: bool
    entries: Count
    bytes: Count


def cache_status() -> CacheStatus:
    """The folder of the cache, its entries and their bytes, and whether runs use it."""
    path = default_folder()
    entries = sizes = 0
    with _open_folder(None) as folder:
        if folder is not None:
            with suppress(OSError):
                found = [
                    entry.stat() for entry in os.scandir(folder) if _OWN_NAME.fullmatch(entry.name)
                ]
                entries, sizes = len(found), sum(status.st_size for status in found)
        exists, usable = path is not None and path.is_dir(), folder is not None
        return CacheStatus(None if path is None else str(path), exists, usable, entries, sizes)


@contextmanager
def _open_folder(chosen: Path | None, *, create: bool = False) -> Iterator[int | None]:
    """A descriptor of the folder, or None if it is missing or others may write to it."""
    path = chosen or default_folder()
    descriptor = None
    if path is not None and hasattr(os, "geteuid"):
        with suppress(OSError, ValueError):
            if create:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with suppress(FileExistsError):
                    path.mkdir(mode=0o700)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        is_usable = descriptor is not None and _is_private(os.fstat(descriptor))
        yield descriptor if is_usable else None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _is_private(status: os.stat_result) -> bool:
    """True for what the user owns and nobody else may write to."""
    return status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_WRITE


def _replace(folder: int, name: str, data: bytes) -> None:
    temporary = f".{secrets.token_hex(_NAME_BYTES)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _remove_oldest(folder: int, max_bytes: int) -> None:
    """Remove the oldest entries until the rest fits, and temporary files that a process left."""
    files = []
    with os.scandir(folder) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and _OWN_NAME.fullmatch(entry.name):
                files.append((status.st_mtime_ns, status.st_size, entry.name))
    total = sum(size for _, size, _ in files)
    for _, size, name in sorted(files):
        if total <= max_bytes:
            return
        os.unlink(name, dir_fd=folder)
        total -= size


@cache
def _code_state() -> str:
    """The state of the source files of cfgraph, which change between versions in development."""
    digest = hashlib.sha256()
    folders = [os.path.dirname(version.__file__)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.name.endswith(".py"):
                    status = entry.stat()
                    digest.update(f"{entry.name} {status.st_size} {status.st_mtime_ns}".encode())
    return digest.hexdigest()
