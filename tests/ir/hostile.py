"""Expected outcomes for hostile files: a graph or a clear error, quickly and in little memory."""

from __future__ import annotations

import contextlib
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.errors import InvalidInput
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.files import FORMATS, dumps, loads
from cfgraph.ir.graph import Graph
from cfgraph.ir.serde.graph_def import graph_from_bytes
from tests.ir.wire import map_entry, node_def, wire_field, wire_message

GRAPHS = Path(__file__).parents[2] / "fixtures" / "graphs"
FIXTURES = ("counter", "cond_functional", "while_functional", "deadness_mismatch", "lstm")
# generous, for machines under load: the test guards against minutes or gigabytes
MAX_SECONDS = 10.0
MAX_MEMORY = 64 << 20


def fixture_bytes(name: str) -> bytes:
    return (GRAPHS / f"{name}.pb").read_bytes()


def fixture_text(name: str) -> bytes:
    return dumps(graph_from_bytes(fixture_bytes(name)), "graph")


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    """Fail if the block takes long, in processor time."""
    start = time.process_time()
    yield
    assert time.process_time() - start < MAX_SECONDS


@contextlib.contextmanager
def memory_limit(limit: int = MAX_MEMORY) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def outcome(data: bytes, format: str | None = None) -> Graph | InvalidInput:
    """Load data and use the graph in every way that a file can be used; returns graph or error."""
    with time_limit():
        failure = load_graph(data, format)
        if isinstance(failure, Graph):
            exercise_graph(failure)
        else:
            assert str(failure)
            assert failure.code is not None
    return failure


def load_graph(data: bytes, format: str | None) -> Graph | InvalidInput:
    try:
        return loads(data, format)
    except InvalidInput as error:
        return error


def exercise_graph(graph: Graph) -> None:
    """Write a graph in all formats, and decode everything that is decoded on demand."""
    saved = dumps(graph)
    for kind in FORMATS:
        data = dumps(graph, kind)
        if data:
            again = dumps(loads(data, kind))
            assert again == saved or kind == "pbtxt"  # the text form has no unknown fields
    for function in graph.functions.values():
        assert function.definition is not None
    for each in graph:
        for value in each.attrs.values():
            if isinstance(value, TensorValue):
                with contextlib.suppress(InvalidInput):
                    _ = value.array


def assert_rejected(data: bytes, format: str | None = None) -> InvalidInput:
    failure = outcome(data, format)
    assert isinstance(failure, InvalidInput)
    return failure


def assert_accepted(data: bytes, format: str | None = None) -> Graph:
    failure = outcome(data, format)
    assert isinstance(failure, Graph)
    return failure


def constant(dtype: int, dims: tuple[int, ...], *fields: tuple[int, bytes]) -> bytes:
    shape = b"".join(wire_field(2, wire_field(1, dim)) for dim in dims)
    tensor = wire_message((1, dtype), (2, shape), *fields)
    attrs = [
        (5, map_entry("dtype", wire_field(6, dtype))),
        (5, map_entry("value", wire_field(8, tensor))),
    ]
    return wire_field(1, node_def("x", "Const", *attrs))
