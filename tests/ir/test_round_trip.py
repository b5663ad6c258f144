from __future__ import annotations

import functools
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.ir.files import decode_graph, dumps
from cfgraph.ir.functions import Function
from cfgraph.ir.graph import Graph
from cfgraph.ir.serde.functions import function_to_bytes
from cfgraph.ir.serde.graph_def import graph_from_bytes
from cfgraph.proto import function_pb2, graph_pb2
from tests.sampled import sampled

FIXTURES = Path(__file__).parents[2] / "fixtures"
CHUNKS = 30
# protobuf's own text format is slow, so only every nth recorded graph goes through it
PBTXT_STEP = 50


@functools.cache
def archive() -> zipfile.ZipFile:
    return zipfile.ZipFile(FIXTURES / "conformance" / "tensorflow.zip")


@functools.cache
def recorded() -> tuple[str, ...]:
    return tuple(sorted(name for name in archive().namelist() if name.endswith(".pb")))


def graphs(chunk: int, step: int = 1) -> Iterator[tuple[str, bytes]]:
    """The name and the deterministic bytes of every recorded graph of a chunk."""
    for name in recorded()[chunk::CHUNKS][1 % step :: step]:
        proto = graph_pb2.GraphDef.FromString(archive().read(name))
        yield name, proto.SerializeToString(deterministic=True)


def same_nodes(graph: Graph, other: Graph) -> bool:
    """True if both have the same nodes in the same order, down to the attributes' values."""
    return [(n.name, n.op, n.device, n.attrs) for n in graph] == [
        (n.name, n.op, n.device, n.attrs) for n in other
    ]


def test_all_recorded_graphs_are_there() -> None:
    assert len(recorded()) > 1400


@pytest.mark.parametrize("chunk", sampled(map(pytest.param, range(CHUNKS)), 30))
def test_recorded_graphs_survive_saving_and_the_readable_form(chunk: int) -> None:
    for name, data in graphs(chunk):
        graph = graph_from_bytes(data)
        assert dumps(graph) == data, name
        text = dumps(graph, "graph")
        assert b'=raw"' not in text, name
        heads = [line for line in text.splitlines() if line.startswith(b"function ")]
        assert len(heads) == len(graph.functions), name
        assert all(line.endswith(b"{") for line in heads), name
        loaded = decode_graph(text)
        assert loaded.format == "graph", name
        assert dumps(loaded.graph) == data, name
        assert same_nodes(loaded.graph, graph), name


@pytest.mark.parametrize("chunk", sampled(map(pytest.param, range(CHUNKS)), 20))
def test_recorded_functions_survive_decoding(chunk: int) -> None:
    for name, data in graphs(chunk):
        for function in graph_from_bytes(data).functions.values():
            whole = function_pb2.FunctionDef.FromString(function_to_bytes(function))
            whole.signature.description = ""  # a FunctionDefinition has none
            copy = Function(function.name, function.definition)
            assert function_to_bytes(copy) == whole.SerializeToString(deterministic=True), name


def survives_pbtxt(name: str, data: bytes) -> None:
    loaded = decode_graph(dumps(graph_from_bytes(data), "pbtxt"))
    assert loaded.format == "pbtxt", name
    assert dumps(loaded.graph) == data, name


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_sample_of_recorded_graphs_survives_protobuf_text(chunk: int) -> None:
    for name, data in graphs(chunk, PBTXT_STEP):
        survives_pbtxt(name, data)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_recorded_graphs_survive_protobuf_text(chunk: int) -> None:
    for name, data in graphs(chunk):
        survives_pbtxt(name, data)


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("graphs/*.pb")), ids=lambda path: path.stem)
@pytest.mark.parametrize("format", ["pb", "pbtxt", "graph"])
def test_fixtures_survive_every_format(path: Path, format: str) -> None:
    graph = graph_from_bytes(path.read_bytes())
    data = dumps(graph, format)
    assert decode_graph(data).format == format
    assert dumps(decode_graph(data).graph) == dumps(graph)
    assert dumps(decode_graph(data).graph, format) == data
