"""Messages between processes: a JSON header and arrays, length-prefixed on a private socket.

    magic "cfg1" │ length of the header │ length of the body │ header: JSON │ body: an npz archive

Arrays are their bytes, so that the archive needs no pickle; their types are in the header.
"""

from __future__ import annotations

import io
import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import ml_dtypes  # noqa: F401 - registers the names of its types with NumPy
import numpy as np

_PREFIX: Final = struct.Struct("<4sQQ")
_MAGIC: Final = b"cfg1"
# of a header, and of the arrays of a message
_MAX_HEADER_BYTES: Final = 1 << 26
_MAX_BODY_BYTES: Final = 1 << 34
_CHUNK_BYTES: Final = 1 << 20
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
    types, stored = [], {}
    for number, (name, value) in enumerate(message.arrays.items()):
        array = np.asarray(value)
        if array.dtype.kind in "OSU":
            texts = [_as_bytes(item) for item in array.ravel().tolist()]
            stored[f"l{number}"] = np.array([len(text) for text in texts], np.int64)
            data = b"".join(texts)
        else:
            data = np.ascontiguousarray(array).tobytes()
        stored[f"a{number}"] = np.frombuffer(data, np.uint8)
        dtype = _STRING if f"l{number}" in stored else array.dtype.name
        types.append({"name": name, "dtype": dtype, "shape": list(array.shape)})
    header = json.dumps({"header": dict(message.header), "arrays": types}).encode()
    body = io.BytesIO()
    if stored:
        np.savez(body, allow_pickle=False, **stored)
    _limit(connection, deadline)
    try:
        connection.sendall(_PREFIX.pack(_MAGIC, len(header), body.tell()) + header)
        connection.sendall(body.getbuffer())
    except (BrokenPipeError, ConnectionResetError):
        raise ConnectionEnded from None


def receive(connection: socket.socket, deadline: float | None = None) -> ProcessMessage:
    """Receive a message before a time of `time.monotonic`.

    Raises TimeoutError at the deadline, ConnectionEnded, and MessageError for other bytes.
    """
    prefix = _read(connection, _PREFIX.size, deadline)
    magic, header_size, body_size = _PREFIX.unpack(prefix)
    if magic != _MAGIC or header_size > _MAX_HEADER_BYTES or body_size > _MAX_BODY_BYTES:
        raise MessageError(f"a message cannot start with {prefix[:16]!r}")
    header = _read(connection, header_size, deadline)
    body = _read(connection, body_size, deadline)
    try:
        document = json.loads(header)
        arrays = _decode_arrays(document["arrays"], body)
        return ProcessMessage(dict(document["header"]), arrays)
    except MemoryError:
        raise
    except Exception as error:
        raise MessageError(f"invalid message: {error}") from None


def _decode_arrays(types: Any, body: bytes) -> dict[str, Any]:
    if not types:
        return {}
    arrays = {}
    with np.load(io.BytesIO(body), allow_pickle=False) as archive:
        for number, item in enumerate(types):
            data, shape = archive[f"a{number}"], tuple(item["shape"])
            if item["dtype"] == _STRING:
                arrays[item["name"]] = _strings(data, archive[f"l{number}"], shape)
            else:
                arrays[item["name"]] = np.frombuffer(data, np.dtype(item["dtype"])).reshape(shape)
    return arrays


def _strings(data: Any, lengths: Any, shape: tuple[int, ...]) -> Any:
    raw, start = data.tobytes(), 0
    array = np.empty(len(lengths), object)
    for number, length in enumerate(lengths.tolist()):
        array[number] = raw[start : start + length]
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


def _read(connection: socket.socket, size: int, deadline: float | None) -> bytes:
    chunks, missing = [], size
    while missing:
        _limit(connection, deadline)
        try:
            chunk = connection.recv(min(missing, _CHUNK_BYTES))
        except (ConnectionResetError, BrokenPipeError):
            chunk = b""
        if not chunk:
            raise ConnectionEnded
        chunks.append(chunk)
        missing -= len(chunk)
    return b"".join(chunks)
