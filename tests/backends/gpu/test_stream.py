"""The streams of a GPU device: order between them, and lifetime of memory."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from benchmarks.gpu.pipeline import layers
from cfgraph import Session
from cfgraph.backends.gpu.context import GpuContext
from cfgraph.backends.gpu.plan import SharedVariables
from cfgraph.backends.gpu.stream import SMALL_COPY, GpuMessage, GpuStream
from cfgraph.ir.dtypes import float32
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.variables import Variable
from tests.backends.gpu import cuda
from tests.backends.gpu.stand_in import library

LARGE = np.arange(2 * SMALL_COPY, dtype=np.float32)


@pytest.mark.parametrize(
    "value",
    [
        np.float32(3),
        np.float32(-0.0),
        np.zeros((0, 2)),
        np.arange(6).reshape(2, 3),
        LARGE,
        np.array(True),
    ],
    ids=["scalar", "minus 0", "empty", "small", "large", "bool"],
)
def test_a_value_comes_back_as_it_went(value: np.ndarray) -> None:
    stream = GpuContext(library).stream("gpu:0")
    with stream.current():
        there = stream.to_device(value)
        assert type(there) is library.ndarray
        assert stream.to_device(there) is there
        for turned in (there, there.T):
            back = stream.to_host(turned)
            assert back.dtype == value.dtype
            assert back.tobytes() == (value if turned is there else value.T).tobytes()
    assert isinstance(back, np.ndarray if value.ndim else np.generic)


def test_what_the_card_does_not_compute_with_stays_on_the_host() -> None:
    stream = GpuContext(library).stream("gpu:0")
    text = np.array([b"text"], object)
    with stream.current():
        assert stream.to_device(text) is text
        assert stream.to_host(text) is text


def test_another_gpu_reads_a_message_without_a_copy_and_releases_it_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    past = False
    monkeypatch.setattr(cuda.Event, "done", property(lambda event: past))
    card = GpuContext(library)
    first, second = card.stream("gpu:0"), card.stream("gpu:1")
    with first.current():
        value = library.asarray(LARGE)
        message = first.post(value, to_host=False)
    assert isinstance(message, GpuMessage)
    with second.current():
        read = second.collect(message, first, to_host=False)
        assert np.shares_memory(read._a, value._a)
    kept = weakref.ref(value)
    del message, value
    part = read[1:]
    del read
    gc.collect()
    assert kept() is not None
    del part
    gc.collect()
    assert kept() is not None
    past = True
    second.release_finished()
    assert kept() is None


def test_a_gpu_that_makes_no_copies_lets_go_of_what_it_has_read() -> None:
    card = GpuContext(library)
    first, second = card.stream("gpu:0"), card.stream("gpu:1")
    kept: list[weakref.ref[object]] = []
    for _ in range(5):
        with first.current():
            value = library.asarray(LARGE)
            message = first.post(value, to_host=False)
        with second.current():
            second.collect(message, first, to_host=False)
        kept.append(weakref.ref(value))
        del message, value
    gc.collect()
    assert sum(ref() is not None for ref in kept) <= 1


def test_a_longer_run_holds_no_more_of_what_gpus_send_each_other() -> None:
    peaks = []
    for steps in (5, 30):
        graph = layers(2, 1, steps, 8, 8)
        run = Session(graph, devices="cpu:0,gpu:0-1", gpu=GpuContext(library), memory={})
        run.run(["out:0"])
        peaks.append({device: memory.peak for device, memory in run.memory.items()})
    assert peaks[0] == peaks[1]


def test_a_variable_of_two_gpus_is_kept_until_both_are_past_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    past = False
    monkeypatch.setattr(cuda.Event, "done", property(lambda event: past))
    card = GpuContext(library)
    streams = {name: card.stream(name) for name in ("gpu:0", "gpu:1")}
    followed: list[str] = []
    monkeypatch.setattr(GpuStream, "follow", lambda stream, others: followed.append(stream.device))
    cells = SharedVariables(card, streams)
    cell = Variable(float32, Shape([None]), "v", value=library.asarray(LARGE))
    kept = weakref.ref(cell.value)
    for name in ("gpu:0", "gpu:1", "gpu:1", "gpu:0", "gpu:1"):
        cells.use(cell, streams[name])
    assert followed == ["gpu:1", "gpu:0", "gpu:1"]
    np.testing.assert_array_equal(cell.value.get(), LARGE)
    cell.value = library.asarray(LARGE)
    cells.use(cell, streams["gpu:0"])
    gc.collect()
    assert kept() is not None
    past = True
    for stream in streams.values():
        stream.release_finished()
    gc.collect()
    assert kept() is None


def test_page_locked_memory_of_copies_is_freed_before_an_allocation_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card, requests, successes = GpuContext(library), list[int](), [False, True, False, False]

    def alloc(size: int) -> np.ndarray:
        requests.append(size)
        if successes.pop(0):
            return np.zeros(size, np.uint8)
        message = "cudaErrorMemoryAllocation: out of memory"
        raise RuntimeError(message)

    monkeypatch.setattr(cuda, "alloc_pinned_memory", alloc)
    stream = card.stream("gpu:0")
    assert stream._pinned((2,), np.dtype(np.float32)).shape == (2,)
    assert requests == [8, 8]
    with pytest.raises(MemoryError, match="page-locked host memory for copies: cudaError"):
        stream._pinned((2,), np.dtype(np.float32))


def test_unused_memory_is_freed_before_an_allocation_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card = GpuContext(library)
    first, second = card.stream("gpu:0"), card.stream("gpu:1")
    requests: list[object] = []

    def malloc(size: int) -> str:
        requests.append(size)
        if len(requests) == 1:
            raise MemoryError
        return "memory"

    monkeypatch.setattr(first.pool.blocks, "malloc", malloc)
    monkeypatch.setattr(second.pool.blocks, "free_all_blocks", lambda: requests.append("freed"))
    assert first.pool.malloc(8) == "memory"
    assert requests == [8, "freed", 8]
