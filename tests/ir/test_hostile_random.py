from __future__ import annotations

import contextlib
import zlib

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.errors import InvalidInput
from cfgraph.ir.files import dumps, loads
from cfgraph.ir.graph import Graph
from cfgraph.ir.serde.graph_def import graph_from_bytes
from tests.ir.hostile import (
    FIXTURES,
    assert_accepted,
    assert_rejected,
    constant,
    fixture_bytes,
    fixture_text,
    load_graph,
    outcome,
)
from tests.ir.wire import map_entry, node_def, wire_field

# -- random damage -------------------------------------------------------------------------------

LENIENT = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@LENIENT
@given(st.data())
def test_flipped_bytes_are_refused_or_a_graph(data: st.DataObject) -> None:
    file = bytearray(fixture_bytes(data.draw(st.sampled_from(FIXTURES))))
    for _ in range(data.draw(st.integers(1, 4))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    outcome(bytes(file))


@LENIENT
@given(st.data())
def test_bytes_moved_about_are_refused_or_a_graph(data: st.DataObject) -> None:
    file = fixture_bytes(data.draw(st.sampled_from(FIXTURES)))
    positions = st.integers(0, len(file))
    start, stop, target = data.draw(st.tuples(positions, positions, positions))
    outcome(file[:target] + file[start:stop] + file[target:])
    outcome(file[:start] + file[stop:])


SIGNS = '{}[]()=,:"@$?#^\\-+>*. \n\t09aeT'


@LENIENT
@given(st.data())
def test_changed_text_is_refused_or_a_graph(data: st.DataObject) -> None:
    text = fixture_text(data.draw(st.sampled_from(FIXTURES))).decode()
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 3))
        new = data.draw(st.text(st.one_of(st.sampled_from(SIGNS), st.characters()), max_size=3))
        text = text[:position] + new + text[position + gone :]
    outcome(text.encode(errors="surrogatepass"), "graph")


@LENIENT
@given(st.text(st.sampled_from(SIGNS + "xA"), max_size=60))
def test_any_text_is_refused_or_a_graph(text: str) -> None:
    outcome(text.encode(), "graph")
    outcome(("x = A() {a=" + text).encode(), "graph")
    outcome(("function f(" + text).encode(), "graph")


@LENIENT
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_a_graph(data: bytes) -> None:
    outcome(data)
    outcome(data, "pb")
    outcome(wire_field(1, node_def("x", "A", (5, map_entry("a", data)))), "pb")
    outcome(constant(1, (2,)) + wire_field(1, data), "pb")


@LENIENT
@given(st.integers(0, 255), st.lists(st.integers(-2, 5), max_size=3), st.binary(max_size=40))
def test_any_tensor_is_refused_or_an_array(dtype: int, dims: list[int], data: bytes) -> None:
    lists = [(number, data) for number in (4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 17, 18)]
    for number, content in lists:
        load_and_decode(constant(dtype, tuple(dims), (number, content)))


def test_bits_outside_of_a_number_remain() -> None:
    for dtype in (10, 29, 30):
        load_and_decode(constant(dtype, (2,), (4, b"\x00\x10")))


def load_and_decode(data: bytes) -> None:
    graph = load_graph(data, "pb")
    if isinstance(graph, Graph):
        with contextlib.suppress(InvalidInput):
            _ = graph["x"].attrs["value"].array
        text = dumps(graph, "graph")
        assert dumps(loads(text, "graph")) == dumps(graph)


def test_the_checksum_of_a_packed_file_counts() -> None:
    packer = zlib.compressobj(wbits=31)
    data = packer.compress(fixture_bytes("counter")) + packer.flush()
    assert np.array_equal(
        dumps(assert_accepted(data)), dumps(graph_from_bytes(fixture_bytes("counter")))
    )
    assert_rejected(data[:-8] + bytes(4) + data[-4:])
