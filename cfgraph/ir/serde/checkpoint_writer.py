"""Checkpoint writer: one shard of tensor data, and the index, a LevelDB table of sorted keys.

TensorFlow reads the files (`tf.train.load_checkpoint`, `Saver.restore`). Formats: `BundleWriter` in
tensorflow/core/util/tensor_bundle, and the table format of LevelDB. Checksums are CRC32C, masked as
LevelDB does, since a checksum of bytes that hold checksums is weak.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import IO, Any, Final

import numpy as np

from cfgraph.errors import Unsupported
from cfgraph.ir.dtypes import DType, string
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.serde.wire import write_varint
from cfgraph.proto import tensor_bundle_pb2

DATA_SUFFIX: Final = ".data-00000-of-00001"
_TABLE_MAGIC: Final = bytes.fromhex("57fb808b247547db")
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
    checksum = 0
    for text in strings:
        data.write(write_varint(len(text)))
        checksum = _extended(
            checksum, len(text).to_bytes(4 if len(text) < 1 << 32 else 8, "little")
        )
    masked = _UINT32.pack(_masked(checksum))
    data.write(masked)
    checksum = _extended(checksum, masked)
    for text in strings:
        data.write(text)
        checksum = _extended(checksum, text)
    return checksum


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


def _extended(checksum: int, data: bytes) -> int:
    """The CRC32C of the bytes of a checksum followed by `data`."""
    import google_crc32c

    return int(google_crc32c.extend(checksum, data))


def _masked(checksum: int) -> int:
    rotated = (checksum >> 15 | checksum << 17) & 0xFFFFFFFF
    return (rotated + _MASK_DELTA) & 0xFFFFFFFF
