"""Memory accounting: values are counted while referenced, in the right memory, within limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import ExecutionError, UsageError
from cfgraph.runtime.cost_model import CostModel
from cfgraph.runtime.memory.accounting import CopyTotals, MemoryOwner

KIB = 1024
CHAIN = """
x = Placeholder() {dtype=float32, shape=[1024]}
a = Mul(x, x)
b = Mul(a, a)
c = Mul(b, b)
"""
COUNT = """
n = Placeholder() {dtype=TYPE, shape=[]}
zero = Const() {dtype=TYPE, value=TYPE[]:0}
one = Const() {dtype=TYPE, value=TYPE[]:1}
limit = Enter(n) {frame_name="loop", is_constant=true}
step = Enter(one) {frame_name="loop", is_constant=true}
enter = Enter(zero) {frame_name="loop"}
merge = Merge(enter, next)
less = Less(merge, limit)
cond = LoopCond(less)
switch = Switch(merge, cond)
add = AddV2(switch:1, step)
next = NextIteration(add)
exit = Exit(switch)
out = Identity(exit)
"""
HOP = """
x = Placeholder() {dtype=float32, shape=[256]} @"/cpu:0"
a = Mul(x, x) @"/gpu:0"
b = Mul(a, a) @"/gpu:1"
c = Mul(b, b) @"/cpu:0"
"""


def session(text: str, **options: Any) -> cfgraph.Session:
    options = {"devices": "gpu:0", "memory": {}, **options}
    return cfgraph.Session(cfgraph.loads(text.encode(), "graph"), **options)


def test_a_value_is_held_until_its_last_reader_has_it() -> None:
    run = session(CHAIN)
    for _ in range(2):
        run.run("c:0", {"x:0": np.ones(1024, np.float32)})
        memory = run.memory["gpu:0"]
        assert (memory.peak, memory.peak_node, memory.used) == (8 * KIB, "a", 0)
        assert memory.to_device == memory.to_host == CopyTotals(1, 4 * KIB)


def test_nothing_is_counted_unless_requested() -> None:
    run = session(CHAIN, memory=None)
    run.run("c:0", {"x:0": np.ones(1024, np.float32)})
    assert run.memory == {}


def test_views_share_the_bytes_of_what_they_show() -> None:
    text = CHAIN.replace("b = Mul(a, a)", "b = ExpandDims(a, n)")
    text += "n = Const() {dtype=int32, value=int32[]:0}\n"
    for options in ({}, {"costs": CostModel()}):
        run = session(text, **options)
        feeds = {"x:0": np.ones(1024, np.float32)}
        run.run("c:0", feeds, without_values=bool(options))
        assert run.memory["gpu:0"].peak == 8 * KIB


def test_variables_are_held_between_runs() -> None:
    b = cfgraph.Builder()
    v = b.variable(np.ones(1024, np.float32), name="v")
    b.AddV2(v, b.const(1.0), name="y")
    b.initializer()
    run = cfgraph.Session(b.graph, devices="gpu:0", memory={})
    run.run(targets=["init"])
    run.run("y:0")
    assert run.memory["gpu:0"].used == 4 * KIB
    assert run.memory["gpu:0"].peak == 8 * KIB


@pytest.mark.parametrize("costs", [None, CostModel()])
def test_an_error_that_is_kept_holds_nothing_of_the_failed_run(costs: CostModel | None) -> None:
    run = session(CHAIN, memory={"gpu:0": 6 * KIB}, costs=costs)
    with pytest.raises(ExecutionError, match="out of memory") as kept:
        run.run("c:0", {"x:0": np.ones(1024, np.float32)})
    assert run.memory["gpu:0"].used == 0
    assert kept.value.code == "CFG711"


@pytest.mark.parametrize(("dtype", "copies"), [("int32", 0), ("float32", 6)])
def test_counters_stay_on_the_host_and_predicates_of_the_device_are_copied_there(
    dtype: str, copies: int
) -> None:
    run = session(COUNT.replace("TYPE", dtype))
    assert run.run("out:0", {"n:0": np.array(5, dtype)}) == [5]
    memory = run.memory["gpu:0"]
    fetched = dtype == "float32"
    assert memory.to_host.count == copies + fetched
    assert memory.to_device.count == fetched


def test_messages_are_copies_into_the_memory_of_the_device_that_gets_them() -> None:
    run = session(HOP, devices="cpu:0,gpu:0,gpu:1")
    run.run("c:0", {"x:0": np.full(256, 2, np.float32)})
    cpu, first, second = (run.memory[name] for name in ("cpu:0", "gpu:0", "gpu:1"))
    assert (first.to_device, first.to_host) == (CopyTotals(1, KIB), CopyTotals())
    assert (second.from_devices, second.to_host) == (CopyTotals(1, KIB), CopyTotals(1, KIB))
    assert not cpu.to_host.count
    assert not cpu.to_device.count
    assert first.peak == second.peak == 2 * KIB


def test_a_loop_holds_as_much_with_values_as_without() -> None:
    graph = growing()
    feeds = {"w:0": np.eye(64, dtype=np.float32), "n:0": np.int32(20)}
    peaks = set()
    for without in (False, True):
        run = cfgraph.Session(graph, devices="gpu:0", memory={}, costs=CostModel())
        run.run("loss:0", feeds, ["gradient"], without_values=without)
        peaks.add(run.memory["gpu:0"].peak)
    assert len(peaks) == 1
    assert peaks.pop() > 20 * 64 * 64 * 4


def test_a_device_that_runs_out_names_the_node_and_who_holds_the_rest() -> None:
    limit = 256 * KIB
    run = cfgraph.Session(growing(), devices="gpu:0", memory={"gpu:0": limit})
    feeds = {"w:0": np.eye(64, dtype=np.float32)}
    with pytest.raises(ExecutionError) as caught:
        run.run(["loss:0", "gradient:0"], {**feeds, "n:0": np.int32(100)})
    error = caught.value
    assert (error.code, error.device) == ("CFG711", "gpu:0")
    assert error.node is not None
    assert error.node.startswith("while/")
    assert error.frame is not None
    start = "gpu:0 (simulated) is out of memory: 16 KiB requested, 16380 B free of 256 KiB"
    assert error.message.startswith(f"{start}; owned by stack gradients/while/")
    assert "--swap-memory" in str(error.hint)
    assert run.memory["gpu:0"].peak <= limit
    loss, _ = run.run(["loss:0", "gradient:0"], {**feeds, "n:0": np.int32(3)})
    assert np.isfinite(loss)


def test_a_value_larger_than_the_limit_hints_at_more_memory() -> None:
    with pytest.raises(ExecutionError, match="4 KiB requested, 1 KiB free of 1 KiB") as caught:
        session(CHAIN, memory={"gpu:0": KIB}).run("c:0", {"x:0": np.ones(1024, np.float32)})
    assert "--memory gpu:0=" in str(caught.value.hint)


def test_a_limit_on_a_device_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="no device gpu:1") as caught:
        session(CHAIN, memory={"gpu:1": KIB})
    assert "it runs on gpu:0" in str(caught.value.hint)


def growing(*, swap_memory: bool = False) -> cfgraph.Graph:
    """A loop of matrices with its gradient, which saves values in each iteration."""
    b = cfgraph.Builder()
    w, n = b.placeholder("w", "float32", [64, 64]), b.placeholder("n", "int32", [])

    def body(i: Any, h: Any) -> Any:
        return b.AddV2(i, b.const(1)), b.Tanh(b.MatMul(h, w))

    h = b.while_loop(lambda i, h: b.Less(i, n), body, [b.const(0), w])[1]
    b.Sum(h, b.const([0, 1]), name="loss")
    made = cfgraph.gradients(b.graph, ys=["loss:0"], xs=["w:0"], swap_memory=swap_memory)
    b.graph.add("Identity", b.graph.tensor(str(made[0])), name="gradient")
    return b.graph


def test_an_owner_without_a_kind_is_its_name() -> None:
    assert str(MemoryOwner("", "constants", 24, 1)) == "constants 24 B"
