"""Swapping of stacks: equal values, less memory, and counted waits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from benchmarks.swapping import TINY, furthest, train, training_step
from cfgraph.backends.gpu.context import GpuContext
from cfgraph.errors import ExecutionError, UsageError
from cfgraph.runtime.cost_model import CostModel
from cfgraph.runtime.memory.accounting import MemoryMeter
from cfgraph.runtime.memory.swapping import StackEntry
from tests.backends.gpu.stand_in import library
from tests.recorder import Recorder
from tests.runtime.test_memory import KIB, growing

MATRIX = 16 * KIB
SLOW = CostModel(links={"*>*": {"bandwidth": 1e6, "latency": 0}})
FAST = CostModel(links={"*>*": {"bandwidth": 1e15, "latency": 0}})


def step(n: int, limit: int | None, *, swap: bool = True, **options: Any) -> tuple[Any, Any]:
    """A training step of n iterations; the session, and what it computed."""
    memory = {} if limit is None else {"gpu:0": limit}
    graph = growing(swap_memory=swap)
    session = cfgraph.Session(graph, devices="gpu:0", memory=memory, **options)
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32) / 8
    feeds = {"w:0": w, "n:0": np.int32(n)}
    return session, session.run(["loss:0", "gradient:0"], feeds)


@pytest.mark.parametrize("options", [{}, {"costs": SLOW}, {"schedule": "random"}])
def test_swapping_changes_no_value_and_goes_where_memory_ran_out(options: dict[str, Any]) -> None:
    limit = 30 * MATRIX
    with pytest.raises(ExecutionError, match="out of memory"):
        step(40, limit, swap=False, **options)
    _, (loss, gradient) = step(40, None, swap=False)
    session, (swapped_loss, swapped_gradient) = step(40, limit, **options)
    assert swapped_loss == loss
    assert np.array_equal(swapped_gradient, gradient)
    memory = session.memory["gpu:0"]
    assert memory.peak <= limit
    assert memory.swapped_out.count >= memory.swapped_in.count > 10
    assert memory.swapped_in.bytes == memory.swapped_in.count * MATRIX
    assert memory.host_peak >= memory.swapped_out.bytes // 2


def test_swapping_on_a_stand_in_card_is_as_on_a_simulated_gpu() -> None:
    measured = []
    for gpu in ("simulated", GpuContext(library)):
        session, values = step(40, 30 * MATRIX, gpu=gpu)
        memory = session.memory["gpu:0"]
        measured.append((memory.peak, memory.swapped_out, memory.swapped_in, memory.host_peak))
        np.testing.assert_array_equal(values[1], step(40, None)[1][1])
    assert measured[0] == measured[1]


@pytest.mark.card
def test_swapping_on_a_card_changes_no_value(real_card: GpuContext) -> None:
    session, values = step(40, 30 * MATRIX, gpu=real_card)
    _, plain = step(40, None, gpu=real_card)
    np.testing.assert_array_equal(values[1], plain[1])
    assert session.memory["gpu:0"].swapped_out.count > 10
    assert session.memory["gpu:0"].peak <= 30 * MATRIX


def test_nothing_swaps_while_enough_is_free() -> None:
    session, _ = step(10, 1000 * MATRIX)
    assert not session.memory["gpu:0"].swapped_out.count
    session, _ = step(10, None)
    assert not session.memory["gpu:0"].swapped_out.count
    session, _ = step(10, 1000 * MATRIX, swap_above=0)
    assert session.memory["gpu:0"].swapped_out.count


def test_slow_copies_are_waited_for_and_fast_ones_are_not() -> None:
    waits = {}
    for costs in (SLOW, FAST):
        session, _ = step(40, 30 * MATRIX, costs=costs)
        memory = session.memory["gpu:0"]
        waits[costs] = memory.stalls
        assert (memory.stalled > 0) is (memory.stalls > 0)
        assert session.elapsed is not None
        assert memory.stalled < session.elapsed
    assert waits[SLOW] > 10
    assert not waits[FAST]


def test_what_was_pushed_first_goes_first_and_comes_back_ahead_of_its_pop() -> None:
    seen = Recorder()
    graph = growing(swap_memory=True)
    limit = {"gpu:0": 30 * MATRIX}
    session = cfgraph.Session(graph, devices="gpu:0", memory=limit, costs=FAST)
    feeds = {"w:0": np.eye(64, dtype=np.float32), "n:0": np.int32(40)}
    session.run("gradient:0", feeds, trace=seen, without_values=True)
    copies = [event for event in seen.events if event.kind == "copy"]
    memory = session.memory["gpu:0"]
    out = [event for event in copies if event.text == "swap out"]
    back = [event for event in copies if event.text == "swap in"]
    assert (len(out), len(back)) == (memory.swapped_out.count, memory.swapped_in.count)
    assert max(event.start_ns for event in out) < min(event.start_ns for event in back)
    measured = [event.memory for event in seen.events if event.memory is not None]
    assert max(measured) <= memory.peak <= 30 * MATRIX


def test_what_came_back_ahead_goes_again_where_others_need_the_room() -> None:
    session, plain = (
        cfgraph.Session(growing(swap_memory=True), devices="gpu:0", memory=limit, swap_above=1)
        for limit in ({"gpu:0": 30 * MATRIX}, {"gpu:0": 1000 * MATRIX})
    )
    feeds = {"w:0": np.eye(64, dtype=np.float32), "n:0": np.int32(40)}
    np.testing.assert_array_equal(*(run.run("gradient:0", feeds)[0] for run in (session, plain)))
    memory = session.memory["gpu:0"]
    assert memory.swapped_out == memory.swapped_in
    assert memory.swapped_out.count > 0 == plain.memory["gpu:0"].swapped_out.count
    assert memory.peak <= 30 * MATRIX


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        cfgraph.Session(cfgraph.Graph(), memory={}, swap_above=share)


PUSHES = """
size = Const() {dtype=int32, value=int32[]:-1}
x = Placeholder() {dtype=float32, shape=[1024]}
small = Placeholder() {dtype=float32, shape=[512]}
z = Placeholder() {dtype=float32, shape=[1024]}
stack = StackV2(size) {elem_type=float32}
first = StackPushV2(stack, x) {swap_memory=true}
again = StackPushV2(stack, x, ^first) {swap_memory=true}
third = StackPushV2(stack, small, ^again) {swap_memory=true}
last = StackPushV2(stack, z, ^third) {swap_memory=true}
"""


@pytest.mark.parametrize(("target", "swapped"), [("third", 0), ("last", 1)])
def test_small_values_and_invariants_stay(target: str, swapped: int) -> None:
    graph = cfgraph.loads(PUSHES.encode(), "graph")
    limit = {"gpu:0": 100 * KIB}
    session = cfgraph.Session(graph, devices="gpu:0", memory=limit, swap_above=0)
    large, small = np.ones(1024, np.float32), np.ones(512, np.float32)
    feeds = {"x:0": large, "small:0": small, "z:0": large}
    session.run(targets=[target], feeds={name: feeds[name] for name in feeds})
    assert session.memory["gpu:0"].swapped_out.count == swapped


def test_an_lstm_goes_at_least_twice_as_far() -> None:
    plain, swapping = (training_step(TINY, swap_memory=swap) for swap in (False, True))
    short = furthest(plain, TINY)
    assert train(plain, TINY, short + TINY.step, TINY.limit) is None
    run = train(swapping, TINY, 2 * short, TINY.limit)
    assert run is not None
    assert run.memory.swapped_out.bytes == run.memory.swapped_in.bytes > 0


class At:
    """A clock that stands still; copies have arrived at their stated times."""

    def __init__(self, now: float) -> None:
        self.time = now

    def now(self) -> float:
        """The time."""
        return self.time

    def copy(self, device: str, node: str, size: int, *, out: bool) -> float:
        """Not called."""
        raise AssertionError(node)


def test_what_was_waited_for_is_there_however_the_times_are_rounded() -> None:
    now, then = 2.7, 11.1
    assert now + (then - now) < then
    memory = MemoryMeter({"gpu:0": MATRIX}).memory("gpu:0")
    memory.swapper.timer = At(now)
    memory.swapper.outgoing.append((then, StackEntry(np.zeros(1), 8, "push")))
    memory.wait(then)
    memory.swapper.release_arrived()
    assert not memory.swapper.outgoing
    assert memory.end_token() == then - now
    assert memory.end_token() == 0
