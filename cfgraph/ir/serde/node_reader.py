"""Reading of an encoded GraphDef node by node, so that no message of the whole is in memory.

A node is its name, op, inputs, and device, which are read from their bytes, and the rest, mostly
its attributes, which protobuf decodes:

    node { name: "y" op: "Mul" input: "x" input: "x" | attr { key: "T" value { type: DT_FLOAT } } }

Nodes with the same bytes as rest share one dictionary of attributes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from sys import intern
from typing import Any, Final, NamedTuple

from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.graph import NodeRecord, reserve_nodes
from cfgraph.ir.serde.attrs import decode_attrs, write_attrs
from cfgraph.ir.serde.tensor import EncodedTensor
from cfgraph.ir.serde.varints import field_end, read_varint
from cfgraph.ir.serde.wire import encoded_message, parse_message
from cfgraph.proto import graph_pb2, node_def_pb2

# tags of the fields of a NodeDef, and of nodes in a GraphDef
NAME, OP, INPUT, DEVICE = (number << 3 | 2 for number in (1, 2, 3, 4))
NODE: Final = 1 << 3 | 2
# more bytes after inputs and device are mostly a tensor, which rarely repeats
_MAX_SHARED_BYTES: Final = 1 << 10


class GraphParts(NamedTuple):
    """The nodes of a GraphDef, a message with everything else, and the objects of a SavedModel.

    The nodes are taken out one by one as a graph is made of them, which spares half of the memory.
    `named_tensors` are the tensors of its signatures, by their names there.
    """

    nodes: deque[NodeRecord]
    rest: Any
    objects: Any = None
    named_tensors: Mapping[str, Sequence[str]] = {}


def graph_parts(data: bytes) -> GraphParts:
    """Read an encoded GraphDef. Raises InvalidInput if it is truncated or corrupt."""
    reader, position, start, end = _NodeReader(), 0, 0, len(data)
    others: list[bytes] = []
    try:
        while position < end:
            if data[position] != NODE:
                start = position
                _, position = field_end(data, start)
                others.append(data[start:position])
                continue
            start, position = _payload(data, position + 1)
            reader.add(data[start:position])
        if position == end:
            rest = parse_message(graph_pb2.GraphDef(), b"".join(others), "GraphDef")
            if not rest.node:  # nodes whose tag has more bytes than it needs
                return GraphParts(reader.nodes, rest)
    except (IndexError, ValueError):
        pass
    # it is invalid, or not canonical
    return message_parts(parse_message(graph_pb2.GraphDef(), data, "GraphDef"))


def message_parts(proto: Any) -> GraphParts:
    """Read a GraphDef message, which loses its nodes."""
    reader = _NodeReader()
    for node in proto.node:
        reader.add(node.SerializeToString())
    proto.ClearField("node")
    rest = graph_pb2.GraphDef()  # a copy, since a cleared message keeps its memory
    rest.CopyFrom(proto)
    return GraphParts(reader.nodes, rest)


def _payload(data: bytes, position: int) -> tuple[int, int]:
    """The start and the end of a payload whose size is at a position."""
    size = data[position]
    if size < 0x80:
        return position + 1, position + 1 + size
    size, position = read_varint(data, position, len(data))
    return position, position + size


class _NodeReader:
    """Nodes that were read, and the attributes by the bytes that contain them."""

    def __init__(self) -> None:
        self.nodes = deque[NodeRecord]()
        self._shared: dict[bytes, tuple[dict[str, Any], Any]] = {}

    def add(self, data: bytes) -> None:
        """Read an encoded NodeDef. Raises InvalidInput if it is truncated or corrupt."""
        reserve_nodes(len(self.nodes))
        try:
            record = self._canonical_record(data)
        except (IndexError, ValueError):
            record = None
        self.nodes.append(record or _other_record(data))

    def _canonical_record(self, data: bytes) -> NodeRecord | None:
        """A node in the canonical form; None, or IndexError or ValueError, for another."""
        name = op = device = ""
        inputs: list[str] = []
        position, end = 0, len(data)
        while position < end and (tag := data[position]) <= DEVICE:
            start, position = _payload(data, position + 1)
            text = data[start:position].decode()
            if tag == INPUT:
                inputs.append(text)
            elif tag == NAME:
                name = text
            elif tag == OP:
                op = intern(text)
            elif tag == DEVICE:
                device = intern(text)
            else:
                return None
        if position > end or has_unusual_inputs(inputs):
            return None
        rest = data[position:]
        known = self._shared.get(rest)
        if known is None:
            if len(rest) > _MAX_SHARED_BYTES:
                return None
            proto = parse_message(node_def_pb2.NodeDef(), rest, "GraphDef")
            if not _field_tags(rest).isdisjoint({NAME, OP, INPUT, DEVICE}):
                return None
            known = self._shared[rest] = _decoded_rest(proto)
        attrs, origin = known
        return name, op, inputs, device, attrs, origin


def _field_tags(data: bytes) -> set[int]:
    tags, position = set(), 0
    while position < len(data):
        tag, position = field_end(data, position)
        tags.add(tag)
    return tags


def _decoded_rest(proto: Any) -> tuple[dict[str, Any], Any]:
    """The attributes of a NodeDef, and an origin if these do not encode all of it."""
    attrs = decode_attrs(proto.attr)
    encoded = node_def_pb2.NodeDef()
    write_attrs(attrs, {}, encoded.attr)
    if encoded_message(encoded) != encoded_message(proto):
        return attrs, (proto, attrs)
    for value in attrs.values():
        # a tensor refers to the message that it is part of
        if type(value) is TensorValue and isinstance(value.source, EncodedTensor):
            value.source.detach()
    return attrs, None


def _other_record(data: bytes) -> NodeRecord:
    """A node in any encoding, which keeps its message.

    Raises InvalidInput if it is truncated or corrupt.
    """
    proto = parse_message(node_def_pb2.NodeDef(), data, "GraphDef")
    attrs = decode_attrs(proto.attr)
    return proto.name, intern(proto.op), list(proto.input), proto.device, attrs, (proto, attrs)


def has_unusual_inputs(inputs: Sequence[str]) -> bool:
    """True if inputs are not in the canonical form: `x:0`, or `^c` twice."""
    controls = [text for text in inputs if text[:1] == "^"]
    return len(set(controls)) < len(controls) or any(text[-2:] == ":0" for text in inputs)
