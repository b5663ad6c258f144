"""Messages between processes: a JSON header and arrays, length-prefixed on a private socket.

    magic "cfg1" │ length of the head │ length of the payload │ payload │ head

Head and payload are those of several values: the text of the header, and arrays. Descriptors of
open files follow the message that announces them.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import numpy as np

from cfgraph.processes.codec import decode_all, encode_all

_PREFIX: Final = struct.Struct("<4sQQ")
_MAGIC: Final = b"cfg1"
# of the head and the payload of a message
_MAX_HEAD_BYTES: Final = 1 << 26
_MAX_BODY_BYTES: Final = 1 << 34
# a shorter payload is sent with its head
_SMALL_BYTES: Final = 1 << 16
_MAX_DESCRIPTORS: Final = 253


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
    prefix, *rest = message_parts(message)
    parts, size = [prefix, *rest], sum(map(len, rest))
    if size <= _SMALL_BYTES:
        parts = [b"".join(parts)]
    try:
        for part in parts:
            _limit(connection, deadline)
            connection.sendall(part)
    except (BrokenPipeError, ConnectionResetError):
        raise ConnectionEnded from None


def message_parts(message: ProcessMessage) -> list[bytes | memoryview]:
    """The bytes of a message, in parts."""
    text = json.dumps({"header": dict(message.header), "arrays": [*message.arrays]}).encode()
    head, payload = encode_all([text, *map(as_array, message.arrays.values())])
    return [_PREFIX.pack(_MAGIC, len(head), sum(map(len, payload))), *payload, head]


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
    sizes = _sizes(_read(connection, _PREFIX.size, deadline), max_bytes)
    return _decoded(_read(connection, sum(sizes), deadline), *sizes)


def message_from_bytes(data: bytes) -> ProcessMessage:
    """The message of `message_parts`, whose arrays share the bytes. Raises MessageError."""
    try:
        sizes = _sizes(memoryview(data)[: _PREFIX.size], len(data))
        return _decoded(memoryview(data)[_PREFIX.size :], *sizes)
    except struct.error:
        raise MessageError("a message is longer") from None


def _sizes(prefix: memoryview, max_bytes: int) -> tuple[int, int]:
    """The bytes of the payload and of the head. Raises MessageError."""
    magic, head_size, body_size = _PREFIX.unpack(prefix)
    if magic != _MAGIC or head_size > _MAX_HEAD_BYTES or body_size > max_bytes:
        raise MessageError(f"a message cannot start with {bytes(prefix[:16])!r}")
    return body_size, head_size


def _decoded(body: memoryview, body_size: int, head_size: int) -> ProcessMessage:
    """The message of a payload and a head. Raises MessageError."""
    try:
        payload = np.frombuffer(body, np.uint8, body_size)
        text, *arrays = decode_all(body[body_size : body_size + head_size], payload)
        document = json.loads(text)
        names = document["arrays"]
        return ProcessMessage(dict(document["header"]), dict(zip(names, arrays, strict=True)))
    except MemoryError:
        raise
    except Exception as error:
        raise MessageError(f"invalid message: {error}") from None


def as_array(value: Any) -> Any:
    """The array of a value; texts are objects, as types of a fixed length drop zeros at the end."""
    array = np.asarray(value, object if isinstance(value, bytes | str) else None)
    return array.astype(object) if array.dtype.kind in "SU" else array


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
