"""The tensors of a checkpoint: an index, and shards that hold their bytes.

`PREFIX.index` is a sorted table of a header, under the empty key, and an entry a tensor;
`PREFIX.data-00000-of-00001` and so on are the shards. The checksums of the bytes are not compared.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, Final

import numpy as np

from cfgraph.errors import InvalidInput, Unsupported, UsageError
from cfgraph.ir.dtypes import DType
from cfgraph.ir.file_bytes import read_file
from cfgraph.ir.names import did_you_mean
from cfgraph.ir.serde_tensor import decode_shape
from cfgraph.ir.serde_wire import parse
from cfgraph.ir.sorted_table import entries
from cfgraph.ir.varint import varints
from cfgraph.proto import tensor_bundle_pb2

_MAX_SHARDS: Final = 100_000
_LENGTHS_CHECKSUM: Final = 4


class Checkpoint:
    """A checkpoint by the prefix of its files; the bytes of a tensor are read when it is asked for.

    Raises InvalidInput where there is none, or its index says what cannot be.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        index = f"{prefix}.index"
        try:
            found = dict(entries(read_file(index)))
            self.header = parse(
                tensor_bundle_pb2.BundleHeaderProto(), found.pop(b"", b""), "checkpoint"
            )
        except (InvalidInput, Unsupported) as error:
            error.path = error.path or index
            raise
        shards = self.header.num_shards
        if not 0 < shards <= _MAX_SHARDS:
            raise InvalidInput(f"a checkpoint in {shards} shards", path=index, code="CFG038")
        if self.header.endianness:
            raise Unsupported("the numbers in it are big-endian", path=index, code="CFG038")
        self.entries = {key.decode(errors="surrogateescape"): data for key, data in found.items()}

    def read(self, name: str) -> Any:
        """A tensor by its key.

        Raises UsageError where there is no such key, InvalidInput where its bytes are not there,
        Unsupported for a variable that is kept in parts, and for one of objects.
        """
        if name not in self.entries:
            message = f"the checkpoint has no tensor {name!r}"
            raise UsageError(message, path=self.prefix, hint=did_you_mean(name, self.entries))
        try:
            entry = parse(tensor_bundle_pb2.BundleEntryProto(), self.entries[name], "entry")
        except InvalidInput as error:
            error.path = error.path or f"{self.prefix}.index"
            raise
        return self._tensor(name, entry)

    def _tensor(self, name: str, entry: Any) -> Any:
        dtype, shape = DType.of(entry.dtype), decode_shape(entry.shape)
        if entry.slices or shape.dims is None or not _is_kept(dtype):
            what = "in parts" if entry.slices else f"as {dtype}{shape}"
            message = f"the checkpoint keeps {name!r} {what}"
            raise Unsupported(message, path=self.prefix, code="CFG038")
        sizes = tuple(size or 0 for size in shape.dims)
        count, data = math.prod(sizes), self._bytes(entry)
        if not dtype.is_object and len(data) != count * dtype.numpy.itemsize:
            raise _lacking(self.prefix)
        flat = _strings(data, count, self.prefix) if dtype.is_object else None
        try:
            if flat is None:
                return np.frombuffer(data, dtype.numpy).reshape(sizes).copy()
            return flat.reshape(sizes)
        except ValueError as error:  # NumPy knows how many sizes an array has, and how large ones
            what = f"{name!r} of {len(sizes)} sizes, which no array has: {error}"
            message = f"the checkpoint keeps {what}"
            raise InvalidInput(message, path=self.prefix, code="CFG038") from None

    def _bytes(self, entry: Any) -> bytes:
        shard = f"{self.prefix}.data-{entry.shard_id:05d}-of-{self.header.num_shards:05d}"
        try:
            with Path(shard).open("rb") as stream:
                # before any memory is taken for what the index says
                end = entry.offset + entry.size
                if entry.size < 0 or end > os.fstat(stream.fileno()).st_size:
                    raise _lacking(shard)
                stream.seek(entry.offset)
                data = stream.read(entry.size)
        except (OSError, ValueError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            message = f"the file cannot be read: {reason}"
            raise InvalidInput(message, path=shard, code="CFG001") from None
        if len(data) != entry.size:
            raise _lacking(shard)
        return data


def _is_kept(dtype: DType) -> bool:
    """True for a type of numbers or texts, of which a checkpoint keeps the bytes."""
    return not dtype.is_ref and dtype.kind not in ("none", "resource", "variant")


def _strings(data: bytes, count: int, prefix: str) -> Any:
    """Texts: the length of each as a varint, a checksum of these, and the bytes of all."""
    try:
        lengths, place = varints(data, count)
    except ValueError:
        raise _lacking(prefix) from None
    place += _LENGTHS_CHECKSUM
    if place + sum(lengths) != len(data):
        raise _lacking(prefix)
    made = np.empty(count, object)
    for number, length in enumerate(lengths):
        made[number] = data[place : place + length]
        place += length
    return made


def _lacking(path: str) -> InvalidInput:
    message = "the checkpoint has not the bytes that its index speaks of"
    return InvalidInput(message, path=path, code="CFG038")
