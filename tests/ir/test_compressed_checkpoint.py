"""Checkpoint indexes with Snappy blocks."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

import cfgraph
from cfgraph.errors import ExecutionError, InvalidInput, Unsupported
from cfgraph.ir.serde.checkpoint import table_entries
from cfgraph.ir.serde.snappy import decompress
from cfgraph.limits import limited
from tests.ir.test_checkpoint import MAGIC, block, varint


def compressed(data: bytes) -> bytes:
    """A block in which the longest earlier run of at least four bytes is copied."""
    out, offset, literal = bytearray(varint(len(data))), 0, bytearray()

    def flush() -> None:
        for start in range(0, len(literal), 70):
            part = literal[start : start + 70]
            size = len(part) - 1
            out.extend([size << 2] if size < 60 else [60 << 2, size])
            out.extend(part)
        literal.clear()

    while offset < len(data):
        length, found = 0, -1
        for size in range(min(64, len(data) - offset), 3, -1):
            found = data.rfind(data[offset : offset + size], 0, offset + size - 1)
            if 0 <= found < offset:
                length = size
                break
        if not length:
            literal.append(data[offset])
            offset += 1
            continue
        flush()
        distance = offset - found
        if length < 12 and distance < 1 << 11:
            out.extend([(distance >> 8) << 5 | (length - 4) << 2 | 1, distance & 255])
        elif distance < 1 << 16:
            out.extend([(length - 1) << 2 | 2, *distance.to_bytes(2, "little")])
        else:
            out.extend([(length - 1) << 2 | 3, *distance.to_bytes(4, "little")])
        offset += length
    flush()
    return bytes(out)


def test_an_index_of_tensorflow_serving_is_read(fixtures: Path) -> None:
    folder = fixtures / "freezing" / "compressed_index"
    graph = cfgraph.load(folder / "graph.pb")
    session = cfgraph.Session(graph, state=cfgraph.restore(folder / "model.ckpt", graph))
    (out,) = session.run(["out"], {"ids": [1, 3]})
    assert out.tolist() == [[5, 5, 5], [13, 13, 13]]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"a",
        b"abc" * 100,
        b"a" * 1000,
        bytes(range(256)) * 3,
        random.Random(0).randbytes(3000),
        b"".join(b"layer/kernel_%03d " % n for n in range(300)),
    ],
    ids=len,
)
def test_all_elements_are_decoded(data: bytes) -> None:
    assert decompress(compressed(data)) == data


def test_a_copy_goes_beyond_the_contents_so_far_and_far_back() -> None:
    assert decompress(bytes([12, 2 << 2]) + b"abc" + bytes([5 << 2 | 1, 3])) == b"abc" * 4
    far = random.Random(1).randbytes(70_000)
    literal = bytes([62 << 2]) + (len(far) - 1).to_bytes(3, "little") + far
    copy = bytes([9 << 2 | 3]) + (70_000).to_bytes(4, "little")
    assert decompress(varint(70_010) + literal + copy) == far + far[:10]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (bytes([1]), "another size"),
        (bytes([2, 0, 97]), "another size"),
        (bytes([1, 4, 97, 98]), "another size"),
        (bytes([4, 0, 97, 1, 2]), "copies what is not there"),
        (bytes([4, 0, 97, 1, 0]), "copies what is not there"),
        (bytes([8, 0, 97, 1]), "incomplete"),
        (bytes([8, 2 << 2, 97]), "incomplete"),
        (bytes([8, 60 << 2]), "incomplete"),
        (varint(1 << 40) + b"\0a", "declares more than it can contain"),
        (b"\xff" * 10, "a number is incomplete"),
    ],
)
def test_a_damaged_block_is_rejected(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decompress(data)


def test_the_declared_size_bounds_what_is_written() -> None:
    endless = bytes([1, 0, 97]) + bytes([63 << 2 | 2, 1, 0]) * 10_000
    with pytest.raises(ValueError, match="another size"):
        decompress(endless)


def test_the_contents_count_as_memory() -> None:
    with limited(max_memory=500), pytest.raises(ExecutionError, match="checkpoint index needs"):
        decompress(compressed(b"a" * 1000))


def compressed_table(items: dict[bytes, bytes]) -> bytes:
    """A table whose blocks, also the one that lists the other, are compressed."""
    first = compressed(block(items)[:-5]) + b"\1sums"
    index = block({b"~": varint(0) + varint(len(first) - 5)})
    index = compressed(index[:-5]) + b"\1sums"
    footer = varint(0) * 2 + varint(len(first)) + varint(len(index) - 5)
    return first + index + footer.ljust(40, b"\0") + MAGIC


ITEMS = {b"": b"", **{b"layer/%d/kernel" % n: b"value" * n for n in range(6)}}


def test_a_table_of_compressed_blocks_is_read() -> None:
    assert dict(table_entries(compressed_table(ITEMS))) == ITEMS


def test_a_wrong_byte_in_a_compressed_table_is_no_bug_of_ours() -> None:
    whole = compressed_table(ITEMS)
    for offset in range(len(whole) - len(MAGIC)):
        for byte in (0, 1, 2, 3, 0x7F, 0x80, 0xFC, 0xFF):
            with suppress(InvalidInput, Unsupported):
                list(table_entries(whole[:offset] + bytes([byte]) + whole[offset + 1 :]))
