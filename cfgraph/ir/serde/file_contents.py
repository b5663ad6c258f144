"""Contents of large tensors, left in their file until a tensor is decoded or written.

Of a file with large contents only the rest is read. Each content is replaced by a reference, random
bytes and a position, so that messages are parsed, copied, and edited as usual:

    tensor { dtype: DT_FLOAT tensor_content: <16 MiB> }
    -->  tensor { dtype: DT_FLOAT tensor_content: <40 bytes> }

`content_of` reads one content. Whatever is written has the contents again (`message_pieces`).
A file is closed when no tensor or function refers to it any more (`file_of`, `open_files`).
"""

from __future__ import annotations

import gc
import os
import stat
import struct
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from cfgraph.errors import InvalidInput
from cfgraph.ir.file_io import MAX_BYTES, read_file, require_readable_size
from cfgraph.ir.serde.varints import read_varint, write_varint

# late imports: few files are large

MIN_FILE_BYTES: Final = 64 << 20
MIN_CONTENT_BYTES: Final = 1 << 16
_MAX_FILES: Final = 8
# a file of many small records is faster to parse than to search for contents
_MIN_RECORD_BYTES: Final = 1 << 12
_WINDOW_BYTES: Final = 1 << 16
_PIECE_BYTES: Final = 1 << 20
_KEY: Final = os.urandom(16)
# the number of the file, the offset, and the size
_POSITION: Final = struct.Struct("<QQQ")
_REFERENCE_BYTES: Final = len(_KEY) + _POSITION.size

# fields from a message to a content: tensor_content of tensor of value of attr
_Fields = Mapping[int, Any]
_NODE: Final[_Fields] = {5: {2: {8: {4: None}}}}
# node; function of library
_GRAPH_DEF: Final[_Fields] = {1: _NODE, 2: {1: {3: _NODE}}}
# graph_def of meta_graphs
_SAVED_MODEL: Final[_Fields] = {2: {2: _GRAPH_DEF}}
_SAVED_MODEL_START: Final = 0x08


class FileSkeleton(bytes):
    """The bytes of a file with references to its contents; `file` has the whole."""

    file: OpenFile


class OpenFile:
    """An open file, and its state when it was read. It is closed when nothing refers to it."""

    def __init__(self, path: Path, status: os.stat_result) -> None:
        self.descriptor = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self.descriptor)
        self.size, self.modified = status.st_size, status.st_mtime_ns

    def pieces(self, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        """The bytes of a range. Raises InvalidInput if the file has changed or is unreadable."""
        end = self.size if size is None else offset + size
        while offset < end:
            piece = self.read(offset, min(end - offset, _PIECE_BYTES))
            offset += len(piece)
            yield piece

    def read(self, offset: int, size: int) -> bytes:
        """At most `size` bytes. Raises as `pieces`."""
        try:
            piece = os.pread(self.descriptor, size, offset)
            status = os.fstat(self.descriptor)
        except OSError as error:
            message = f"the file cannot be read: {error.strerror}"
            raise InvalidInput(message, code="CFG001") from None
        if not piece or (status.st_size, status.st_mtime_ns) != (self.size, self.modified):
            message = "the file of the graph has changed since it was loaded"
            raise InvalidInput(message, hint="load the graph again", code="CFG003")
        return piece


class _Content(NamedTuple):
    file: OpenFile
    offset: int
    size: int


# by their numbers in references; never shorter, so that no number has two meanings
_files: list[weakref.ref[OpenFile]] = []
_lock: Final = Lock()


def read_skeleton(path: Path) -> FileSkeleton | None:
    """The skeleton of a large file, or None for a file that is to be read as a whole.

    Raises OSError as `open`.
    """
    status = path.stat()
    is_large = MIN_FILE_BYTES <= status.st_size <= MAX_BYTES and stat.S_ISREG(status.st_mode)
    if not is_large or not hasattr(os, "pread"):
        return None
    with _lock:
        if _open_count():
            gc.collect()  # graphs have cycles, and a deleted file takes space until it is closed
        if _open_count() >= _MAX_FILES:
            return None
        file = OpenFile(path, status)
        skeleton = _Detacher(file, len(_files)).skeleton()
        if skeleton is not None:
            _files.append(weakref.ref(file))
        return skeleton


def read_graph_file(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file, or of the graph in the folder of a SavedModel.

    Raises InvalidInput if there is none, or if it is unreadable or too large.
    """
    return read_file(path, read_skeleton)


def _open_count() -> int:
    return sum(file() is not None for file in _files)


class _Detacher:
    """Reads a file without its contents. Positions are offsets in the file."""

    def __init__(self, file: OpenFile, number: int) -> None:
        self.file = file
        self.number = number
        self.content_bytes = 0
        self.records_left = file.size // _MIN_RECORD_BYTES
        self.start = 0
        self.window = b""

    def skeleton(self) -> FileSkeleton | None:
        """The file with references; None if it has few contents, or is not a graph."""
        try:
            is_saved_model = self.file.read(0, 1)[0] == _SAVED_MODEL_START
            fields = _SAVED_MODEL if is_saved_model else _GRAPH_DEF
            data = self.message(0, self.file.size, fields)
        except (InvalidInput, ValueError):
            return None  # the parser reports what is wrong
        if self.content_bytes < self.file.size // 2:
            return None
        skeleton = FileSkeleton(data)
        skeleton.file = self.file
        return skeleton

    def message(self, start: int, end: int, fields: _Fields) -> bytes:
        """The bytes of a message with references."""
        parts, copied, position = [], start, start
        while position < end:
            self.records_left -= 1
            if self.records_left < 0:
                raise ValueError("too many records")
            tag, after_tag = self.varint(position, end)
            payload, position = self.payload(tag & 7, after_tag, end)
            size = position - payload
            if tag >> 3 not in fields or tag & 7 != 2 or size < MIN_CONTENT_BYTES:
                continue
            parts.append(self.copy(copied, after_tag))
            inner = fields[tag >> 3]
            data = (
                self.reference(payload, size)
                if inner is None
                else self.message(payload, position, inner)
            )
            parts += [write_varint(len(data)), data]
            copied = position
        parts.append(self.copy(copied, end))
        return b"".join(parts)

    def reference(self, offset: int, size: int) -> bytes:
        self.content_bytes += size
        return _KEY + _POSITION.pack(self.number, offset, size)

    def copy(self, start: int, end: int) -> bytes:
        offset = start - self.start
        if offset >= 0 and end - self.start <= len(self.window):
            return self.window[offset : end - self.start]
        return b"".join(self.file.pieces(start, end - start))

    def varint(self, position: int, end: int) -> tuple[int, int]:
        offset = position - self.start
        if not 0 <= offset < len(self.window) - 10:
            self.start, offset = position, 0
            self.window = self.file.read(position, _WINDOW_BYTES)
        limit = min(end - self.start, len(self.window))
        number, after = read_varint(self.window, offset, limit)
        return number, self.start + after

    def payload(self, kind: int, position: int, end: int) -> tuple[int, int]:
        """The start and the end of a field's payload. Raises ValueError if there is none."""
        start = position
        if kind == 0:
            _, position = self.varint(position, end)
        elif kind in (1, 5):
            position += 8 if kind == 1 else 4
        elif kind == 2:
            size, start = self.varint(position, end)
            position = start + size
        else:
            raise ValueError("an unknown kind of field")
        if position > end:
            raise ValueError("a field is incomplete")
        return start, position


def file_pieces(data: bytes) -> Iterator[bytes]:
    """The bytes of a file that was read, as a whole or as a skeleton."""
    return data.file.pieces() if isinstance(data, FileSkeleton) else iter((data,))


def file_size(data: bytes) -> int:
    """The size of a file that was read, as a whole or as a skeleton."""
    return data.file.size if isinstance(data, FileSkeleton) else len(data)


# -- contents of references ----------------------------------------------------------------------


def _referenced(data: bytes) -> _Content | None:
    if len(data) != _REFERENCE_BYTES or not data.startswith(_KEY):
        return None
    return _content_at(data, 0)


def _content_at(data: bytes, key: int) -> _Content:
    """The content of the reference at a position in an encoded message."""
    number, offset, size = _POSITION.unpack_from(data, key + len(_KEY))
    file = _files[number]()
    if file is None:
        message = "the file of the graph has been closed"
        raise InvalidInput(message, hint="load the graph again", code="CFG003")
    return _Content(file, offset, size)


def file_of(tensor: Any) -> OpenFile | None:
    """The file with the content of a TensorProto, which its owner holds open; None without one."""
    content = _referenced(tensor.tensor_content) if _files else None
    return None if content is None else content.file


def open_files(message: Any) -> tuple[OpenFile, ...]:
    """The files with contents of any message, which its owner holds open."""
    if not _open_count():
        return ()
    data: bytes = message.SerializeToString()
    files, key = [], data.find(_KEY)
    while key >= 0:
        files.append(_content_at(data, key).file)
        key = data.find(_KEY, key + _REFERENCE_BYTES)
    return tuple(dict.fromkeys(files))


def content_size(data: bytes) -> int:
    """The size of a content that may be a reference."""
    content = _referenced(data)
    return len(data) if content is None else content.size


def content_of(data: bytes) -> bytes | bytearray:
    """A content that may be a reference. Raises InvalidInput if its file has changed."""
    content = _referenced(data)
    if content is None:
        return data
    whole, offset = bytearray(content.size), 0
    for piece in content.file.pieces(content.offset, content.size):
        whole[offset : offset + len(piece)] = piece
        offset += len(piece)
    return whole


def content_digest(data: bytes) -> bytes | None:
    """A digest of the content of a reference, else None. Raises as `content_of`."""
    content = _referenced(data)
    if content is None:
        return None
    from hashlib import blake2b

    digest = blake2b()
    for piece in content.file.pieces(content.offset, content.size):
        digest.update(piece)
    return digest.digest()


def has_references(data: bytes) -> bool:
    """True if an encoded message has references."""
    return bool(_files) and _KEY in data


def message_pieces(data: bytes, descriptor: Any) -> Iterator[bytes]:
    """The bytes of an encoded message with all contents.

    Raises as `content_of`, and InvalidInput if the message is too large, before the first bytes.
    """
    parts: Sequence[bytes | _Content] = [data]
    if has_references(data):
        parts = _expanded(data, descriptor)
    require_readable_size(_total_size(parts))
    return chain.from_iterable(map(_part_pieces, parts))


def _part_pieces(part: bytes | _Content) -> Iterable[bytes]:
    return (part,) if isinstance(part, bytes) else part.file.pieces(part.offset, part.size)


def _expanded(data: bytes, descriptor: Any) -> list[bytes | _Content]:
    """An encoded message in parts, with contents instead of references."""
    parts: list[bytes | _Content] = []
    copied = position = 0
    key = data.find(_KEY)
    while key >= 0:
        tag, after_tag = read_varint(data, position, len(data))
        if tag & 7 == 2:
            size, payload = read_varint(data, after_tag, len(data))
            position = payload + size
        else:
            position = payload = _after_number(data, tag & 7, after_tag)
        if position <= key:
            continue
        inner = _expanded_payload(data[payload:position], descriptor.fields_by_number[tag >> 3])
        parts += [data[copied:after_tag], write_varint(_total_size(inner))]
        parts += inner
        copied, key = position, data.find(_KEY, position)
    parts.append(data[copied:])
    return parts


def _total_size(parts: Sequence[bytes | _Content]) -> int:
    return sum(len(part) if isinstance(part, bytes) else part.size for part in parts)


def _expanded_payload(payload: bytes, field: Any) -> list[bytes | _Content]:
    if field.message_type is not None:
        return _expanded(payload, field.message_type)
    return [_referenced(payload) or payload]


def _after_number(data: bytes, kind: int, position: int) -> int:
    if kind == 0:
        return read_varint(data, position, len(data))[1]
    return position + (8 if kind == 1 else 4)
