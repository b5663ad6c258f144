from __future__ import annotations

import gzip
import pickle
import random

import pytest

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.errors import InvalidInput
from cfgraph.ir import file_io
from cfgraph.ir.graph import Graph
from tests.ir.hostile import (
    FIXTURES,
    assert_accepted,
    assert_rejected,
    constant,
    fixture_bytes,
    fixture_text,
    memory_limit,
    outcome,
)
from tests.ir.wire import map_entry, node_def, varint, wire_field, wire_message

# -- nothing, garbage, half a file -----------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [b"", gzip.compress(b"", mtime=0), b"\xef\xbb\xbf"],
    ids=["nothing", "gzip of nothing", "byte order mark"],
)
def test_an_empty_file_is_refused(data: bytes) -> None:
    assert "the file is empty" in assert_rejected(data).message


GARBAGE = {
    "elf": b"\x7fELF\x02\x01\x01" + bytes(57),
    "png": b"\x89PNG\r\n\x1a\n" + bytes(30),
    "zip": b"PK\x03\x04\x14\x00" + bytes(30),
    "npy": b"\x93NUMPY\x01\x00v\x00{'descr': '|O'}",
    "pickle": pickle.dumps({"a": [1, 2]}),
    "zeros": bytes(1000),
    "ones": b"\xff" * 1000,
    "utf-16": "x = A()".encode("utf-16"),
    "random": random.Random(1).randbytes(5000),
    "json": b'{"node": []}',
    "html": b"<html><body></body></html>",
    "python": b"import os\nos.system('true')\n",
    "words": b"once upon a time",
    "newlines": b"x\n" * 1000,
    "quotes": b'"' * 100_000,
    "escapes": b'x = A() {a="' + b"\\" * 100_000,
    "brackets": b"x = A() {a=" + b"(" * 100_000,
    "braces": b"{" * 100_000,
    "shapes": b"x = A() {a=" + b"[" * 100_000,
    "pbtxt braces": b"node {" * 100_000,
    "pbtxt lists": b"node: [" * 100_000,
    "pbtxt strings": b'node { name: "' + b'\\"' * 50_000,
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_is_refused(kind: str) -> None:
    assert_rejected(GARBAGE[kind])


@pytest.mark.parametrize("name", FIXTURES[:4])
def test_a_file_cut_at_any_length_is_refused_or_a_graph(name: str) -> None:
    data = fixture_bytes(name)
    retained = [length for length in range(len(data)) if isinstance(outcome(data[:length]), Graph)]
    assert len(retained) < len(data) / 10  # only a cut between nodes can pass unnoticed


@pytest.mark.parametrize("name", FIXTURES[:4])
def test_a_text_cut_at_any_length_is_refused_or_a_graph(name: str) -> None:
    data = fixture_text(name)
    for length in range(1, len(data), 3):
        outcome(data[:length])


def test_a_packed_file_cut_at_any_length_is_refused() -> None:
    data = gzip.compress(fixture_bytes("counter"))
    for length in range(2, len(data)):
        assert "gzip data is truncated or corrupt" in assert_rejected(data[:length]).message


def test_damage_to_a_packed_file_is_found() -> None:
    data = bytearray(gzip.compress(fixture_bytes("counter")))
    for index in range(10, len(data)):
        data[index] ^= 0x10
        assert_rejected(bytes(data))
        data[index] ^= 0x10


# -- declared sizes that exceed the file ---------------------------------------------------------

HUGE = varint(2**31 - 1)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a" + HUGE,
        b"\x0a" + varint(2**63),
        b"\x0a\x06\x0a" + HUGE,
        b"\x12" + HUGE + b"\x0a",
        wire_field(1, wire_message((1, "x"), (2, "A")) + b"\x2a" + HUGE),
        wire_field(1, node_def("x", "A", (5, b"\x0a\x01T\x12" + HUGE))),
        wire_field(1, node_def("x", "A", (5, b"\x0a\x01T\x12\x07\x0a\x06\x1a" + HUGE))),
        b"\x08\x01\x12" + HUGE,
    ],
    ids=["node", "2^63", "name", "library", "attr", "value", "list", "meta"],
)
def test_a_claim_of_gigabytes_is_refused(data: bytes) -> None:
    with memory_limit():
        assert_rejected(data)


@pytest.mark.parametrize(
    "data",
    [
        constant(1, (2**31, 2**31, 2**31), (5, b"\0\0\x80?")),
        constant(1, (2**62,), (5, b"\0\0\x80?" * 2)),
        constant(2, (2**30,), (6, bytes(16))),
        constant(7, (2**30,), (8, b"a"), (8, b"b")),
        constant(7, (2**31,), (4, b"\x00" * 100)),
        constant(20, (2**31,), (14, b"")),
        constant(1, (1,) * 5_000, (5, b"\0\0\x80?")),
        constant(1, (2**31, 2**31, 0)),
    ],
    ids=["product", "size", "repeats", "strings", "content", "resources", "rank", "empty"],
)
def test_a_huge_constant_is_not_decoded(data: bytes) -> None:
    with memory_limit():
        graph = assert_accepted(data)
        with pytest.raises(InvalidInput):
            _ = graph["x"].attrs["value"].array


def test_a_huge_count_fills_no_memory() -> None:
    with memory_limit():
        attrs = [(5, map_entry("num", wire_field(3, 2**62))), (5, map_entry("T", wire_field(6, 1)))]
        graph = assert_accepted(wire_field(1, node_def("x", "Unpack", *attrs)))
        assert graph["x"].output().dtype is None


def test_a_file_that_unpacks_to_far_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_io, "MAX_TRUSTED_BYTES", 8 << 20)
    bomb = gzip.compress(bytes(200 << 20))
    with memory_limit(48 << 20):
        error = assert_rejected(bomb)
    assert "unpack to more than" in error.message
    assert error.code == "CFG002"


def test_a_well_packed_graph_of_reasonable_size_is_trusted() -> None:
    data = wire_field(1, node_def("x", "A", (5, map_entry("a", wire_field(2, bytes(200_000))))))
    packed = gzip.compress(data)
    assert len(data) > file_io.MAX_COMPRESSION_RATIO * len(packed)
    assert_accepted(packed, "pb")


def test_a_file_packed_twice_is_refused() -> None:
    assert_rejected(gzip.compress(gzip.compress(fixture_bytes("counter"))))


def test_bytes_after_the_packed_ones_are_refused() -> None:
    assert_rejected(gzip.compress(fixture_bytes("counter")) + b"more")
