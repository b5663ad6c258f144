"""Files of other formats that people pass for a graph, recognized with advice on what to use.

Each has a message that names the format. A file that a copy or download cut short has one, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final

from cfgraph.errors import InvalidInput
from cfgraph.ir.serde.varints import field_end

_EXPORT: Final = "load the model in Keras and write a SavedModel: model.export(FOLDER)"
_LITE: Final = (
    "use the SavedModel that it was converted from; to look at it, use Model Explorer or Netron"
)
_ONNX: Final = (
    "use the TensorFlow model that it was converted from, or convert it to a SavedModel: "
    "onnx2tf -i FILE.onnx -o FOLDER"
)
_SOURCE: Final = "use the TensorFlow model that it was converted from"
_DOWNLOAD: Final = "the download failed: open the file in a browser to see why, and repeat it"
_CHECKPOINT: Final = (
    "a checkpoint has only values; name its graph, and pass the checkpoint with --variables PREFIX"
)
_UNPACK: Final = "unpack it, and name the file or folder of the graph"
# formats with a magic number: offset, magic, name, hint
_MAGIC_NUMBERS: Final = (
    (0, b"\x89PNG", "a PNG image", "pass the graph itself, not a picture of it"),
    (0, b"\x89HDF", "an HDF5 file", f"if it is a Keras model, {_EXPORT}"),
    (0, b"\x93NUMPY", "an .npy array", "feed it with --feed NAME=@FILE.npy"),
    (4, b"TFL3", "a TensorFlow Lite model", _LITE),
    (0, b"ML\xefR", "MLIR bytecode", _SOURCE),
    (0, b"PK\x03\x04", "a zip archive", _UNPACK),
    (0, b"PK\x05\x06", "an empty zip archive", _UNPACK),
    (257, b"ustar", "a tar archive", _UNPACK),
)
# formats of text, by their first characters
_TEXTS: Final = tuple(
    (re.compile(rb"\s*" + start, re.IGNORECASE), name, hint)
    for start, name, hint in (
        (rb"version https://git-lfs", "a Git LFS pointer", "fetch the file: git lfs pull"),
        (rb"<(?:!doctype html|html)", "an HTML page", _DOWNLOAD),
        (rb"<\?xml", "an XML document", _DOWNLOAD),
        (rb"HloModule\b", "an XLA HLO module", _SOURCE),
        (rb"(?:#loc|module (?:@|attributes|\{))", "an MLIR module", _SOURCE),
        (rb"[{\[]", "a JSON document", "pass a .pb, .pbtxt, or .graph file"),
    )
)
# contents of a zip archive by the names of files in it, which are listed at its end
_ZIP_ENTRY: Final = b"PK\x01\x02"
_DIRECTORY_BYTES: Final = 1 << 16
_ARCHIVED: Final = (
    ((b"config.json", b"model.weights.h5"), "a Keras model", _EXPORT),
    ((b"/data.pkl",), "a PyTorch model", "export it to TensorFlow first"),
)
_EVENTS: Final = re.compile(rb".{12}.{0,40}brain\.Event:", re.DOTALL)
_PICKLE: Final = re.compile(rb"\x80[\x02-\x05].*\.$", re.DOTALL)
_SAFETENSORS: Final = re.compile(rb".{3}\0{5}\{\"", re.DOTALL)
# top-level fields of an HloModuleProto: name, entry computation, computations
_HLO_FIELDS: Final = {1, 2, 3}
_TABLE_END: Final = bytes.fromhex("57fb808b247547db")
_SHARD: Final = re.compile(r".+\.data-\d{5}-of-\d{5}")
_CHECKPOINT_LIST: Final = re.compile(rb"\s*(all_)?model_checkpoint_paths?\s*:")
# numbers of top-level fields: graph and opset_import of ONNX, the last ones of a fingerprint
_ONNX_FIELDS: Final = {7, 8}
_FINGERPRINT_FIELDS: Final = {2, 3, 4}
_MAX_FIELDS: Final = 1000
# node, versions, deprecated version, library, debug information
_GRAPH_FIELDS: Final = frozenset({1, 2, 3, 4, 5})


def foreign_format_error(data: bytes) -> InvalidInput | None:
    """The error for data of a known format without a graph, else None."""
    if error := _foreign_archive_error(data[-_DIRECTORY_BYTES:]):
        return error
    for offset, magic, name, hint in _MAGIC_NUMBERS:
        if data.startswith(magic, offset):
            return _error(name, hint)
    if data.endswith(_TABLE_END):
        return _error("the index of a checkpoint", _CHECKPOINT)
    if _CHECKPOINT_LIST.match(data):
        return _error("a list of checkpoints", _CHECKPOINT)
    for pattern, what, hint in _TEXTS:
        if pattern.match(data):
            return _error(what, hint)
    if _EVENTS.match(data):
        return _error("a TensorBoard event file", "write the graph itself: tf.io.write_graph")
    if _SAFETENSORS.match(data) or _PICKLE.match(data):
        return _error("a file of weights or Python objects", "pass a GraphDef or a SavedModel")
    return _protobuf_error(data)


def _foreign_archive_error(end: bytes) -> InvalidInput | None:
    """The error for a zip archive of a known format, by the directory at its end, else None."""
    _, *entries = end.split(_ZIP_ENTRY)
    for members, what, hint in _ARCHIVED:
        if entries and all(any(member in entry for entry in entries) for member in members):
            return _error(what, hint)
    if entries and all(b".npy" in entry for entry in entries):
        hint = "feed its arrays with --feeds FILE.npz, or compare: cfgraph diff MODEL FILE.npz"
        return _error("an .npz archive of arrays", hint)
    return None


def truncation_error(data: bytes) -> InvalidInput | None:
    """The error for a GraphDef that ends inside a node or function, else None."""
    fields = list(_fields(data, len(data)))
    if not fields or any(number not in _GRAPH_FIELDS for number, _, _ in fields):
        return None
    missing = fields[-1][2] - len(data)
    if missing <= 0:
        return None
    lack = f"its last node or function lacks {missing} byte{'s' * (missing > 1)}"
    message = f"not a valid GraphDef: the file is cut short, {lack}"
    return InvalidInput(message, hint="copy or download the file again", code="CFG003")


def checkpoint_shard_error(path: str) -> InvalidInput | None:
    """The error for a data file of a checkpoint, recognized by its name; None for another file."""
    if _SHARD.fullmatch(PurePath(path).name):
        return _error("the data of a checkpoint", _CHECKPOINT)
    return None


def _error(name: str, hint: str) -> InvalidInput:
    return InvalidInput(f"this is {name}, not a graph", hint=hint, code="CFG003")


def _protobuf_error(data: bytes) -> InvalidInput | None:
    """The error for other messages: a number as field 1, as in a SavedModel, or a name."""
    fields = [(number, kind) for number, kind, end in _fields(data) if end <= len(data)]
    numbers = {number for number, _ in fields}
    if data[:1] == b"\n" and _is_hlo(fields):
        return _error("an XLA HLO module", _SOURCE)
    if data[:1] != b"\x08":
        return None
    if numbers >= _ONNX_FIELDS and (7, _BYTES) in fields:
        return _error("an ONNX model", _ONNX)
    varints = {number for number, kind in fields if kind == _VARINT}
    if varints >= _FINGERPRINT_FIELDS:
        return _error("the fingerprint of a SavedModel", "name the folder of the SavedModel")
    return None


def _is_hlo(fields: Sequence[tuple[int, int]]) -> bool:
    """True for a HloModuleProto, which starts with two names and a computation."""
    return [kind for _, kind in fields[:3]] == [_BYTES] * 3 and {
        number for number, _ in fields[:3]
    } == _HLO_FIELDS


_VARINT: Final = 0
_BYTES: Final = 2


def _fields(data: bytes, limit: int = _MAX_FIELDS) -> Iterator[tuple[int, int, int]]:
    """Yield number, wire type, and end of the first top-level fields, up to a malformed one.

    The last field may end beyond the data.
    """
    offset = 0
    for _ in range(limit):
        try:
            tag, offset = field_end(data, offset)
        except ValueError:
            return
        yield tag >> 3, tag & 7, offset
        if offset >= len(data):
            return
