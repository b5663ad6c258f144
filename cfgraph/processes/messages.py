"""Messages between processes: a JSON header and arrays, length-prefixed on a private socket.

    magic "cfg1" │ length of the header │ length of the body │ header: JSON │ body: elements

Arrays are their bytes, each at a multiple of 16, and no pickle; their types are in the header.
Descriptors of open files follow the message that announces them.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import ml_dtypes  # noqa: F401 - registers the names of its types with NumPy
import numpy as np

_PREFIX: Final = struct.Struct("<4sQQ")
_MAGIC: Final = b"cfg1"
_ALIGNMENT: Final = 16
# of a header, and of the arrays of a message
_MAX_HEADER_BYTES: Final = 1 << 26
_MAX_BODY_BYTES: Final = 1 << 34
# a shorter body is sent with its header
_SMALL_BYTES: Final = 1 << 16
_MAX_DESCRIPTORS: Final = 253
_STRING: Final = "bytes"


class MessageError(Exception):
    """Bytes that are not a message."""


class ConnectionEnded(Exception):
    """The end of the connection, before a message or inside of one."""


@dataclass(frozen=True, slots=True)
class ProcessMessage:
    """A header of JSON values, and arrays by name."""

    header: Mapping[str, Any]
    arrays: Mapping[str, Any] = field(default_factory=dict)


def send(connection: socket.socket, message: ProcessMessage, deadline: float | None = None) -> None:
    """Send a message before a time of `time.monotonic`.

    Raises TimeoutError at the deadline, and ConnectionEnded if nothing reads the message.
    """
    types, parts, size = [], list[bytes | memoryview](), 0
    for name, value in message.arrays.items():
        array = np.asarray(value)
        item = {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
        data: bytes | memoryview
        if array.dtype.kind in "OSU":
            texts = [_as_bytes(text) for text in array.ravel().tolist()]
            item |= {"dtype": _STRING, "lengths": [len(text) for text in texts]}
            data = b"".join(texts)
        else:
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        types.append({**item, "offset": size, "bytes": len(data)})
        parts += [data, bytes(-len(data) % _ALIGNMENT)]
        size += len(data) + len(parts[-1])
    header = json.dumps({"header": dict(message.header), "arrays": types}).encode()
    prefix = _PREFIX.pack(_MAGIC, len(header), size)
    if size <= _SMALL_BYTES:
        prefix, header, parts = b"".join([prefix, header, *parts]), b"", []
    try:
        for part in (prefix, header, *parts):
            _limit(connection, deadline)
            connection.sendall(part)
    except (BrokenPipeError, ConnectionResetError):
        raise ConnectionEnded from None


def send_descriptors(connection: socket.socket, descriptors: Sequence[int]) -> None:
    """Send descriptors of open files, which the receiver expects."""
    for start in range(0, len(descriptors), _MAX_DESCRIPTORS):
        socket.send_fds(connection, [b"f"], list(descriptors[start : start + _MAX_DESCRIPTORS]))


def receive_descriptors(connection: socket.socket, count: int) -> list[int]:
    """Receive a number of descriptors. Raises MessageError if others arrive."""
    descriptors: list[int] = []
    while len(descriptors) < count:
        expected = min(count - len(descriptors), _MAX_DESCRIPTORS)
        _, arrived, _, _ = socket.recv_fds(connection, 1, expected)
        descriptors += arrived
        if len(arrived) != expected:
            raise MessageError(f"{len(arrived)} descriptors instead of {expected}")
    return descriptors


def receive(
    connection: socket.socket, deadline: float | None = None, max_bytes: int = _MAX_BODY_BYTES
) -> ProcessMessage:
    """Receive a message, with arrays of at most so many bytes, before a time of `time.monotonic`.

    Raises TimeoutError at the deadline, ConnectionEnded, and MessageError for other bytes.
    """
    prefix = _read(connection, _PREFIX.size, deadline)
    magic, header_size, body_size = _PREFIX.unpack(prefix)
    if magic != _MAGIC or header_size > _MAX_HEADER_BYTES or body_size > max_bytes:
        raise MessageError(f"a message cannot start with {bytes(prefix[:16])!r}")
    header = _read(connection, header_size, deadline)
    body = _read(connection, body_size, deadline)
    try:
        document = json.loads(str(header, "utf-8"))
        arrays = {item["name"]: _decoded(item, body) for item in document["arrays"]}
        return ProcessMessage(dict(document["header"]), arrays)
    except MemoryError:
        raise
    except Exception as error:
        raise MessageError(f"invalid message: {error}") from None


def _decoded(item: Any, body: memoryview) -> Any:
    """The array of an entry of the header, which shares the memory of the body."""
    data = body[item["offset"] : item["offset"] + item["bytes"]]
    shape = tuple(item["shape"])
    if item["dtype"] != _STRING:
        return np.frombuffer(data, np.uint8).view(np.dtype(item["dtype"])).reshape(shape)
    array, start = np.empty(len(item["lengths"]), object), 0
    for number, length in enumerate(item["lengths"]):
        array[number] = bytes(data[start : start + length])
        start += length
    return array.reshape(shape)


def _as_bytes(item: Any) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode()


def _limit(connection: socket.socket, deadline: float | None) -> None:
    """Let the next call of a socket end at a time. Raises TimeoutError after it."""
    left = None if deadline is None else deadline - monotonic()
    if left is not None and left <= 0:
        raise TimeoutError
    connection.settimeout(left)


def _read(connection: socket.socket, size: int, deadline: float | None) -> memoryview:
    # the system provides the memory as the bytes arrive, whatever size the sender names
    rest = data = np.empty(size, np.uint8).data
    while rest:
        _limit(connection, deadline)
        try:
            count = connection.recv_into(rest)
        except (ConnectionResetError, BrokenPipeError):
            count = 0
        if not count:
            raise ConnectionEnded
        rest = rest[count:]
    return data
