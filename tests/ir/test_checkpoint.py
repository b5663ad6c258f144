"""Checkpoints are read by the prefix of their files; broken ones are rejected with an error."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfgraph.errors import CfgraphError, ExecutionError, InvalidInput, Unsupported, UsageError
from cfgraph.ir.serde.checkpoint import Checkpoint, table_entries
from cfgraph.limits import limited
from cfgraph.proto import tensor_bundle_pb2

MAGIC = bytes.fromhex("57fb808b247547db")


def varint(number: int) -> bytes:
    more = number >> 7
    return bytes([number & 0x7F | 0x80]) + varint(more) if more else bytes([number])


def block(items: dict[bytes, bytes], compression: int = 0) -> bytes:
    """A block whose keys share nothing, with a checksum that is not verified."""
    body = b"".join(
        b"\0" + varint(len(key)) + varint(len(value)) + key + value for key, value in items.items()
    )
    restarts = (0).to_bytes(4, "little") + (1).to_bytes(4, "little")
    return body + restarts + bytes([compression]) + b"sums"


def table(items: dict[bytes, bytes], compression: int = 0) -> bytes:
    data = block(items, compression)
    where = varint(0) + varint(len(data) - 5)
    index = block({b"~": where})
    footer = varint(0) * 2 + varint(len(data)) + varint(len(index) - 5)
    return data + index + footer.ljust(40, b"\0") + MAGIC


@pytest.fixture
def make(tmp_path: Path) -> Any:
    """Writes a checkpoint of one tensor `x`, a float32 by default."""

    def write(shards: int = 1, endianness: int = 0, **fields: Any) -> Checkpoint:
        header = tensor_bundle_pb2.BundleHeaderProto(num_shards=shards, endianness=endianness)
        entry = tensor_bundle_pb2.BundleEntryProto(**{"dtype": 1, "size": 4, **fields})
        items = {b"": header.SerializeToString(), b"x": entry.SerializeToString()}
        (tmp_path / "c.index").write_bytes(table(items))
        (tmp_path / "c.data-00000-of-00001").write_bytes(np.float32(2.5).tobytes() + b"rest")
        return Checkpoint(str(tmp_path / "c"))

    return write


def test_what_tensorflow_wrote_is_read(fixtures: Path) -> None:
    result = Checkpoint(str(fixtures / "saved_model" / "variables" / "variables"))
    value = "/.ATTRIBUTES/VARIABLE_VALUE"
    assert result.read(f"steps{value}") == 3
    assert result.read(f"label{value}").item() == b"cat"
    np.testing.assert_array_equal(result.read(f"w{value}"), [[0.5, -0.25], [0.125, 1.0]])
    with pytest.raises(UsageError, match="no tensor 'W/"):
        result.read(f"W{value}")


def test_a_tensor_is_where_its_entry_says(make: Any) -> None:
    assert make().read("x") == np.float32(2.5)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"size": 5}, InvalidInput, "is truncated"),
        ({"size": 400}, InvalidInput, "is truncated"),
        ({"offset": -1}, InvalidInput, "cannot be read"),
        ({"shard_id": 3}, InvalidInput, "cannot be read"),
        ({"slices": [{}]}, Unsupported, "in parts"),
        ({"size": -1}, InvalidInput, "is truncated"),
        ({"size": 1 << 62}, InvalidInput, "is truncated"),
        ({"dtype": 20}, Unsupported, "as resource"),
        ({"dtype": 0}, Unsupported, "as invalid"),
        ({"dtype": 99}, Unsupported, "as dtype_99"),
        ({"dtype": 101}, Unsupported, "as Ref"),
        ({"shape": {"dim": [{"size": 1}] * 65}}, InvalidInput, "valid shape"),
        (
            {"size": 0, "shape": {"dim": [{"size": 0}, {"size": 1 << 62}]}},
            InvalidInput,
            "valid shape",
        ),
        ({"dtype": 7}, InvalidInput, "is truncated"),
        ({"shards": 0}, InvalidInput, "declares 0 shards"),
        ({"endianness": 1}, Unsupported, "big-endian"),
    ],
)
def test_what_cannot_be_read_is_said(
    make: Any, fields: dict[str, Any], error: type[CfgraphError], message: str
) -> None:
    with pytest.raises(error, match=message):
        make(**fields).read("x")


WHOLE = table({b"": b"", b"x": b"y"})


@pytest.mark.parametrize("size", range(len(WHOLE)))
def test_a_table_that_breaks_off_is_refused(size: int) -> None:
    with pytest.raises(InvalidInput, match="not a valid checkpoint index"):
        list(table_entries(WHOLE[:size]))


@pytest.mark.parametrize("offset", range(len(WHOLE) - len(MAGIC)))
def test_a_wrong_byte_in_a_table_is_no_bug_of_ours(offset: int) -> None:
    for byte in (0, 1, 5, 0x7F, 0x80, 0xFF):
        changed = WHOLE[:offset] + bytes([byte]) + WHOLE[offset + 1 :]
        with suppress(InvalidInput, Unsupported):
            list(table_entries(changed))


def test_a_text_whose_length_has_no_end_is_refused_at_once(make: Any, tmp_path: Path) -> None:
    result = make(dtype=7, size=1_000_000)
    (tmp_path / "c.data-00000-of-00001").write_bytes(b"\xff" * 1_000_000)
    with pytest.raises(InvalidInput, match="is truncated"):
        result.read("x")


def table_of(first: bytes, index: bytes) -> bytes:
    """A table of one block and of the block that lists it."""
    footer = varint(0) * 2 + varint(len(first)) + varint(len(index) - 5)
    return first + index + footer.ljust(40, b"\0") + MAGIC


def test_keys_that_grow_far_beyond_their_file_are_refused() -> None:
    growing = b"".join(varint(size) + b"\1\0x" for size in range(3000))
    first = growing + block({})
    index = block({b"~": varint(0) + varint(len(first) - 5)})
    with pytest.raises(InvalidInput, match="keys are too long"):
        list(table_entries(table_of(first, index)))


def test_a_block_that_is_listed_again_and_again_is_refused() -> None:
    first = block({b"key": b"value" * 20})
    where = varint(0) + varint(len(first) - 5)
    index = block({bytes([number]): where for number in range(100)})
    with pytest.raises(InvalidInput, match="its blocks exceed the file size"):
        list(table_entries(table_of(first, index)))


def test_an_unknown_compression_is_rejected() -> None:
    with pytest.raises(Unsupported, match="compression 2"):
        list(table_entries(table({b"x": b"y"}, compression=2)))


def test_keys_that_many_blocks_repeat_are_rejected() -> None:
    entries = [b"\0" + varint(1000) + b"\0" + b"k" * 1000]
    entries += [varint(1000) + b"\0\0"] * 1000  # the same key again, in three bytes or four
    restarts = (0).to_bytes(4, "little") + (1).to_bytes(4, "little")
    one = b"".join(entries) + restarts + b"\0sums"
    data, handles = one * 50, {}
    for number in range(50):
        handles[b"%03d" % number] = varint(number * len(one)) + varint(len(one) - 5)
    index = block(handles)
    footer = varint(0) * 2 + varint(len(data)) + varint(len(index) - 5)
    whole = data + index + footer.ljust(40, b"\0") + MAGIC
    with pytest.raises(InvalidInput, match="its keys are too long"):
        list(table_entries(whole))


def test_a_tensor_counts_as_memory(make: Any) -> None:
    checkpoint = make()
    with limited(max_memory=3), pytest.raises(ExecutionError, match="the checkpoint needs 4"):
        checkpoint.read("x")
