"""Graphs in protobuf text and in the text format, for tests of the latter."""

from __future__ import annotations

from google.protobuf import text_format

from cfgraph.ir.serde.graph_def import graph_from_bytes, graph_to_bytes
from cfgraph.ir.text.parser import parse_graph
from cfgraph.ir.text.printer import print_graph
from cfgraph.proto import graph_pb2


def graph_bytes(pbtxt: str) -> bytes:
    """The deterministic bytes of a GraphDef in protobuf text."""
    proto = text_format.Parse(pbtxt, graph_pb2.GraphDef())
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def lossless_text(pbtxt: str) -> str:
    """The text form of a graph in protobuf text, after checking that it is lossless."""
    data = graph_bytes(pbtxt)
    text = print_graph(graph_from_bytes(data))
    assert graph_to_bytes(parse_graph(text)) == data
    assert print_graph(parse_graph(text)) == text
    return text
