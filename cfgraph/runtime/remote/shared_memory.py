"""Large arrays between workers of one host: files in shared memory instead of bytes on a socket.

The sender writes a file under a random name; the receiver maps it and removes its name at once, so
that the memory is freed with the array. What a worker that was killed leaves behind is removed at
the end of the session.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from cfgraph.runtime.remote.codec import DecodeError

# smaller arrays are faster on the socket
MIN_SHARED_BYTES: Final = 1 << 20
NAME_BYTES: Final = 16
HOST_BYTES: Final = 16
_FOLDER: Final = Path("/dev/shm")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_UNKNOWN_HOST: Final = bytes(HOST_BYTES)


def host_identity() -> bytes:
    """Equal for processes that share memory, zeros if this one shares none."""
    try:
        place = _FOLDER.stat()
        boot = _BOOT_ID.read_bytes()
    except OSError:
        return _UNKNOWN_HOST
    return hashlib.sha256(b"%d %d %b" % (place.st_dev, place.st_ino, boot)).digest()[:HOST_BYTES]


def shares_memory(ours: bytes, theirs: bytes) -> bool:
    """True if two identities are those of one host."""
    return ours == theirs != _UNKNOWN_HOST


class SharedArrays:
    """The files of one session."""

    def __init__(self, secret: bytes) -> None:
        self._prefix = f"cfgraph-{hashlib.sha256(b'shared' + secret).hexdigest()[:16]}-"

    def write(self, parts: Sequence[bytes | memoryview]) -> bytes | None:
        """Write the parts of an array; return its name, or None if the memory is full."""
        name = secrets.token_bytes(NAME_BYTES)
        try:
            file = os.open(self._path(name), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        except OSError:
            return None
        try:
            # a write fills whole pages, where a mapping would clear them first
            for part in parts:
                rest = memoryview(part)
                while rest:
                    rest = rest[os.write(file, rest) :]
        except OSError:
            self._remove(self._path(name))
            return None
        finally:
            os.close(file)
        return name

    def read(self, name: bytes, size: int) -> Any:
        """The bytes of an array, mapped. Raises DecodeError for a file that no worker wrote."""
        path = self._path(name)
        try:
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError as error:
            raise DecodeError(f"a shared array is missing: {error.strerror}") from None
        try:
            status = os.fstat(file)
            if status.st_uid != os.getuid() or status.st_size != size or not size:
                raise DecodeError("a shared array of another size or owner")
            self._remove(path)
            flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
            try:
                mapped = mmap.mmap(file, size, flags)
            except OSError as error:
                raise DecodeError(f"a shared array cannot be mapped: {error.strerror}") from None
            return np.frombuffer(mapped, np.uint8)
        finally:
            os.close(file)

    def clear(self) -> None:
        """Remove the files that no worker has received."""
        for path in _FOLDER.glob(f"{self._prefix}*"):
            self._remove(path)

    def _path(self, name: bytes) -> Path:
        return _FOLDER / f"{self._prefix}{name.hex()}"

    @staticmethod
    def _remove(path: Path) -> None:
        with suppress(OSError):
            path.unlink()
