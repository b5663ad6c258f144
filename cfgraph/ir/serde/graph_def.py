"""Conversion of graphs and nodes to and from GraphDef messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from cfgraph.errors import InvalidInput
from cfgraph.ir.functions import BodyNode, Function
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.ir.graph import Graph, Node, Versions, taken
from cfgraph.ir.serde.attrs import (
    FullType,
    attr_to_bytes,
    decode_attr,
    decode_full_type,
    encode_full_type,
)
from cfgraph.ir.serde.file_contents import message_pieces
from cfgraph.ir.serde.functions import EncodedFunction, function_to_bytes, write_function
from cfgraph.ir.serde.node_reader import GraphParts, graph_parts
from cfgraph.ir.serde.node_writer import node_fields
from cfgraph.ir.serde.object_graph import registered_gradients
from cfgraph.ir.serde.wire import (
    encoded_message,
    extra_field_bytes,
    has_unknown_fields,
    message_bytes,
    parse_message,
    unknown_field_bytes,
)
from cfgraph.proto import graph_pb2, node_def_pb2


def graph_from_bytes(data: bytes) -> Graph:
    """Decode a GraphDef. Raises InvalidInput if it is invalid."""
    return graph_from_parts(graph_parts(data))


def graph_from_parts(parts: GraphParts) -> Graph:
    """The graph of a GraphDef that was read.

    Raises InvalidInput with all findings if its nodes and edges are invalid.
    """
    graph, proto = Graph(), parts.rest
    versions = proto.versions
    graph.versions = Versions(
        versions.producer, versions.min_consumer, tuple(versions.bad_consumers)
    )
    for function in proto.library.function:
        _load_function(graph, function)
    for pair in proto.library.gradient:
        graph.gradient_functions[pair.function_name] = pair.gradient_func
    graph.registered_gradients = registered_gradients(proto.library, parts.objects)
    graph.origin, graph.named_tensors = proto, parts.named_tensors
    with paused_gc():
        graph.load(taken(parts.nodes))
    return graph


def _load_function(graph: Graph, proto: Any) -> None:
    name = proto.signature.name
    known = graph.functions.get(name)
    if known is not None and function_to_bytes(known) != message_bytes(proto):
        message = f"two different functions have the name {name!r}"
        raise InvalidInput(message, code="CFG104")
    graph.functions[name] = Function(name, source=EncodedFunction(proto))


def graph_to_bytes(graph: Graph) -> bytes:
    """The encoded GraphDef of a graph; equal graphs give equal bytes."""
    return b"".join(graph_pieces(graph))


def graph_pieces(graph: Graph) -> Iterator[bytes]:
    """The bytes of `graph_to_bytes` in pieces, so that large contents are never all in memory."""
    return message_pieces(_encoded_graph(graph), graph_pb2.GraphDef.DESCRIPTOR)


def graph_to_proto(graph: Graph) -> Any:
    """The GraphDef of a graph; unchanged nodes and functions are copied from the file."""
    return graph_pb2.GraphDef.FromString(_encoded_graph(graph))


def _encoded_graph(graph: Graph) -> bytes:
    """A graph with references to contents that are left in a file."""
    rest = graph_pb2.GraphDef()
    rest.MergeFromString(extra_of_graph(graph))
    if graph.versions != Versions():
        rest.versions.producer = graph.versions.producer
        rest.versions.min_consumer = graph.versions.min_consumer
        rest.versions.bad_consumers.extend(graph.versions.bad_consumers)
    _write_library(graph, rest)
    if not graph.nodes and not rest.ByteSize():
        rest.versions.SetInParent()  # an empty file is not a graph
    return b"".join([*node_fields(graph), encoded_message(rest)])


def _write_library(graph: Graph, proto: Any) -> None:
    for function in graph.functions.values():
        write_function(function, proto.library.function.add())
    extras = {pair.function_name: message_bytes(pair) for pair in proto.library.gradient}
    if extras:
        proto.library.ClearField("gradient")
    for name, gradient in graph.gradient_functions.items():
        pair = proto.library.gradient.add()
        pair.MergeFromString(extras.get(name, b""))
        pair.function_name, pair.gradient_func = name, gradient


# -- lossless text form --------------------------------------------------------------------------

_NODE_FIELDS: Final = ("name", "op", "input", "device", "attr")
_RARE_FIELDS: Final = ("experimental_debug_info", "experimental_type")


def encoded_attrs(node: Node | BodyNode) -> list[tuple[str, bytes]]:
    """Encoded attributes of a node, sorted by name."""
    if node.origin is None:
        return [(key, attr_to_bytes(node.attrs[key])) for key in sorted(node.attrs)]
    protos, loaded = node.origin[0].attr, node.origin[1]
    return [
        (key, message_bytes(protos[key]) if loaded.get(key) is value else attr_to_bytes(value))
        for key, value in sorted(node.attrs.items())
    ]


def extra_of_node(node: Node | BodyNode) -> tuple[FullType | None, bytes]:
    """Content of a node beyond name, op, inputs, device and attributes.

    This is its full type, if any, and the encoded rest.
    """
    if node.origin is None:
        return None, b""
    proto = node.origin[0]
    full = (
        decode_full_type(proto.experimental_type) if proto.HasField("experimental_type") else None
    )
    if full is not None:
        return full, extra_field_bytes(proto, (*_NODE_FIELDS, "experimental_type"))
    more = any(map(proto.HasField, _RARE_FIELDS)) or has_unknown_fields(proto)
    return None, extra_field_bytes(proto, _NODE_FIELDS) if more else b""


def extra_of_graph(graph: Graph) -> bytes:
    """Encoded content of a graph beyond nodes, functions, gradients and versions."""
    origin = graph.origin
    if origin is None:
        return b""
    rest = graph_pb2.GraphDef()
    rest.ParseFromString(extra_field_bytes(origin, ("node", "library", "versions")))
    if origin.HasField("library"):
        _retain_library_extra(graph, rest)
    if origin.HasField("versions"):
        extra = extra_field_bytes(origin.versions, ("producer", "min_consumer", "bad_consumers"))
        if extra or graph.versions == Versions():
            rest.versions.MergeFromString(extra)
    return message_bytes(rest)


def _retain_library_extra(graph: Graph, rest: Any) -> None:
    library = graph.origin.library
    extra = extra_field_bytes(library, ("function", "gradient"))
    if extra or not (library.function or library.gradient):
        rest.library.MergeFromString(extra)
    for pair in library.gradient:
        if unknown_field_bytes(pair):
            rest.library.gradient.add().CopyFrom(pair)


def node_origin(
    extra: bytes,
    full: FullType | None = None,
    inputs: Iterable[str] = (),
    attrs: Mapping[str, bytes] | None = None,
) -> tuple[Any, dict[str, Any]]:
    """The `origin` of a node in the text format: content without a field in Node.

    This is an extra, a full type, inputs in a non-canonical form, and encoded attributes. Raises
    InvalidInput if these cannot be decoded.
    """
    proto = parse_message(node_def_pb2.NodeDef(), extra, "NodeDef")
    if full is not None:
        proto.experimental_type.CopyFrom(encode_full_type(full))
    proto.input.extend(inputs)
    for key, data in (attrs or {}).items():
        parse_message(proto.attr[key], data, "attribute value")
    return proto, {key: decode_attr(proto.attr[key]) for key in attrs or {}}


def graph_origin(extra: bytes) -> Any:
    """The `origin` of a graph in the text format, from its extra.

    Raises InvalidInput if it cannot be decoded.
    """
    return parse_message(graph_pb2.GraphDef(), extra, "GraphDef")
