"""Checkpoints: the index, a LevelDB table of sorted keys, and the shards of tensor data.

`PREFIX.index` is a table with a header, under the empty key, and one entry per tensor;
`PREFIX.data-00000-of-00001` and so on are the shards. The writer writes one shard, which TensorFlow
reads (`tf.train.load_checkpoint`, `Saver.restore`); formats: `BundleWriter` in
tensorflow/core/util/tensor_bundle, and the table format of LevelDB. The checksums are CRC32C,
masked as LevelDB does, since a checksum of bytes that hold checksums is weak. Those of tensors are
verified when a tensor is read, those of the blocks of an index are not.

A table ends in a footer of 48 bytes, which refers to the block that lists the other blocks. Each
entry of a block shares a prefix with the key of the previous one; a compression byte and a checksum
follow the block."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from cfgraph.errors import InvalidInput, Unsupported, UsageError
from cfgraph.ir.attrs import aligned_empty
from cfgraph.ir.dtypes import DType, string
from cfgraph.ir.file_io import StagedFiles, read_file
from cfgraph.ir.names import did_you_mean
from cfgraph.ir.serde.snappy import decompress
from cfgraph.ir.serde.tensor import decode_shape
from cfgraph.ir.serde.varints import read_varint, read_varints, write_varint
from cfgraph.ir.serde.wire import parse_message
from cfgraph.limits import reserve
from cfgraph.proto import tensor_bundle_pb2

_FOOTER_BYTES: Final = 48
_TABLE_MAGIC: Final = bytes.fromhex("57fb808b247547db")
# bytes of keys per byte of a table; more is an attack
_MAX_COMPRESSION_RATIO: Final = 20
_MAX_TRUSTED_BYTES: Final = 1 << 20
# the compression of a block
_PLAIN: Final = 0
_SNAPPY: Final = 1


def table_entries(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a table, in order.

    Raises InvalidInput for an invalid table, Unsupported for an unknown compression.
    """
    if len(data) < _FOOTER_BYTES or data[-len(_TABLE_MAGIC) :] != _TABLE_MAGIC:
        raise _table_error("the footer is missing")
    footer = _TableReader(data, len(data) - _FOOTER_BYTES, len(data))
    footer.handle()  # skip the metadata block
    remaining, key_bytes = len(data), 0
    index = _block(data, *footer.handle())
    allowance = max(_MAX_TRUSTED_BYTES, _MAX_COMPRESSION_RATIO * len(data))
    for _, where in _read_block(index, allowance):
        start, size = _TableReader(where, 0, len(where)).handle()
        remaining -= size
        if remaining < 0:
            raise _table_error("its blocks exceed the file size")
        block = _block(data, start, size)
        allowance += _MAX_COMPRESSION_RATIO * (len(block) - size)
        for key, value in _read_block(block, allowance - key_bytes):
            key_bytes += len(key)
            yield key, value


def _block(data: bytes, start: int, size: int) -> bytes:
    """The contents of a block, decompressed."""
    end = start + size
    if end + 5 > len(data) or size < 4:
        raise _table_error("a block is outside of the file")
    if data[end] not in (_PLAIN, _SNAPPY):
        message = f"checkpoint indexes with compression {data[end]} are not supported"
        raise Unsupported(message, code="CFG038")
    block = data[start:end]
    try:
        return block if data[end] == _PLAIN else decompress(block)
    except ValueError as error:
        raise _table_error(str(error)) from None


def _read_block(data: bytes, allowance: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a block, whose keys may take `allowance` bytes together."""
    restarts = 4 * int.from_bytes(data[-4:], "little") + 4
    if restarts > len(data):
        raise _table_error("a block is shorter than declared")
    reader, key = _TableReader(data, 0, len(data) - restarts), b""
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
        flat = _decode_strings(bytearray(data), count, self.prefix) if dtype.is_object else None
        checksum = _extended(0, data) if flat is None else _string_checksums(flat)[1]
        if entry.crc32c not in (0, _masked(checksum)):
            message = f"the checkpoint is corrupt: the checksum of {name!r} does not match its data"
            hint = "TensorFlow does not read it either; copy or export it again"
            raise InvalidInput(message, path=self.prefix, hint=hint, code="CFG038")
        try:
            if flat is None:
                return data.view(dtype.numpy).reshape(sizes)
            return flat.reshape(sizes)
        except ValueError as error:  # too many dimensions or elements for NumPy
            what = f"{name!r} with {len(sizes)} dimensions, which is not a valid shape: {error}"
            message = f"the checkpoint stores {what}"
            raise InvalidInput(message, path=self.prefix, code="CFG038") from None

    def _bytes(self, entry: Any) -> Any:
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
                data = aligned_empty((entry.size,), np.dtype(np.uint8))
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


DATA_SUFFIX: Final = ".data-00000-of-00001"

_HANDLES_BYTES: Final = 40
_BLOCK_BYTES: Final = 1 << 18
_RESTART_INTERVAL: Final = 16
_BUNDLE_VERSION: Final = 1
_MASK_DELTA: Final = 0xA282EAD8
_UINT32: Final = struct.Struct("<I")


def write_checkpoint(files: StagedFiles, prefix: str, tensors: Mapping[str, Any]) -> list[str]:
    """Write tensors as `PREFIX.index` and `PREFIX.data-00000-of-00001`; return both paths.

    Raises Unsupported for a tensor of resources or variants, and UsageError for a path that cannot
    be written.
    """
    data = files.open(prefix + DATA_SUFFIX)
    header = tensor_bundle_pb2.BundleHeaderProto(num_shards=1)
    header.version.producer = _BUNDLE_VERSION
    entries = [(b"", header.SerializeToString(deterministic=True))]
    for name, value in sorted((name.encode(), value) for name, value in tensors.items()):
        entry = _write_tensor(data, name, np.asarray(value))
        entries.append((name, entry.SerializeToString(deterministic=True)))
    files.open(prefix + ".index").write(table(entries))
    return [prefix + ".index", prefix + DATA_SUFFIX]


def _write_tensor(data: IO[bytes], name: bytes, array: Any) -> Any:
    """Append the elements of a tensor; return its entry of the index."""
    offset = data.tell()
    if array.dtype.hasobject:
        checksum = _write_strings(data, name, array)
        number = string.number
    else:
        elements = np.ascontiguousarray(array).tobytes()
        checksum, number = _extended(0, elements), DType.from_numpy(array.dtype).number
        data.write(elements)
    entry: Any = tensor_bundle_pb2.BundleEntryProto(
        offset=offset, size=data.tell() - offset, crc32c=_masked(checksum)
    )
    entry.dtype = number
    for size in array.shape:
        entry.shape.dim.add(size=size)
    entry.shape.SetInParent()
    return entry


def _write_strings(data: IO[bytes], name: bytes, array: Any) -> int:
    """Append the lengths of strings, their checksum, and the strings; return the checksum."""
    strings = list(array.flat)
    if not all(isinstance(text, bytes) for text in strings):
        shown = name.decode("utf-8", "backslashreplace")
        raise Unsupported(f"{shown!r} holds no numbers or strings, which a checkpoint stores")
    of_lengths, checksum = _string_checksums(strings)
    data.writelines(write_varint(len(text)) for text in strings)
    data.write(of_lengths)
    data.writelines(strings)
    return checksum


def _string_checksums(strings: Iterable[bytes]) -> tuple[bytes, int]:
    """The checksum of the lengths as it is stored, and that of lengths, checksum, and contents."""
    checksum = 0
    for size in map(len, strings):
        checksum = _extended(checksum, size.to_bytes(4 if size < 1 << 32 else 8, "little"))
    of_lengths = _UINT32.pack(_masked(checksum))
    for text in (of_lengths, *strings):
        checksum = _extended(checksum, text)
    return of_lengths, checksum


def table(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A table of entries that are sorted by key."""
    contents, index = bytearray(), _TableBlock(restart_interval=1)
    block = _TableBlock()
    last = b""
    for key, value in entries:
        if block.size >= _BLOCK_BYTES:
            index.add(last, _append_block(contents, block))
            block = _TableBlock()
        block.add(key, value)
        last = key
    index.add(last, _append_block(contents, block))
    handles = _append_block(contents, _TableBlock()) + _append_block(contents, index)
    return bytes(contents) + handles.ljust(_HANDLES_BYTES, b"\0") + _TABLE_MAGIC


def _append_block(contents: bytearray, block: _TableBlock) -> bytes:
    """Append a block with its compression, none, and checksum; return its offset and size."""
    data = block.finish()
    handle = write_varint(len(contents)) + write_varint(len(data))
    contents += data + b"\0" + _UINT32.pack(_masked(_extended(0, data + b"\0")))
    return handle


class _TableBlock:
    """Entries whose keys share prefixes with the key before, except at restarts."""

    def __init__(self, restart_interval: int = _RESTART_INTERVAL) -> None:
        self._data = bytearray()
        self._restarts = [0]
        self._interval = restart_interval
        self._count = 0
        self._last = b""

    @property
    def size(self) -> int:
        """The bytes of all entries."""
        return len(self._data)

    def add(self, key: bytes, value: bytes) -> None:
        """Append an entry; keys come in ascending order."""
        shared = 0
        if self._count and self._count % self._interval == 0:
            self._restarts.append(len(self._data))
        elif self._count:
            most = min(len(key), len(self._last))
            while shared < most and key[shared] == self._last[shared]:
                shared += 1
        self._data += (
            write_varint(shared) + write_varint(len(key) - shared) + write_varint(len(value))
        )
        self._data += key[shared:] + value
        self._last = key
        self._count += 1

    def finish(self) -> bytes:
        """The block: its entries, the offsets of the restarts, and their number."""
        restarts = b"".join(map(_UINT32.pack, self._restarts))
        return bytes(self._data) + restarts + _UINT32.pack(len(self._restarts))


def _extended(checksum: int, data: bytes | bytearray) -> int:
    """The CRC32C of the bytes of a checksum followed by `data`."""
    import google_crc32c

    # the package takes no bytearray
    contents = data if isinstance(data, bytes) else np.frombuffer(data, np.uint8)
    return int(google_crc32c.extend(checksum, contents))


def _masked(checksum: int) -> int:
    rotated = (checksum >> 15 | checksum << 17) & 0xFFFFFFFF
    return (rotated + _MASK_DELTA) & 0xFFFFFFFF
