"""Checkpoint reader: the index, a LevelDB table of sorted keys, and the shards of tensor data.

`PREFIX.index` is a table with a header, under the empty key, and one entry per tensor;
`PREFIX.data-00000-of-00001` and so on are the shards. Checksums are not verified.

A table ends in a footer of 48 bytes, which refers to the block that lists the other blocks. Each
entry of a block shares a prefix with the key of the previous one; a compression byte and a checksum
follow the block.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from cfgraph.errors import InvalidInput, Unsupported, UsageError
from cfgraph.ir.dtypes import DType
from cfgraph.ir.file_io import read_file
from cfgraph.ir.names import did_you_mean
from cfgraph.ir.serde.tensor import decode_shape
from cfgraph.ir.serde.wire import parse_message, read_varint, read_varints
from cfgraph.limits import reserve
from cfgraph.proto import tensor_bundle_pb2

_FOOTER_BYTES: Final = 48
_TABLE_MAGIC: Final = bytes.fromhex("57fb808b247547db")
# bytes of keys per byte of a table; more is an attack
_MAX_COMPRESSION_RATIO: Final = 20
_MAX_TRUSTED_BYTES: Final = 1 << 20


def table_entries(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a table, in order.

    Raises InvalidInput for an invalid table, Unsupported for a compressed one.
    """
    if len(data) < _FOOTER_BYTES or data[-len(_TABLE_MAGIC) :] != _TABLE_MAGIC:
        raise _table_error("the footer is missing")
    footer = _TableReader(data, len(data) - _FOOTER_BYTES, len(data))
    footer.handle()  # skip the metadata block
    remaining, key_bytes = len(data), 0
    allowance = max(_MAX_TRUSTED_BYTES, _MAX_COMPRESSION_RATIO * len(data))
    for _, where in _read_block(data, *footer.handle(), allowance):
        start, size = _TableReader(where, 0, len(where)).handle()
        remaining -= size
        if remaining < 0:
            raise _table_error("its blocks exceed the file size")
        for key, value in _read_block(data, start, size, allowance - key_bytes):
            key_bytes += len(key)
            yield key, value


def _read_block(
    data: bytes, start: int, size: int, allowance: int
) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a block, whose keys may take `allowance` bytes together."""
    end = start + size
    if end + 5 > len(data) or size < 4:
        raise _table_error("a block is outside of the file")
    if data[end]:
        raise Unsupported("compressed checkpoint indexes are not supported", code="CFG038")
    restarts = 4 * int.from_bytes(data[end - 4 : end], "little") + 4
    if restarts > size:
        raise _table_error("a block is shorter than declared")
    reader, key = _TableReader(data, start, end - restarts), b""
    while reader.offset < reader.end:
        shared, added, length = reader.varint(), reader.varint(), reader.varint()
        if shared > len(key):
            raise _table_error("a key is corrupt")
        key = key[:shared] + reader.read(added)
        allowance -= len(key)
        if allowance < 0:
            raise _table_error("its keys are too long")
        yield key, reader.read(length)


class _TableReader:
    """Reads numbers and bytes up to a bound."""

    def __init__(self, data: bytes, offset: int, end: int) -> None:
        self.data, self.offset, self.end = data, offset, end

    def varint(self) -> int:
        """Read a varint."""
        try:
            value, self.offset = read_varint(self.data, self.offset, self.end)
        except ValueError as error:
            raise _table_error(str(error)) from None
        return value

    def handle(self) -> tuple[int, int]:
        """Read the offset and the size of a block."""
        return self.varint(), self.varint()

    def read(self, size: int) -> bytes:
        """Read `size` bytes."""
        if self.offset + size > self.end:
            raise _table_error("it is incomplete")
        data = self.data[self.offset : self.offset + size]
        self.offset += size
        return data


def _table_error(reason: str) -> InvalidInput:
    hint = "the file may be truncated, or is not a checkpoint index"
    return InvalidInput(f"not a valid checkpoint index: {reason}", hint=hint, code="CFG038")


_MAX_SHARDS: Final = 100_000
_CHECKSUM_BYTES: Final = 4


class Checkpoint:
    """A checkpoint, by the prefix of its files; tensors are read on demand.

    `require_readable` is called with each path before it is opened, and raises if it may not be.
    Raises InvalidInput if the checkpoint is missing or its index is invalid.
    """

    def __init__(self, prefix: str, require_readable: Callable[[str], None] | None = None) -> None:
        self.prefix = prefix
        self._require_readable = require_readable or _allow
        index = f"{prefix}.index"
        self._require_readable(index)
        try:
            entries = dict(table_entries(read_file(index)))
            self.header = parse_message(
                tensor_bundle_pb2.BundleHeaderProto(), entries.pop(b"", b""), "checkpoint"
            )
        except (InvalidInput, Unsupported) as error:
            error.path = error.path or index
            raise
        shards = self.header.num_shards
        if not 0 < shards <= _MAX_SHARDS:
            raise InvalidInput(
                f"the checkpoint declares {shards} shards", path=index, code="CFG038"
            )
        if self.header.endianness:
            raise Unsupported("big-endian checkpoints are not supported", path=index, code="CFG038")
        self.entries = {key.decode(errors="surrogateescape"): data for key, data in entries.items()}

    def read(self, name: str) -> Any:
        """Read a tensor by its key.

        Raises UsageError for an unknown key, InvalidInput if its data is missing, Unsupported for a
        partitioned variable or one of objects.
        """
        if name not in self.entries:
            message = f"the checkpoint has no tensor {name!r}"
            raise UsageError(message, path=self.prefix, hint=did_you_mean(name, self.entries))
        try:
            entry = parse_message(tensor_bundle_pb2.BundleEntryProto(), self.entries[name], "entry")
        except InvalidInput as error:
            error.path = error.path or f"{self.prefix}.index"
            raise
        return self._tensor(name, entry)

    def _tensor(self, name: str, entry: Any) -> Any:
        dtype, shape = DType.from_number(entry.dtype), decode_shape(entry.shape)
        if entry.slices or shape.dims is None or not _is_stored_dtype(dtype):
            what = "in parts" if entry.slices else f"as {dtype}{shape}"
            message = f"the checkpoint stores {name!r} {what}, which is not supported"
            raise Unsupported(message, path=self.prefix, code="CFG038")
        sizes = tuple(size or 0 for size in shape.dims)
        count, data = math.prod(sizes), self._bytes(entry)
        if not dtype.is_object and len(data) != count * dtype.numpy.itemsize:
            raise _missing_bytes_error(self.prefix)
        flat = _decode_strings(data, count, self.prefix) if dtype.is_object else None
        try:
            if flat is None:
                return np.frombuffer(data, dtype.numpy).reshape(sizes)
            return flat.reshape(sizes)
        except ValueError as error:  # too many dimensions or elements for NumPy
            what = f"{name!r} with {len(sizes)} dimensions, which is not a valid shape: {error}"
            message = f"the checkpoint stores {what}"
            raise InvalidInput(message, path=self.prefix, code="CFG038") from None

    def _bytes(self, entry: Any) -> bytearray:
        shard = f"{self.prefix}.data-{entry.shard_id:05d}-of-{self.header.num_shards:05d}"
        self._require_readable(shard)
        try:
            with Path(shard).open("rb") as stream:
                # check before allocating the size that the index declares
                end = entry.offset + entry.size
                if entry.size < 0 or end > os.fstat(stream.fileno()).st_size:
                    raise _missing_bytes_error(shard)
                reserve(entry.size, "a tensor of the checkpoint")
                stream.seek(entry.offset)
                data = bytearray(entry.size)
                count = stream.readinto(data)
        except (OSError, ValueError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            message = f"the file cannot be read: {reason}"
            raise InvalidInput(message, path=shard, code="CFG001") from None
        if count != entry.size:
            raise _missing_bytes_error(shard)
        return data


def _allow(path: str) -> None:
    """Permit a file."""


def _is_stored_dtype(dtype: DType) -> bool:
    """True for a type whose data a checkpoint contains: numbers or strings."""
    return not dtype.is_ref and dtype.kind not in ("none", "resource", "variant")


def _decode_strings(data: bytearray, count: int, prefix: str) -> Any:
    """Decode strings: their lengths as varints, a checksum of these, and the contents."""
    try:
        lengths, offset = read_varints(data, count)
    except ValueError:
        raise _missing_bytes_error(prefix) from None
    offset += _CHECKSUM_BYTES
    if offset + sum(lengths) != len(data):
        raise _missing_bytes_error(prefix)
    strings = np.empty(count, object)
    for number, length in enumerate(lengths):
        strings[number] = bytes(data[offset : offset + length])
        offset += length
    return strings


def _missing_bytes_error(path: str) -> InvalidInput:
    message = "the checkpoint is truncated: data listed in its index is missing"
    return InvalidInput(message, path=path, code="CFG038")
