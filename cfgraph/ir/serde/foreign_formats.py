"""Recognition of files that contain no graph of TensorFlow, and advice on what to use instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from cfgraph.errors import InvalidInput
from cfgraph.ir.serde.wire import read_varint

_EXPORT: Final = "load the model in Keras and write a SavedModel: model.export(FOLDER)"
_CHECKPOINT: Final = (
    "a checkpoint has only values; name its graph, and pass the checkpoint with --variables PREFIX"
)
# formats with a magic number: offset, magic, name, hint
_MAGIC_NUMBERS: Final = (
    (0, b"\x89PNG", "a PNG image", "pass the graph itself, not a picture of it"),
    (0, b"\x89HDF", "an HDF5 file", f"if it is a Keras model, {_EXPORT}"),
    (0, b"\x93NUMPY", "an .npy array", "feed it with --feed NAME=@FILE.npy"),
    (4, b"TFL3", "a TensorFlow Lite model", "use the SavedModel that it was converted from"),
)
_ZIP: Final = b"PK\x03\x04"
_TABLE_END: Final = bytes.fromhex("57fb808b247547db")
_SHARD: Final = re.compile(r".+\.data-\d{5}-of-\d{5}")
_CHECKPOINT_LIST: Final = re.compile(rb"\s*(all_)?model_checkpoint_paths?\s*:")
# numbers of top-level fields: graph and opset_import of ONNX, the last ones of a fingerprint
_ONNX_FIELDS: Final = {7, 8}
_FINGERPRINT_FIELDS: Final = {2, 3, 4}
_MAX_FIELDS: Final = 1000


def foreign_format_error(data: bytes) -> InvalidInput | None:
    """The error for data of a known format without a graph, else None."""
    for offset, magic, name, hint in _MAGIC_NUMBERS:
        if data.startswith(magic, offset):
            return _error(name, hint)
    if data.startswith(_ZIP):
        if b"model.weights.h5" in data and b"config.json" in data:
            return _error("a Keras model", _EXPORT)
        return _error("a zip archive", "unpack it; or, if it is a Keras model, export a SavedModel")
    if data.endswith(_TABLE_END):
        return _error("the index of a checkpoint", _CHECKPOINT)
    if _CHECKPOINT_LIST.match(data):
        return _error("a list of checkpoints", _CHECKPOINT)
    return _protobuf_error(data)


def checkpoint_shard_error(path: str) -> InvalidInput | None:
    """The error for a data file of a checkpoint, recognized by its name; None for another file."""
    if _SHARD.fullmatch(PurePath(path).name):
        return _error("the data of a checkpoint", _CHECKPOINT)
    return None


def _error(name: str, hint: str) -> InvalidInput:
    return InvalidInput(f"this is {name}, not a graph", hint=hint, code="CFG003")


def _protobuf_error(data: bytes) -> InvalidInput | None:
    """The error for other messages that start like a SavedModel, with a number as field 1."""
    if data[:1] != b"\x08":
        return None
    fields = list(_fields(data))
    numbers = {number for number, _ in fields}
    if numbers >= _ONNX_FIELDS and (7, _BYTES) in fields:
        return _error("an ONNX model", "use the TensorFlow model that it was converted from")
    varints = {number for number, kind in fields if kind == _VARINT}
    if varints >= _FINGERPRINT_FIELDS:
        return _error("the fingerprint of a SavedModel", "name the folder of the SavedModel")
    return None


_VARINT: Final = 0
_BYTES: Final = 2
_FIXED_SIZES: Final = {1: 8, 5: 4}


def _fields(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield number and wire type of the first top-level fields, up to one that is malformed."""
    offset = 0
    for _ in range(_MAX_FIELDS):
        try:
            tag, offset = read_varint(data, offset, len(data))
            number, kind = tag >> 3, tag & 7
            if kind in (_VARINT, _BYTES):
                value, offset = read_varint(data, offset, len(data))
                offset += value if kind == _BYTES else 0
            elif kind in _FIXED_SIZES:
                offset += _FIXED_SIZES[kind]
            else:
                return
        except ValueError:
            return
        if offset > len(data):
            return
        yield number, kind
        if offset == len(data):
            return
