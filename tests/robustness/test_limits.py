"""Limits: the deadline, iterations, expanded nodes, and bytes that a context permits."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import cfgraph
from cfgraph import limits
from cfgraph.backends.xla.jax_library import has_jax
from cfgraph.cli import command_line as cli
from cfgraph.errors import ExecutionError, RunTimeout, Unsupported, UsageError
from cfgraph.ir.attrs import array_copy
from cfgraph.limits import (
    check_deadline,
    current_limits,
    default_max_memory,
    limited,
    machine_memory,
    reserve,
    reserve_array,
)
from tests.late_runs import timeout_error_at

COUNTER = Path(__file__).parents[2] / "fixtures" / "graphs" / "counter.pb"


def test_no_limit_of_time_by_default() -> None:
    check_deadline()
    assert not current_limits().bounds_loops


def test_a_deadline_ends_with_its_block() -> None:
    with limited(timeout=0):
        time.sleep(0.001)
        with pytest.raises(RunTimeout) as caught:
            check_deadline()
        assert caught.value.code == "CFG706"
    check_deadline()


def test_an_inner_deadline_is_never_later() -> None:
    with limited(timeout=5) as outer:
        with limited(timeout=100) as inner:
            assert inner.deadline == outer.deadline
        with limited(timeout=1) as inner:
            assert inner.deadline < outer.deadline


def test_an_inner_block_keeps_what_it_does_not_set() -> None:
    with limited(max_nodes=7, max_memory=100), limited(max_iterations=3) as inner:
        assert (inner.max_nodes, inner.max_bytes, inner.max_iterations) == (7, 100, 3)


def test_a_value_is_checked_before_it_is_allocated() -> None:
    with limited(max_memory=100):
        reserve(100)
        with pytest.raises(ExecutionError, match="101 bytes, the limit is 100") as caught:
            reserve(101)
        assert caught.value.code == "CFG713"
        with pytest.raises(ExecutionError):
            reserve_array((1 << 40, 1 << 40), 8)


def test_limits_belong_to_a_thread() -> None:
    seen: list[float] = []
    with limited(timeout=0):
        thread = threading.Thread(target=lambda: seen.append(current_limits().deadline))
        thread.start()
        thread.join()
    assert seen == [float("inf")]


@pytest.mark.parametrize("bad", [{"timeout": -1}, {"timeout": float("nan")}, {"max_nodes": -1}])
def test_invalid_limits(bad: dict[str, int]) -> None:
    with pytest.raises(UsageError), limited(**bad):
        pass


def test_the_default_is_a_quarter_of_the_machine() -> None:
    assert default_max_memory() == machine_memory() // 4
    assert current_limits().max_bytes == default_max_memory()


def test_the_timeout_of_a_context_ends_a_run() -> None:
    session = cfgraph.Session(cfgraph.load(COUNTER))
    with limited(timeout=0), pytest.raises(RunTimeout, match="timeout"):
        session.run("count")


def test_the_iterations_of_a_context_end_a_loop() -> None:
    session = cfgraph.Session(cfgraph.load(COUNTER))
    with limited(max_iterations=3), pytest.raises(ExecutionError, match="more than 3 iterations"):
        session.run("count")


_XLA = pytest.param(
    "xla", marks=pytest.mark.skipif(not has_jax(), reason="XLA needs the extra xla")
)
_ENGINES = ["compiled", _XLA]


def forever(engine: str) -> cfgraph.Session:
    """A session of a graph whose cluster never ends."""
    path = Path(__file__).parents[2] / "fixtures" / "robustness" / "clustered_forever.pb"
    return cfgraph.Session(cfgraph.load(path), engine=engine)


@pytest.mark.parametrize("engine", _ENGINES)
def test_a_loop_in_a_cluster_has_a_limit_of_iterations(engine: str) -> None:
    message = "the loop 'loop_0' started more than 5 iterations"
    with pytest.raises(ExecutionError, match=message) as caught:
        forever(engine).run("exit0", {"x": 1.0}, max_iterations=5)
    assert (caught.value.code, caught.value.node) == ("CFG704", "cluster_0/loop_0")


@pytest.mark.parametrize("engine", _ENGINES)
def test_a_loop_in_a_cluster_ends_at_the_deadline(engine: str) -> None:
    # the time passes in the loop or in a kernel of it, under XLA in its code, which has no node
    error = timeout_error_at(
        lambda seconds: forever(engine).run("exit0", {"x": 1.0}, timeout=seconds),
        lambda error: engine == "xla" or str(error.node).startswith("cluster_0/loop_0"),
    )
    assert error.code == "CFG706"


_BOMB = Path(__file__).parents[2] / "fixtures" / "robustness" / "bomb64.pb"


@pytest.mark.parametrize(
    "change",
    [
        cfgraph.lower,
        lambda graph: cfgraph.Session(graph).run("y", {"x": 1.0}),
        lambda graph: cfgraph.Session(graph, ["cpu:0", "cpu:1"]).run("y", {"x": 1.0}),
        lambda graph: cfgraph.Session(graph, jit="numpy", regions=True).run("y", {"x": 1.0}),
    ],
)
def test_functions_that_expand_too_far_are_counted_first(
    change: Callable[[cfgraph.Graph], object],
) -> None:
    graph = cfgraph.load(_BOMB)
    before = cfgraph.dumps(graph)
    message = r"function 'f0' expands to more than 2\^64 nodes, the limit is 2000000"
    with pytest.raises(Unsupported, match=message) as caught:
        change(graph)
    assert (caught.value.code, caught.value.node) == ("CFG137", "y")
    assert cfgraph.dumps(graph) == before


def test_the_number_of_nodes_is_a_limit_of_the_context() -> None:
    path = COUNTER.parent / "while_functional.pb"
    with (
        limited(max_nodes=10),
        pytest.raises(Unsupported, match=r"expands to 1\d nodes, the limit"),
    ):
        cfgraph.lower(cfgraph.load(path))
    assert cfgraph.lower(cfgraph.load(path))


def bomb(call: str, calls_of: str, last: str) -> cfgraph.Graph:
    """A graph of functions that call each other twice, 40 levels deep."""
    functions = [f"function f{n}{calls_of.replace('NEXT', f'f{n + 1}')}" for n in range(40)]
    inputs = "x = Placeholder() {dtype=float32, shape=[]}\np = Placeholder() {dtype=bool}\n"
    text = "\n".join([inputs + call, *functions, f"function f40{last}"])
    return cfgraph.loads(text.encode())


_TWO_BRANCHES = """(p: bool, x: float32) -> (y: float32) {
  a = StatelessIf(p, p, x) {then_branch=@NEXT, else_branch=@NEXT, Tout=(float32)}
  b = StatelessIf(p, p, a) {then_branch=@NEXT, else_branch=@NEXT, Tout=(float32)}
  return b
}"""
_NEGATED = """(p: bool, x: float32) -> (y: float32) {
  y = Neg(x)
  return y
}"""
_LAUNCH = (
    "y = XlaLaunch(p, x) {function=@f0, Tconstants=(), Targs=(bool, float32), Tresults=(float32),"
    " Nresources=0}"
)


def test_functions_of_a_cluster_are_counted_first() -> None:
    session = cfgraph.Session(bomb(_LAUNCH, _TWO_BRANCHES, _NEGATED), engine="compiled")
    with pytest.raises(Unsupported, match="expands to more than") as caught:
        session.run("y", {"x": 1.0, "p": True})
    assert caught.value.code == "CFG137"


def test_recursion_in_a_cluster_is_reported() -> None:
    graph = bomb(_LAUNCH, _TWO_BRANCHES.replace("NEXT", "f0"), _NEGATED)
    with pytest.raises(Unsupported, match="function 'f0' calls itself"):
        cfgraph.Session(graph, engine="compiled").run("y", {"x": 1.0, "p": True})


_INSTANCES = """(x: float32) -> (y: float32) {
  attr k: func
  a = PartitionedCall(x) {f=@NEXT{k=@u{k=$k}}, Tout=(float32)}
  b = PartitionedCall(a) {f=@NEXT{k=@v{k=$k}}, Tout=(float32)}
  return b
}"""


def test_instances_of_functions_are_counted() -> None:
    last = "(x: float32) -> (y: float32) {\n  attr k: func\n  y = Neg(x)\n  return y\n}"
    graph = bomb("y = PartitionedCall(x) {f=@f0{k=@f40}, Tout=(float32)}", _INSTANCES, last)
    with limited(max_nodes=5000), pytest.raises(Unsupported, match=r"expands to 500\d nodes"):
        cfgraph.lower(graph)


@pytest.mark.skipif(not has_jax(), reason="XLA needs the extra xla")
@pytest.mark.parametrize("limits", [{}, {"max_iterations": 100}, {"timeout": 1000}])
def test_compiled_loops_within_their_limits_stay_compiled(limits: dict[str, int]) -> None:
    graph = cfgraph.load(COUNTER.parent / "nested.pb")
    session = cfgraph.Session(graph, jit="xla", regions=True)
    assert session.run("sum", **limits) == [10_000]
    (cluster,) = session.cluster_runner.clusters.values()
    assert (cluster.fused, cluster.calls) == (0, 1)


@pytest.mark.skipif(not has_jax(), reason="XLA needs the extra xla")
def test_an_inner_compiled_loop_has_a_limit() -> None:
    graph = cfgraph.load(COUNTER.parent / "nested.pb")
    session = cfgraph.Session(graph, jit="xla", regions=True)
    with pytest.raises(ExecutionError, match="more than 99 iterations"):
        session.run("sum", max_iterations=99)


_LARGE = """
n = Const() {dtype=int32, value=int32[1]:[1000000]}
d = Const() {dtype=int32, value=int32[]:1000000}
z = Const() {dtype=int32, value=int32[]:0}
o = Const() {dtype=int32, value=int32[]:1}
f = Const() {dtype=float64, value=float64[]:1.0}
v = Const() {dtype=float64, value=float64[1]:[1.0]}
p = Const() {dtype=int32, value=int32[1,2]:[[0,1000000]]}
i = Const() {dtype=int32, value=int32[1,1]:[[5]]}
i1 = Const() {dtype=int32, value=int32[1]:[5]}
fill = Fill(n, f)
range = Range(z, d, o)
lin = LinSpace(f, f, d)
hot = OneHot(i1, d, f, f)
broadcast = BroadcastTo(f, n)
tile = Tile(v, n)
pad = Pad(v, p)
scatter = ScatterNd(i, v, n)
segments = UnsortedSegmentSum(v, i1, d)
empty = Empty(n) {dtype=float64}
uniform = RandomUniform(n) {dtype=float32}
list = TensorListReserve(i1, d) {element_dtype=float32, shape_type=int32}
length = TensorListLength(list)
"""
_LARGE_NODES = [
    "fill",
    "range",
    "lin",
    "hot",
    "broadcast",
    "tile",
    "pad",
    "scatter",
    "segments",
    "empty",
    "uniform",
    "length",
]


@pytest.mark.parametrize("name", _LARGE_NODES)
def test_results_whose_size_is_an_input_are_checked(name: str) -> None:
    session = cfgraph.Session(cfgraph.loads(_LARGE.encode()))
    with limited(max_memory=1_000_000), pytest.raises(ExecutionError, match="bytes, the limit is"):
        session.run(name)
    with limited(max_memory=9_000_000):
        session.run(name)


def test_a_constant_that_repeats_an_element_is_checked() -> None:
    session = cfgraph.Session(cfgraph.load(_BOMB.parent / "splat_4gib.pb"))
    message = "the constant '.*' needs 4294967296 bytes"
    with limited(max_memory=1 << 30), pytest.raises(ExecutionError, match=message) as caught:
        session.run([node.name for node in session.graph if not node.uses])
    assert caught.value.code == "CFG713"


@pytest.mark.parametrize(
    ("contents", "limit"),
    [
        (("max", "1073741824"), 1 << 30),
        (("1048576\n", "9223372036854771712"), 1 << 20),
        (("-1", "x"), None),
        (("٣", "0"), None),
        (("9" * 5000, ""), None),
    ],
)
def test_memory_of_a_control_group(
    contents: tuple[str, str], limit: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = (tmp_path / "memory.max", tmp_path / "memory.limit_in_bytes")
    for path, text in zip(paths, contents, strict=True):
        path.write_text(text, encoding="utf-8")
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    monkeypatch.setattr(limits, "_CGROUP_LIMITS", paths)
    assert limits.machine_memory.__wrapped__() == (limit or machine)
    monkeypatch.setattr(limits, "_CGROUP_LIMITS", (tmp_path, tmp_path / "missing"))
    assert limits.machine_memory.__wrapped__() == machine


def test_the_text_of_a_graph_ends_at_the_deadline() -> None:
    graph = cfgraph.load(COUNTER)
    with pytest.raises(RunTimeout), limited(timeout=0):
        cfgraph.dumps(graph, format="graph")


@pytest.mark.parametrize("name", ["timeout", "max_iterations", "max_nodes", "max_memory"])
def test_a_negative_limit_is_rejected_by_its_name(name: str) -> None:
    negative: dict[str, Any] = {name: -1}
    message = f"{name} must be a number of at least 0"
    with pytest.raises(UsageError, match=message), limited(**negative):
        pass


LOOP = """
n = Placeholder() {dtype=int32, shape=[]}
p = Placeholder() {dtype=bool, shape=[]}
x = Placeholder() {dtype=float32, shape=[]}
split = Switch(x, p)
joined = Merge(split:0, split:1)
zero = Const() {dtype=int32, value=int32[]:0}
limit = Enter(n) {frame_name="loop", is_constant=true}
factor = Enter(joined) {frame_name="loop", is_constant=true}
enter = Enter(zero) {frame_name="loop"}
value = Enter(x) {frame_name="loop"}
merge = Merge(enter, next)
merge_value = Merge(value, next_value)
less = Less(merge, limit)
cond = LoopCond(less)
switch = Switch(merge, cond)
switch_value = Switch(merge_value, cond)
one = Const(^merge) {dtype=int32, value=int32[]:1}
add = AddV2(switch:1, one)
scaled = Mul(switch_value:1, factor)
next = NextIteration(add)
next_value = NextIteration(scaled)
exit = Exit(switch:0)
result = Exit(switch_value:0)
"""
PASSES: dict[str, Callable[[cfgraph.Graph], Any]] = {
    "passes.partition": cfgraph.partition,
    "passes.place": lambda graph: cfgraph.place(graph, devices=["cpu:0", "gpu:0"]),
    "analysis.loops": lambda graph: cfgraph.gradients(graph, "result:0", "x:0"),
}


@pytest.mark.parametrize(
    ("room", "module"),
    [
        *(("passes.partition", name) for name in ("partition", "cut", "control_loops")),
        ("passes.partition", "device_crossings"),
        *(("passes.place", name) for name in ("constraints", "op_placement", "device_scheduler")),
        *(("analysis.loops", name) for name in ("path_conditions",)),
    ],
)
def test_a_pass_ends_at_the_deadline_and_leaves_the_graph_unchanged(
    room: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = cfgraph.loads(LOOP.encode())
    graph.set_device(graph["scaled"], "/device:GPU:0")
    graph.set_attr(graph["scaled"], "_class", (b"loc:@next_value",))
    if room != "passes.place":
        PASSES["passes.place"](graph)
    before = cfgraph.dumps(graph)
    expired = RunTimeout("the timeout has expired")
    monkeypatch.setattr(f"cfgraph.{room}.{module}.check_deadline", Mock(side_effect=expired))
    with pytest.raises(RunTimeout):
        PASSES[room](graph)
    assert cfgraph.dumps(graph) == before


def test_the_copy_of_a_huge_result_ends_at_the_deadline() -> None:
    path = _BOMB.parent / "splat_4gib.pb"
    # the 4 GiB are reserved, and written only as far as the time permits
    started = time.process_time()
    assert cli.run(["run", str(path), "--timeout", "0.3", "--max-memory", "8GiB"]) == 6
    assert time.process_time() - started < 2


@pytest.mark.parametrize("transpose", [False, True])
def test_a_copy_in_pieces_is_writeable_and_equal(
    transpose: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cfgraph.ir.attrs._CHUNK_ELEMENTS", 7)
    arrays = [np.arange(60.0).reshape(4, 3, 5), np.broadcast_to(np.int8(3), (9, 5))]
    for array in (each.T if transpose else each for each in arrays):
        copy = array_copy(array)
        assert np.array_equal(copy, array)
        assert copy.dtype == array.dtype
        assert copy.flags.writeable
        assert not np.shares_memory(copy, array)
