"""Arguments of compiled functions are copied to aligned arrays, which no result shares."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import cfgraph
from cfgraph.backends.xla.transfer import AlignedArguments, is_aligned
from cfgraph.ir.attrs import HOST_ALIGNMENT, aligned_empty
from cfgraph.runtime.feeds.conversion import feed_value

needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax (extra `xla`) is absent")
SUM = b"""
x = Placeholder() {dtype=float32, shape=[?]}
w = VarHandleOp() {dtype=float32, shape=[?], shared_name="w"}
init = AssignVariableOp(w, x) {dtype=float32}
value = ReadVariableOp(w) {dtype=float32}
y = AddV2(x, value) {T=float32}
"""
FLOAT32 = np.dtype(np.float32)
MANY = 300_000
COUNT = 4096  # more bytes than are copied without a look


def unaligned(count: int) -> np.ndarray:
    whole = aligned_empty((count + 1,), FLOAT32)
    whole[:] = np.arange(count + 1)
    return whole[1:]


@pytest.mark.parametrize("shape", [(), (0,), (3,), (5, 7)])
def test_an_empty_array_is_aligned(shape: tuple[int, ...]) -> None:
    array = aligned_empty(shape, FLOAT32)
    assert (array.shape, array.dtype) == (shape, FLOAT32)
    assert array.ctypes.data % HOST_ALIGNMENT == 0


def test_arguments_are_copied_unless_aligned() -> None:
    small, large, fits = unaligned(4), unaligned(COUNT), aligned_empty((COUNT,), FLOAT32)
    aligned = AlignedArguments([small, large, fits], np.asarray)
    passed, _ = aligned.acquire([small, large, fits])
    assert passed[2] is fits
    for array, value in zip(passed[:2], (small, large), strict=True):
        assert is_aligned(array)
        assert not np.shares_memory(array, value)
        np.testing.assert_array_equal(array, value)


def test_calls_at_once_have_arrays_of_their_own() -> None:
    aligned = AlignedArguments([unaligned(4)], np.asarray)
    (first,), arrays = aligned.acquire([unaligned(4)])
    (second,), _ = aligned.acquire([unaligned(4)])
    assert first is not second
    aligned.release(arrays)
    (third,), _ = aligned.acquire([unaligned(4)])
    assert third is first


def test_arguments_are_not_copied_if_a_result_is_one_of_the_copies() -> None:
    value = unaligned(4)
    aligned = AlignedArguments([value], np.asarray)
    passed, arrays = aligned.acquire([value])
    aligned.release(arrays)
    aligned.stop_if_shared([passed[0].copy()])
    assert aligned.acquire([value])[0][0] is not value
    aligned.release(arrays)
    aligned.stop_if_shared(passed)
    assert aligned.acquire([value])[0][0] is value


def test_fed_and_restored_arrays_need_no_other_copy(tmp_path: Path) -> None:
    graph = cfgraph.loads(SUM)
    session = cfgraph.Session(graph, engine="compiled")
    for shift in range(4):
        fed = np.empty(MANY + shift, FLOAT32)[shift:]
        assert is_aligned(feed_value(graph, graph["x"].output(), fed))
    session.run(targets="init", feeds={"x:0": np.ones(MANY, FLOAT32)})
    cfgraph.save_variables(session.state, tmp_path / "state")
    (_, restored) = next(iter(cfgraph.restore(tmp_path / "state", graph).variables()))
    assert is_aligned(restored.value)


@needs_jax
@pytest.mark.parametrize("count", [4, COUNT, MANY])
def test_a_value_of_a_variable_is_the_one_assigned_last(count: int) -> None:
    session = cfgraph.Session(cfgraph.loads(SUM), engine="xla")
    x = np.ones(count, FLOAT32)
    for value in (1, 1, 2, 3, 3):
        session.run(targets="init", feeds={"x:0": unaligned(count) * value})
        for _ in range(2):
            (y,) = session.run("y:0", {"x:0": x})
            np.testing.assert_array_equal(y, np.arange(1, count + 1, dtype=FLOAT32) * value + 1)


@needs_jax
def test_results_do_not_change_in_later_runs() -> None:
    graph = cfgraph.loads(b"""
x = Placeholder() {dtype=float32, shape=[6]}
sizes = Const() {dtype=int32, value=int32[2]:[2,3]}
y = Reshape(x, sizes)
z = Add(y, y)
""")
    session = cfgraph.Session(graph, engine="xla")
    results = [session.run(["y:0", "z:0"], {"x:0": np.full(6, n, np.float32)}) for n in range(4)]
    for n, (y, z) in enumerate(results):
        assert (y == n).all()
        assert (z == 2 * n).all()
