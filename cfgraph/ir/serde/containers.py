"""Containers of a GraphDef: bare, MetaGraphDef, or SavedModel; binary or text.

Files of other formats are recognized, with advice on what to use instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import PurePath
from typing import Any, Final

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from cfgraph.errors import InvalidInput
from cfgraph.ir.printable import clean_pbtxt
from cfgraph.ir.serde.wire import parse_message, read_varint
from cfgraph.ir.source_lines import source_lines
from cfgraph.proto import graph_pb2, meta_graph_pb2, saved_model_pb2

_POSITION: Final = re.compile(r"^(\d+):(\d+) : ")
_NO_GRAPH: Final = "the SavedModel contains no graph"
_FIRST_FIELD: Final = re.compile(rb"\s*+(?:#[^\n]*+\n\s*+)*+(\w*)")


def to_pbtxt(proto: Any) -> bytes:
    """Format a message as protobuf text."""
    return clean_pbtxt(text_format.MessageToString(proto)).encode()


def unknown_bytes(proto: Any) -> int:
    """The size of the unknown fields of a message and its submessages."""
    known = type(proto)()
    known.CopyFrom(proto)
    known.DiscardUnknownFields()
    size: int = proto.ByteSize() - known.ByteSize()
    return size


def _saved_model_graph(saved: Any) -> Any:
    if not saved.meta_graphs:
        raise InvalidInput(_NO_GRAPH, code="CFG003")
    return saved.meta_graphs[0].graph_def


def first_field(data: bytes) -> str:
    """The first field of protobuf text, or an empty string."""
    match = _FIRST_FIELD.match(data)
    return match[1].decode() if match else ""


def from_pbtxt(data: bytes) -> Any:
    """The GraphDef of protobuf text; the first field identifies MetaGraphDef and SavedModel.

    Raises InvalidInput, with line and column, if it is invalid.
    """
    first = first_field(data)
    if first in meta_graph_pb2.MetaGraphDef.DESCRIPTOR.fields_by_name:
        return parse_text(data, meta_graph_pb2.MetaGraphDef()).graph_def
    if first in saved_model_pb2.SavedModel.DESCRIPTOR.fields_by_name:
        return _saved_model_graph(parse_text(data, saved_model_pb2.SavedModel()))
    return parse_text(data, graph_pb2.GraphDef())


def parse_text(data: bytes, message: Any) -> Any:
    """Parse protobuf text into a message. Raises InvalidInput, with line and column."""
    try:
        # a function of the module that its type stubs lack
        return text_format.ParseLines((text for _, text in source_lines(data)), message)  # type: ignore[attr-defined]
    except text_format.ParseError as error:
        reason = _POSITION.sub(lambda position: _position_text(data, position), str(error))
    except RecursionError:
        reason = "it is nested too deeply"
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        reason = str(error)
    raise InvalidInput(f"invalid protobuf text: {reason}", code="CFG004") from None


def _position_text(data: bytes, position: re.Match[str]) -> str:
    """The position of an error in a file, from its position in the lines that were parsed."""
    index, column = int(position[1]) - 1, position[2]
    number = next(islice((number for number, _ in source_lines(data)), index, None), index + 1)
    return f"line {number}, column {column}: "


def from_binary(data: bytes) -> tuple[Any, str]:
    """The GraphDef in binary data, and its container: `pb`, `meta`, or `saved_model`.

    A SavedModel starts with its schema version (0x08), which no GraphDef does. Other containers
    fail to parse as a GraphDef, or give nodes or functions without names.
    """
    if data[0] == 0x08:
        try:
            saved = parse_message(saved_model_pb2.SavedModel(), data, "SavedModel")
        except InvalidInput as error:
            raise foreign_format_error(data) or error from None
        if not saved.meta_graphs:
            raise foreign_format_error(data) or InvalidInput(_NO_GRAPH, code="CFG003")
        return _saved_model_graph(saved), "saved_model"
    failure = None
    graph = graph_pb2.GraphDef()
    try:
        parse_message(graph, data, "GraphDef")
    except InvalidInput as error:
        failure = error
    if failure is None and _is_plausible(graph):
        return graph, "pb"
    for message, graph_of, kind in _WRAPPERS:
        wrapped = _unwrap(data, message(), graph_of)
        if wrapped is not None:
            return wrapped, kind
    if failure is not None:
        raise foreign_format_error(data) or failure
    return graph, "pb"


_WRAPPERS: Final[tuple[tuple[Any, Callable[[Any], Any], str], ...]] = (
    (meta_graph_pb2.MetaGraphDef, lambda meta: meta.graph_def, "meta"),
    (saved_model_pb2.SavedModel, _saved_model_graph, "saved_model"),
)


def _unwrap(data: bytes, message: Any, graph_of: Callable[[Any], Any]) -> Any | None:
    try:
        message.ParseFromString(data)
        graph = graph_of(message)
    except (DecodeError, InvalidInput, RecursionError):
        return None
    return graph if graph.node and _is_plausible(graph) else None


def _is_plausible(graph: Any) -> bool:
    return all(node.name and node.op for node in graph.node) and all(
        function.signature.name for function in graph.library.function
    )


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
