"""The memory limit of a real GPU: bytes that count against it, and ways to free them."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.backends.gpu.context import GpuContext
from cfgraph.backends.gpu.stream import GpuMemoryPool
from cfgraph.errors import ExecutionError
from cfgraph.runtime.memory.swapping import Swapper
from tests.backends.gpu import cuda
from tests.backends.gpu.stand_in import library
from tests.backends.gpu.test_run import CROSSING, session
from tests.runtime.test_swapping import MATRIX, growing

MIB = 1 << 20


class Full:
    """A pool of the library that is full for a number of calls."""

    def __init__(self, times: int) -> None:
        self.times, self.limits = times, list[int | None]()
        self.freed = 0

    def malloc(self, size: int) -> str:
        if self.times:
            self.times -= 1
            raise MemoryError
        return "memory"

    def free_all_blocks(self) -> None:
        self.freed += 1

    def set_limit(self, size: int | None = None) -> None:
        self.limits.append(size)


def pool(times: int = 0) -> tuple[GpuMemoryPool, Full, list[str]]:
    made, calls, blocks = GpuMemoryPool(cuda, lambda: calls.append("all")), list[str](), Full(times)
    made.blocks = blocks
    return made, blocks, calls


@pytest.mark.parametrize(("times", "reliefs"), [(0, 0), (1, 0), (2, 1), (4, 3)])
def test_room_is_made_only_when_there_is_no_other_way(times: int, reliefs: int) -> None:
    made, _, calls = pool(times)

    def relief() -> bool:
        calls.append("one")
        return True

    made.set_limit(MIB, relief)
    assert made.malloc(8) == "memory"
    assert calls == ["all"] * (times > 0) + ["one"] * reliefs


def test_where_no_room_can_be_made_there_is_no_memory() -> None:
    made, *_ = pool(9)
    made.set_limit(MIB, iter([True, True, False]).__next__)
    with pytest.raises(MemoryError):
        made.malloc(8)


def test_a_limit_leaves_room_for_what_kernels_need_and_ends_with_its_run() -> None:
    made, blocks, _ = pool()
    made.set_limit(None)
    made.set_limit(MIB)
    made.set_limit(1024 * MIB)
    made.set_limit(None)
    assert blocks.limits == [65 * MIB, 1152 * MIB, None]


def test_what_another_gpu_has_borrowed_counts_there() -> None:
    card, value = GpuContext(library), np.ones(MIB, np.float32)
    first, second = (card.stream(f"gpu:{number}") for number in range(2))
    for stream in (first, second):
        stream.pool.set_limit(512 * MIB)
    with first.current():
        message = first.post(library.asarray(value), to_host=False)
    with second.current():
        read = second.collect(message, first, to_host=False)
        own = second.copy_back(second.copy(read))
    limits = [stream.pool.blocks.limit for stream in (first, second)]
    assert limits == [580 * MIB, 572 * MIB]
    del read, own
    gc.collect()
    assert [stream.pool.blocks.limit for stream in (first, second)] == [576 * MIB] * 2


def test_a_run_bounds_the_pools_of_the_gpus_that_have_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card, limits_set = GpuContext(library), list[tuple[str, int | None]]()
    for number in range(2):
        stream = card.stream(f"gpu:{number}")
        monkeypatch.setattr(
            stream.pool.blocks,
            "set_limit",
            lambda size=None, stream=stream: limits_set.append((stream.device, size)),
        )
    run = session(CROSSING, card, memory={"gpu:1": 512 * MIB})
    run.run("d:0", {"x": np.ones(4, np.float32)})
    assert limits_set[0] == ("gpu:1", 576 * MIB)
    assert limits_set[-1] == ("gpu:1", None)
    limits_set.clear()
    session(CROSSING, card).run("d:0", {"x": np.ones(4, np.float32)})
    assert not limits_set


def test_a_pool_that_is_full_has_stacks_go_to_the_host_and_else_says_who_holds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card = GpuContext(library)
    blocks = card.stream("gpu:0").pool.blocks
    feeds = {"w:0": np.eye(64, dtype=np.float32), "n:0": np.int32(40)}
    # products allocate nothing while this many values are on the stacks
    most, run = 20 * MATRIX, Any
    times = 0

    def malloc(size: int) -> Any:
        if run.memory["gpu:0"].used > most:
            message = f"Out of memory allocating {size:,} bytes"
            raise MemoryError(message)
        return None

    relieve, streams = Swapper.relieve, set[Any]()

    def relieved(swapper: Swapper) -> bool:
        streams.add(cuda.Stream.now)
        return relieve(swapper)

    def product(a: Any, b: Any) -> Any:
        nonlocal times
        times += 1
        with card.stream("gpu:0").to_device_stream:
            card.stream("gpu:0").pool.malloc(MATRIX)
        return a @ b

    monkeypatch.setattr(blocks, "malloc", malloc)
    monkeypatch.setattr(Swapper, "relieve", relieved)
    monkeypatch.setattr(library.ndarray, "dot", product, raising=False)
    limit = {"gpu:0": 1000 * MATRIX}
    plain = cfgraph.Session(growing(), devices="gpu:0", gpu="simulated")
    (want,) = plain.run("gradient:0", feeds)
    run = cfgraph.Session(growing(swap_memory=True), devices="gpu:0", memory=limit, gpu=card)
    np.testing.assert_allclose(run.run("gradient:0", feeds)[0], want)
    assert times > 40
    assert streams == {card.stream("gpu:0").compute}
    assert run.memory["gpu:0"].swapped_out.count > 10
    run = cfgraph.Session(growing(), devices="gpu:0", memory=limit, gpu=card)
    with pytest.raises(
        ExecutionError, match=r"gpu:0 is out of memory: Out of memory all.*stack"
    ) as caught:
        run.run("gradient:0", feeds)
    assert caught.value.code == "CFG711"
    assert "MatMul" in str(caught.value.node)
    assert "--swap-memory" in str(caught.value.hint)
