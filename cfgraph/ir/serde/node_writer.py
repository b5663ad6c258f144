"""Encoding of the nodes of a graph as fields of a GraphDef, without a message of the whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.serde.attrs import encode_attr, write_attrs
from cfgraph.ir.serde.node_reader import DEVICE, INPUT, NAME, NODE, OP
from cfgraph.ir.serde.varints import write_varint
from cfgraph.ir.serde.wire import encoded_message
from cfgraph.ir.shapes import Shape
from cfgraph.proto import node_def_pb2

# types whose equal values have equal encodings; most attributes have one of them
_REPEATED_TYPES: Final = frozenset((DType, Shape, bool, bytes, int))
_MAX_REPEATED_BYTES: Final = 1 << 8


def node_fields(graph: Graph) -> Iterator[bytes]:
    """The encoded nodes of a graph, each as a field; unchanged content is copied from the file."""
    known: dict[tuple[str, type, Any], bytes] = {}
    for node in graph:
        yield _field(NODE, _from_origin(node) if node.origin else _encoded(node, known))


_SHORT_STARTS: Final = {
    tag: tuple(bytes((tag, size)) for size in range(0x80)) for tag in (NAME, OP, INPUT, DEVICE)
}


def _field(tag: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < 0x80:
        return _SHORT_STARTS[tag][size] + payload
    return bytes((tag,)) + write_varint(size) + payload


def _encoded(node: Node, known: dict[tuple[str, type, Any], bytes]) -> bytes:
    parts = [_field(NAME, node.name.encode())] if node.name else []
    if node.op:
        parts.append(_field(OP, node.op.encode()))
    parts += [_field(INPUT, text.encode()) for text in input_strings(node)]
    if node.device:
        parts.append(_field(DEVICE, node.device.encode()))
    attrs = node.attrs
    for name in sorted(attrs, key=_map_order) if len(attrs) > 1 else attrs:
        value = attrs[name]
        key = (name, type(value), value) if type(value) in _REPEATED_TYPES else None
        field = known.get(key) if key else None
        if field is None:
            field = _attr_field(name, value)
            if key and len(field) <= _MAX_REPEATED_BYTES:
                known[key] = field
        parts.append(field)
    return b"".join(parts)


def _map_order(key: str) -> str:
    """The sort key of protobuf's deterministic maps: a key precedes its own prefixes."""
    return key + "\U0010ffff"


def _attr_field(name: str, value: Any) -> bytes:
    proto = node_def_pb2.NodeDef()
    encode_attr(value, proto.attr[name])
    return encoded_message(proto)


def input_strings(node: Node) -> list[str]:
    """The inputs of a node in the canonical form."""
    texts = [source.name if port == 0 else f"{source.name}:{port}" for source, port in node.inputs]
    texts.extend("^" + control.name for control in node.controls)
    return texts


def original_inputs(node: Node) -> list[str]:
    """The inputs of a node as written in the file, if these are still equivalent."""
    texts = input_strings(node)
    written = list(node.origin[0].input) if node.origin is not None else texts
    return written if written == texts or _are_same_inputs(written, texts) else texts


def _from_origin(node: Node) -> bytes:
    """A node with content that its fields lack."""
    origin, loaded = node.origin
    proto = node_def_pb2.NodeDef()
    proto.CopyFrom(origin)
    proto.name, proto.op, proto.device = node.name, node.op, node.device
    texts = original_inputs(node)
    proto.ClearField("input")
    proto.input.extend(texts)
    write_attrs(node.attrs, loaded, proto.attr)
    return encoded_message(proto)


def _are_same_inputs(written: list[str], texts: list[str]) -> bool:
    """True if inputs are equivalent (`a:0` is `a`, duplicate controls collapse)."""
    plain = [text.removesuffix(":0") if text[:1] != "^" else text for text in written]
    return list(dict.fromkeys(plain)) == list(dict.fromkeys(texts)) and _data_inputs(
        plain
    ) == _data_inputs(texts)


def _data_inputs(texts: list[str]) -> list[str]:
    return [text for text in texts if text[:1] != "^"]
