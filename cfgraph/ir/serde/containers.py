"""Containers of a GraphDef: bare, MetaGraphDef, or SavedModel; binary or text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir import registry
from cfgraph.ir.printable import clean_pbtxt
from cfgraph.ir.serde.foreign_formats import foreign_format_error, truncation_error
from cfgraph.ir.serde.functions import decode_signature
from cfgraph.ir.serde.node_reader import GraphParts, graph_parts, message_parts
from cfgraph.ir.serde.wire import parse_message, whole_message
from cfgraph.ir.source_lines import source_lines
from cfgraph.proto import graph_pb2, meta_graph_pb2, saved_model_pb2

_POSITION: Final = re.compile(r"^(\d+):(\d+) : ")
_NO_GRAPH: Final = "the SavedModel contains no graph"
_FIRST_FIELD: Final = re.compile(rb"\s*+(?:#[^\n]*+\n\s*+)*+(\w*)")


def to_pbtxt(proto: Any) -> bytes:
    """Format a message as protobuf text."""
    return clean_pbtxt(text_format.MessageToString(whole_message(proto))).encode()


def to_pbtxt_lines(proto: Any) -> list[str]:
    """Format a GraphDef as protobuf text, with one line per node and function."""
    proto = whole_message(proto)
    parts = [("versions", proto.versions), *(("node", node) for node in proto.node)]
    lines = [_pbtxt_line(field, part) for field, part in parts]
    if proto.HasField("library"):
        functions = [_pbtxt_line("function", part) for part in proto.library.function]
        lines += ["library {", *functions, "}"]
    return lines


def _pbtxt_line(field: str, part: Any) -> str:
    return f"{field} {{ {text_format.MessageToString(part, as_one_line=True)} }}"


def unknown_bytes(proto: Any) -> int:
    """The size of the unknown fields of a message and its submessages."""
    known = type(proto)()
    known.CopyFrom(proto)
    known.DiscardUnknownFields()
    size: int = proto.ByteSize() - known.ByteSize()
    return size


def _saved_model_graph(saved: Any) -> GraphParts:
    if not saved.meta_graphs:
        raise InvalidInput(_NO_GRAPH, code="CFG003")
    return _meta_graph(saved.meta_graphs[0])


def _meta_graph(meta: Any) -> GraphParts:
    """The graph of a MetaGraphDef, whose OpDefs declare the ops that are unknown."""
    declare_ops(meta.meta_info_def.stripped_op_list.op)
    objects = meta.object_graph_def if meta.HasField("object_graph_def") else None
    return message_parts(meta.graph_def)._replace(
        objects=objects, named_tensors=_named_tensors(meta)
    )


def _named_tensors(meta: Any) -> dict[str, list[str]]:
    """The tensors of all signatures, by their names there."""
    names: dict[str, list[str]] = {}
    for signature in meta.signature_def.values():
        for name, info in (*signature.inputs.items(), *signature.outputs.items()):
            names[name] = sorted({*names.get(name, ()), info.name})
    return names


def declare_ops(op_defs: Iterable[Any], *, strict: bool = False) -> list[str]:
    """Declare the ops of OpDefs that are not known yet; returns their names.

    The first declaration of an op counts. Raises UsageError for a different one if `strict`.
    """
    names: list[str] = []
    for op_def in op_defs:
        if not op_def.name or not registry.can_declare(op_def.name):
            continue
        definition = decode_signature(op_def)
        if registry.declare(op_def.name, definition):
            names.append(op_def.name)
        elif strict and not registry.is_declared_as(op_def.name, definition):
            message = f"op {op_def.name!r} is declared twice, with different signatures"
            raise UsageError(message, hint="remove one of the declarations")
    return names


def first_field(data: bytes) -> str:
    """The first field of protobuf text, or an empty string."""
    match = _FIRST_FIELD.match(data)
    return match[1].decode() if match else ""


def from_pbtxt(data: bytes) -> GraphParts:
    """The graph of protobuf text; the first field identifies MetaGraphDef and SavedModel.

    Raises InvalidInput, with line and column, if it is invalid.
    """
    first = first_field(data)
    if first in meta_graph_pb2.MetaGraphDef.DESCRIPTOR.fields_by_name:
        return _meta_graph(parse_text(data, meta_graph_pb2.MetaGraphDef()))
    if first in saved_model_pb2.SavedModel.DESCRIPTOR.fields_by_name:
        return _saved_model_graph(parse_text(data, saved_model_pb2.SavedModel()))
    return message_parts(parse_text(data, graph_pb2.GraphDef()))


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


def from_binary(data: bytes) -> tuple[GraphParts, str]:
    """The parts of the GraphDef in binary data, and its container: `pb`, `meta`, or `saved_model`.

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
    try:
        graph = graph_parts(data)
    except InvalidInput as error:
        wrapped = _unwrapped(data)
        if wrapped is None:
            raise foreign_format_error(data) or truncation_error(data) or error from None
        return wrapped
    if _is_plausible(graph):
        return graph, "pb"
    return _unwrapped(data) or (graph, "pb")


_WRAPPERS: Final[tuple[tuple[Any, Callable[[Any], GraphParts], str], ...]] = (
    (meta_graph_pb2.MetaGraphDef, _meta_graph, "meta"),
    (saved_model_pb2.SavedModel, _saved_model_graph, "saved_model"),
)


def _unwrapped(data: bytes) -> tuple[GraphParts, str] | None:
    for message, graph_of, kind in _WRAPPERS:
        graph = _unwrap(data, message(), graph_of)
        if graph is not None:
            return graph, kind
    return None


def _unwrap(data: bytes, message: Any, graph_of: Callable[[Any], GraphParts]) -> GraphParts | None:
    try:
        message.ParseFromString(data)
        graph = graph_of(message)
    except (DecodeError, InvalidInput, RecursionError):
        return None
    return graph if graph.nodes and _is_plausible(graph) else None


def _is_plausible(graph: GraphParts) -> bool:
    return all(name and op for name, op, *_ in graph.nodes) and all(
        function.signature.name for function in graph.rest.library.function
    )
