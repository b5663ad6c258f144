"""Segments of shared memory: reuse, limits, and what a hostile worker may claim."""

from __future__ import annotations

import gc
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.backends.workers import shared_memory
from cfgraph.backends.workers.shared_memory import (
    HOST_BYTES,
    MIN_SHARED_BYTES,
    SharedArrays,
    host_identity,
)
from cfgraph.processes.codec import DecodeError
from tests.backends.workers.threads import Threads

pytestmark = pytest.mark.skipif(
    host_identity() == bytes(HOST_BYTES), reason="this machine has no shared memory"
)
# of this process: others run tests at the same time
SECRET = os.urandom(8)


@pytest.fixture
def ends() -> Iterator[tuple[SharedArrays, SharedArrays]]:
    """The sender and the receiver of a connection."""
    sender, receiver = SharedArrays(SECRET), SharedArrays(SECRET)
    yield sender, receiver
    sender.clear()


def sent(sender: SharedArrays, content: bytes) -> bytes:
    name = sender.write([content[:3], memoryview(content)[3:]])
    assert name is not None
    return name


def files() -> list[Path]:
    return list(Path("/dev/shm").glob(f"{SharedArrays(SECRET)._prefix}*"))


def test_a_segment_is_used_again_once_its_array_is_gone(ends: Any) -> None:
    sender, receiver = ends
    first = sent(sender, b"abcdefgh")
    array = receiver.read(first, 8)
    assert not files()
    view = array[2:].reshape(2, 3)
    del array
    second = sent(sender, b"ABCDEFGH")
    assert second != first  # a view is still in use
    assert view.tobytes() == b"cdefgh"
    assert receiver.read(second, 8).tobytes() == b"ABCDEFGH"
    del view
    assert {sent(sender, b"12345678"), sent(sender, b"123456")} == {first, second}
    assert receiver.read(first, 8).tobytes() == b"12345678"


def test_a_much_smaller_message_leaves_a_large_segment_free(ends: Any) -> None:
    sender, receiver = ends
    large = sent(sender, bytes(range(100)))
    receiver.read(large, 100)
    assert sent(sender, b"12345") != large
    assert sent(sender, bytes(60)) == large


def test_free_segments_are_limited(ends: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "_MAX_FREE_BYTES", 25)
    sender, receiver = ends
    names = [sent(sender, bytes(10)) for _ in range(4)]
    arrays = [receiver.read(name, 10) for name in names]
    arrays.clear()
    assert len(receiver._received) == 2  # the others were dropped
    reused = [sent(sender, bytes(10)) for _ in range(3)]
    assert set(reused[:2]) < set(names)
    assert reused[2] not in names
    assert len(sender._sent) == 3


def test_free_segments_of_another_size_are_dropped(
    ends: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_memory, "_MAX_FREE_BYTES", 100)
    sender, receiver = ends
    small = [sent(sender, bytes(30)) for _ in range(3)]
    arrays = [receiver.read(name, 30) for name in small]
    arrays.clear()
    large = sent(sender, bytes(70))
    assert len(sender._sent) == 2
    receiver.read(large, 70)
    assert len(receiver._received) == 2
    assert sent(sender, bytes(70)) == large


def test_a_receiver_may_keep_all_arrays(ends: Any) -> None:
    sender, receiver = ends
    arrays = []
    for number in range(shared_memory._MAX_SEGMENTS):
        arrays.append(receiver.read(sent(sender, bytes([number]) * 9), 9))
    assert sender.write([b"too many"]) is None
    assert [array[0] for array in arrays] == list(range(len(arrays)))


@pytest.mark.parametrize("size", [0, 9])
def test_another_size_of_a_known_segment_is_refused(ends: Any, size: int) -> None:
    sender, receiver = ends
    name = sent(sender, bytes(8))
    receiver.read(name, 8)
    assert sent(sender, bytes(8)) == name
    with pytest.raises(DecodeError, match="another size"):
        receiver.read(name, size)


def test_segments_need_no_system_that_frees_a_part_of_a_file(
    ends: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, receiver = ends
    monkeypatch.setattr(shared_memory, "_MAX_FREE_BYTES", 12)
    monkeypatch.setattr(mmap, "MADV_REMOVE", 0x7FFF)  # no advice that any system knows
    names = [sent(sender, bytes(8)) for _ in range(2)]
    arrays = [receiver.read(name, 8) for name in names]
    del arrays
    assert receiver.read(sent(sender, b"another!"), 8).tobytes() == b"another!"
    assert len(receiver._received) == len(sender._sent) == 1


def test_a_segment_in_use_is_refused(ends: Any) -> None:
    sender, receiver = ends
    name = sent(sender, bytes(8))
    array = receiver.read(name, 8)
    with pytest.raises(DecodeError, match="in use"):
        receiver.read(name, 8)
    assert array.tobytes() == bytes(8)
    del array
    with pytest.raises(DecodeError, match="in use"):  # free, so that no message is in it
        receiver.read(name, 8)


def round_trips() -> cfgraph.Graph:
    """A loop that sends an array to the second device and back."""
    b = cfgraph.Builder()
    x, n = b.placeholder("x"), b.placeholder("n", "int32")

    def body(i: Any, v: Any) -> Any:
        with b.device("/cpu:1"):
            v = b.Neg(v)
        with b.device("/cpu:0"):
            return i + 1, b.Abs(v)

    with b.device("/cpu:0"):
        b.Identity(b.while_loop(lambda i, v: i < n, body, (b.const(0), x))[1], name="y")
    graph = b.graph
    cfgraph.place(graph, devices="cpu:0-1")
    cfgraph.partition(graph)
    return graph


@pytest.mark.parametrize("engine", ["compiled", "tokens"])
def test_a_loop_needs_few_segments(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    written: list[bytes] = []
    write = SharedArrays._write_file

    def write_recorded(self: SharedArrays, *arguments: Any) -> bytes | None:
        written.append(b"")
        return write(self, *arguments)

    monkeypatch.setattr(SharedArrays, "_write_file", write_recorded)
    data = np.arange(MIN_SHARED_BYTES // 4, dtype=np.float32)
    with cfgraph.Session(round_trips(), workers=Threads(2), engine=engine) as session:
        for count in (21, 20):
            (y,) = session.run(["y:0"], {"n": count, "x": data}, timeout=30)
            assert np.array_equal(y, data)
        assert not session.fallback or engine == "tokens"
    gc.collect()
    assert 2 <= len(written) <= 12
