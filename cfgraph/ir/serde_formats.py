"""The containers in which a GraphDef arrives: bare, MetaGraphDef, SavedModel; binary or text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf import text_format

from cfgraph.errors import InvalidInput
from cfgraph.ir.serde_wire import parse
from cfgraph.proto import graph_pb2, meta_graph_pb2, saved_model_pb2


def to_pbtxt(proto: Any) -> bytes:
    """The protobuf text of a message."""
    return text_format.MessageToString(proto).encode()


def from_pbtxt(content: str) -> Any:
    """The GraphDef of protobuf text, also of a MetaGraphDef's or SavedModel's."""
    try:
        return text_format.Parse(content, graph_pb2.GraphDef())
    except (text_format.ParseError, RecursionError) as error:
        failure = error
    unwrap: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
        (meta_graph_pb2.MetaGraphDef, lambda meta: meta.graph_def),
        (saved_model_pb2.SavedModel, lambda saved: saved.meta_graphs[0].graph_def),
    )
    for message, graph_of in unwrap:
        try:
            return graph_of(text_format.Parse(content, message()))
        except (text_format.ParseError, RecursionError, IndexError):
            continue
    message = f"line:column {failure}" if isinstance(failure, text_format.ParseError) else failure
    raise InvalidInput(f"the text is no graph: {message}", code="CFG004") from None


def from_binary(data: bytes) -> tuple[Any, str]:
    """The GraphDef in binary data, and what it was wrapped in.

    A SavedModel begins with its schema version (0x08), which no GraphDef does; a MetaGraphDef
    read as a GraphDef fails, or has nodes without name or op.
    """
    if data[0] == 0x08:
        saved = parse(saved_model_pb2.SavedModel(), data, "SavedModel")
        if not saved.meta_graphs:
            raise InvalidInput("the SavedModel holds no graph", code="CFG003")
        return saved.meta_graphs[0].graph_def, "saved_model"
    try:
        proto = parse(graph_pb2.GraphDef(), data, "GraphDef")
        failure = None
    except InvalidInput as error:
        proto, failure = None, error
    if proto is not None and all(node.name and node.op for node in proto.node):
        return proto, "pb"
    meta = _as_meta_graph(data)
    if meta is not None:
        return meta.graph_def, "meta"
    if failure is not None:
        raise failure
    return proto, "pb"


def _as_meta_graph(data: bytes) -> Any | None:
    try:
        meta = parse(meta_graph_pb2.MetaGraphDef(), data, "MetaGraphDef")
    except InvalidInput:
        return None
    nodes = meta.graph_def.node
    return meta if nodes and all(node.name and node.op for node in nodes) else None
