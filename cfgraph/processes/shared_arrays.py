"""Arrays in memory that two processes share: a file without a name, whose descriptor is passed on.

One file has many arrays, since the descriptors of a process are few. The size of the memory is
sealed, so that the other process cannot take a part of it away.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import weakref
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import accumulate
from math import prod
from typing import Any, Final

import numpy as np

from cfgraph.processes.messages import ProcessMessage

# smaller arrays are sent with the message; the buffer of a socket has three times as many bytes
MIN_SHARED_BYTES: Final = 1 << 16
_COMPARED_BYTES: Final = 1 << 18
# XLA uses values at such addresses as they are
_ALIGNMENT: Final = 64
# a shape, and the name of a type
SharedType = tuple[Sequence[int], str]


class SharedArray:
    """An array in shared memory, and the value that was copied into it last."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self._source: weakref.ref[Any] | None = None

    def store(self, value: Any) -> bool:
        """Copy a value of this shape and type; false if it is there already."""
        is_frozen = _is_frozen(value)
        if self._source is not None and is_frozen and self._source() is value:
            return False
        is_equal = self._source is not None and _has_equal_bytes(self.array, value)
        if not is_equal:
            np.copyto(self.array, value)
        self._source = weakref.ref(value)
        return not is_equal


def shared_memory(types: Sequence[SharedType]) -> tuple[list[int], list[SharedArray]]:
    """New memory for arrays: its descriptor, which is passed on and closed then, and the arrays.

    Both lists are empty if there is nothing to share, or the system has no such memory.
    """
    size = _offsets(types)[-1]
    if not size or not hasattr(os, "memfd_create"):
        return [], []
    with suppress(OSError), ExitStack() as opened:
        descriptor = os.memfd_create("cfgraph", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        opened.callback(os.close, descriptor)
        os.ftruncate(descriptor, size)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        arrays = [*map(SharedArray, mapped_arrays(descriptor, types))]
        opened.pop_all()
        return [descriptor], arrays
    return [], []


def shared_message(message: ProcessMessage) -> tuple[ProcessMessage, list[int]]:
    """A message whose large arrays are in memory of a descriptor, which is closed once it is sent.

    They are written to it without a place in the memory of this process.
    """
    large = {
        name: value
        for name, value in message.arrays.items()
        if value.nbytes >= MIN_SHARED_BYTES and not value.dtype.hasobject
    }
    types = [(value.shape, value.dtype.name) for value in large.values()]
    if not large or not hasattr(os, "memfd_create"):
        return ProcessMessage({**message.header, "shared": {}}, message.arrays), []
    descriptor = os.memfd_create("cfgraph", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, _offsets(types)[-1])
        for value, offset in zip(large.values(), _offsets(types), strict=False):
            _write(descriptor, np.ascontiguousarray(value).reshape(-1).view(np.uint8).data, offset)
    except BaseException:
        os.close(descriptor)
        raise
    shared = dict(zip(large, types, strict=True))
    arrays = {name: value for name, value in message.arrays.items() if name not in large}
    return ProcessMessage({**message.header, "shared": shared}, arrays), [descriptor]


def _write(descriptor: int, data: memoryview, offset: int) -> None:
    """Write all bytes; a call may write fewer."""
    while data:
        count = os.pwrite(descriptor, data, offset)
        data, offset = data[count:], offset + count


def received_arrays(message: ProcessMessage, descriptors: Sequence[int]) -> dict[str, Any]:
    """The arrays of a `shared_message`, whose descriptors are closed."""
    arrays, shared = dict(message.arrays), message.header["shared"]
    for descriptor in descriptors:
        arrays |= zip(shared, mapped_arrays(descriptor, [*shared.values()]), strict=True)
        os.close(descriptor)
    return arrays


def mapped_arrays(descriptor: int, types: Sequence[SharedType]) -> list[Any]:
    """The arrays in the memory of a descriptor, which may be closed then."""
    memory = mmap.mmap(descriptor, 0)
    return [
        np.ndarray(shape, np.dtype(name), memory, offset)
        for (shape, name), offset in zip(types, _offsets(types), strict=False)
    ]


def _offsets(types: Sequence[SharedType]) -> list[int]:
    """The places of arrays in their memory, and its size."""
    sizes = (prod(shape) * np.dtype(name).itemsize for shape, name in types)
    return [*accumulate((-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes), initial=0)]


def _is_frozen(value: Any) -> bool:
    """True for an array that nobody can write to, whose contents are those of its identity."""
    while isinstance(value, np.ndarray):
        if value.flags.writeable:
            return False
        value = value.base
    return value is None or isinstance(value, bytes)


def _has_equal_bytes(stored: Any, value: Any) -> bool:
    """True for equal contents, which are read up to the first difference."""
    if not value.flags.c_contiguous:
        return False
    ours, theirs = (array.reshape(-1).view(np.uint8) for array in (stored, value))
    parts = (
        slice(start, start + _COMPARED_BYTES) for start in range(0, len(ours), _COMPARED_BYTES)
    )
    return all(np.array_equal(ours[part], theirs[part]) for part in parts)
