from __future__ import annotations

import gzip
import pickle
import random

import pytest

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.errors import InvalidInput
from cfgraph.ir import file_bytes
from cfgraph.ir.graph import Graph
from tests.ir.hostile import (
    REAL,
    accepted,
    constant,
    outcome,
    real,
    real_text,
    refused,
    with_little_memory,
)
from tests.ir.wire import entry, field, message, node, varint

# -- nothing, garbage, half a file -----------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [b"", gzip.compress(b"", mtime=0), b"\xef\xbb\xbf"],
    ids=["nothing", "gzip of nothing", "byte order mark"],
)
def test_an_empty_file_is_refused(data: bytes) -> None:
    assert "the file is empty" in refused(data).message


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
    refused(GARBAGE[kind])


@pytest.mark.parametrize("name", REAL[:4])
def test_a_file_cut_at_any_length_is_refused_or_a_graph(name: str) -> None:
    data = real(name)
    kept = [length for length in range(len(data)) if isinstance(outcome(data[:length]), Graph)]
    assert len(kept) < len(data) / 10  # only between nodes can a cut go unseen


@pytest.mark.parametrize("name", REAL[:4])
def test_a_text_cut_at_any_length_is_refused_or_a_graph(name: str) -> None:
    data = real_text(name)
    for length in range(1, len(data), 3):
        outcome(data[:length])


def test_a_packed_file_cut_at_any_length_is_refused() -> None:
    data = gzip.compress(real("counter"))
    for length in range(2, len(data)):
        assert "gzip data are damaged" in refused(data[:length]).message


def test_damage_to_a_packed_file_is_found() -> None:
    data = bytearray(gzip.compress(real("counter")))
    for place in range(10, len(data)):
        data[place] ^= 0x10
        refused(bytes(data))
        data[place] ^= 0x10


# -- claims that are larger than the file ----------------------------------------------------------

HUGE = varint(2**31 - 1)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a" + HUGE,
        b"\x0a" + varint(2**63),
        b"\x0a\x06\x0a" + HUGE,
        b"\x12" + HUGE + b"\x0a",
        field(1, message((1, "x"), (2, "A")) + b"\x2a" + HUGE),
        field(1, node("x", "A", (5, b"\x0a\x01T\x12" + HUGE))),
        field(1, node("x", "A", (5, b"\x0a\x01T\x12\x07\x0a\x06\x1a" + HUGE))),
        b"\x08\x01\x12" + HUGE,
    ],
    ids=["node", "2^63", "name", "library", "attr", "value", "list", "meta"],
)
def test_a_claim_of_gigabytes_is_refused(data: bytes) -> None:
    with with_little_memory():
        refused(data)


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
    with with_little_memory():
        graph = accepted(data)
        with pytest.raises(InvalidInput):
            _ = graph["x"].attrs["value"].array


def test_a_huge_count_fills_no_memory() -> None:
    with with_little_memory():
        attrs = [(5, entry("num", field(3, 2**62))), (5, entry("T", field(6, 1)))]
        graph = accepted(field(1, node("x", "Unpack", *attrs)))
        assert graph["x"].output().dtype is None


def test_a_file_that_unpacks_to_far_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_bytes, "MAX_TRUSTED", 8 << 20)
    bomb = gzip.compress(bytes(200 << 20))
    with with_little_memory(48 << 20):
        error = refused(bomb)
    assert "unpack to more than" in error.message
    assert error.code == "CFG002"


def test_a_well_packed_graph_of_reasonable_size_is_trusted() -> None:
    data = field(1, node("x", "A", (5, entry("a", field(2, bytes(200_000))))))
    packed = gzip.compress(data)
    assert len(data) > file_bytes.MAX_RATIO * len(packed)
    accepted(packed, "pb")


def test_a_file_packed_twice_is_refused() -> None:
    refused(gzip.compress(gzip.compress(real("counter"))))


def test_bytes_after_the_packed_ones_are_refused() -> None:
    refused(gzip.compress(real("counter")) + b"more")
