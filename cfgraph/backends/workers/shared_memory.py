"""Large arrays between workers of one host: segments of shared memory instead of bytes on a socket.

    state (a page) | bytes of one message

The sender writes a segment into a file under a random name; the receiver maps it and removes the
name at once, so that nothing remains of workers that end. When the received array is no longer
used, the receiver marks the segment as free, and the sender writes its next message into it: new
memory would have to be cleared first, which takes longer than the copy. What a worker that was
killed leaves behind is removed at the end of the session.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import secrets
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from cfgraph.processes.codec import DecodeError

# smaller arrays are faster on the socket
MIN_SHARED_BYTES: Final = 1 << 20
NAME_BYTES: Final = 16
HOST_BYTES: Final = 16
_FOLDER: Final = Path("/dev/shm")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_UNKNOWN_HOST: Final = bytes(HOST_BYTES)
_STATE_BYTES: Final = mmap.PAGESIZE
# states of a segment: a receiver frees or drops it, the sender uses it again if it is free
_USED, _FREE, _DROPPED = 1, 2, 3
# each segment takes a file descriptor of both workers
_MAX_SEGMENTS: Final = 32
# free segments of a connection; those beyond are dropped
_MAX_FREE_BYTES: Final = 256 << 20
_POPULATED: Final = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)


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


class _Segment:
    """A mapped file, at one of its two ends."""

    __slots__ = ("memory",)

    def __init__(self, file: int, size: int, flags: int) -> None:
        self.memory = mmap.mmap(file, _STATE_BYTES + size, flags)

    @property
    def size(self) -> int:
        """The bytes of the largest message that it can have."""
        return len(self.memory) - _STATE_BYTES

    @property
    def state(self) -> int:
        """The state, which either end may have changed."""
        return self.memory[0]

    def set_state(self, state: int) -> None:
        """Change the state. Returns the memory of a dropped segment to the system."""
        if state == _DROPPED:
            with suppress(OSError):  # not all systems can; they free it when both ends are unmapped
                self.memory.madvise(mmap.MADV_REMOVE, _STATE_BYTES)
        self.memory[0] = state

    def array(self, size: int) -> Any:
        """The bytes of a message, which share the memory."""
        return np.frombuffer(self.memory, np.uint8, size, _STATE_BYTES)


class SharedArrays:
    """The segments of one connection, in both directions."""

    def __init__(self, secret: bytes) -> None:
        self._prefix = f"cfgraph-{hashlib.sha256(b'shared' + secret).hexdigest()[:16]}-"
        self._sent: dict[bytes, _Segment] = {}
        # with the received array; its callback frees the segment
        self._received: dict[bytes, tuple[_Segment, weakref.ref[Any]]] = {}

    def write(self, parts: Sequence[bytes | memoryview]) -> bytes | None:
        """Write the parts of a message; return its name, or None if there is no memory for it."""
        size = sum(map(len, parts))
        name = self._free_segment(size)
        if name is None:
            return self._write_file(parts, size)
        segment, position = self._sent[name], 0
        segment.set_state(_USED)
        array = segment.array(size)
        for part in parts:
            array[position : position + len(part)] = np.frombuffer(part, np.uint8)
            position += len(part)
        return name

    def _free_segment(self, size: int) -> bytes | None:
        """The name of a free segment for a message; None if a file has to be written."""
        states = {name: segment.state for name, segment in list(self._sent.items())}
        free = {name: self._sent[name].size for name in states if states[name] == _FREE}
        for name, state in states.items():
            if state == _DROPPED:
                del self._sent[name]
        fitting = [name for name, most in free.items() if size <= most <= 2 * size]
        if fitting:
            return min(fitting, key=free.__getitem__)
        # segments of other sizes are no longer needed
        for name, most in free.items():
            if sum(free.values()) + size > _MAX_FREE_BYTES or len(self._sent) >= _MAX_SEGMENTS:
                self._sent.pop(name).set_state(_DROPPED)
                free[name] -= most
        return None

    def _write_file(self, parts: Sequence[bytes | memoryview], size: int) -> bytes | None:
        """Write a message to a new segment; return its name, or None if the memory is full."""
        if len(self._sent) >= _MAX_SEGMENTS:
            return None
        name = secrets.token_bytes(NAME_BYTES)
        try:
            file = os.open(self._path(name), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        except OSError:
            return None
        try:
            # a write fills whole pages, where a mapping would clear them first
            for part in (bytes([_USED]).ljust(_STATE_BYTES, b"\0"), *parts):
                rest = memoryview(part)
                while rest:
                    rest = rest[os.write(file, rest) :]
            self._sent[name] = _Segment(file, size, mmap.MAP_SHARED)
        except OSError:
            self._remove(self._path(name))
            return None
        finally:
            os.close(file)
        return name

    def read(self, name: bytes, size: int) -> Any:
        """The bytes of a message. Raises DecodeError for one that no worker wrote."""
        known = self._received.get(name)
        if known is None:
            segment = self._open(name, size)
        elif known[1]() is None and known[0].state == _USED and 0 < size <= known[0].size:
            segment = known[0]
        else:
            raise DecodeError("a shared array of another size, or one that is in use")
        array = segment.array(size)
        self._received[name] = segment, weakref.ref(array, lambda _: self._release(name))
        return array

    def _open(self, name: bytes, size: int) -> _Segment:
        """Map the segment of a message, and remove its name."""
        path = self._path(name)
        try:
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError as error:
            raise DecodeError(f"a shared array is missing: {error.strerror}") from None
        try:
            status = os.fstat(file)
            is_ours = status.st_uid == os.getuid()
            if not is_ours or status.st_size != _STATE_BYTES + size or not size:
                raise DecodeError("a shared array of another size or owner")
            self._remove(path)
            try:
                return _Segment(file, size, _POPULATED)
            except OSError as error:
                raise DecodeError(f"a shared array cannot be mapped: {error.strerror}") from None
        finally:
            os.close(file)

    def _release(self, name: bytes) -> None:
        """Free the segment of an array that is no longer used, in the thread that used it last."""
        received = list(self._received.items())
        states = {each: segment.state for each, (segment, _) in received}
        sizes = {each: segment.size for each, (segment, _) in received}
        free = sum(sizes[each] for each, state in states.items() if state == _FREE)
        keeps = free + sizes[name] <= _MAX_FREE_BYTES
        self._received[name][0].set_state(_FREE if keeps else _DROPPED)
        for each, state in states.items():
            if state == _DROPPED or (each == name and not keeps):
                self._received.pop(each, None)

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
