"""Reads of variables move before the loops that they are in, where no write can come between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph import limits
from cfgraph.errors import ExecutionError
from cfgraph.ir.graph import Graph
from cfgraph.passes.cluster.hoist_reads import hoist_reads
from cfgraph.runtime.preparation import prepared_runs
from cfgraph.runtime.session import Session

# the sum of i * w for i below n; `inner`, `before`, and `after` have room for a write
LOOP = """
n = Placeholder() {dtype=int32, shape=[]}
w = VarHandleOp() {dtype=float32, shape=[], shared_name="w"}
start = Const() {dtype=float32, value=float32[]:2}
init = AssignVariableOp(w, start) {dtype=float32}
zero = Const(BEFORE) {dtype=int32, value=int32[]:0}
none = Const() {dtype=float32, value=float32[]:0}
i = Enter(zero) {frame_name="loop"}
sum = Enter(none) {frame_name="loop"}
limit = Enter(n) {frame_name="loop", is_constant=true}
handle = Enter(w) {frame_name="loop", is_constant=true}
merge = Merge(i, next)
total = Merge(sum, next_sum)
less = Less(merge, limit)
cond = LoopCond(less)
switch = Switch(merge, cond)
switch_sum = Switch(total, cond)
body = Identity(switch:1)
one = Const(^body) {dtype=int32, value=int32[]:1}
read = ReadVariableOp(handle, ^body) {dtype=float32}
float = Cast(body) {SrcT=int32, DstT=float32}
product = Mul(float, read)
more = AddV2(switch_sum:1, product)
INSIDE
add = AddV2(body, one)
next = NextIteration(add)
next_sum = NextIteration(more)
exit = Exit(switch_sum)
y = Identity(exit)
step = AssignAddVariableOp(w, AFTER) {dtype=float32}
"""


def loop(before: str = "", inside: str = "", after: str = "y") -> Graph:
    text = LOOP.replace("BEFORE", before).replace("INSIDE", inside).replace("AFTER", after)
    return cfgraph.loads(text.encode(), "graph")


def without(graph: Graph, *names: str) -> Graph:
    graph.remove(*(graph[name] for name in names))
    return graph


@pytest.mark.parametrize("writes_after", [False, True])
def test_a_read_moves_out_of_a_loop_that_ends_before_all_writes(writes_after: bool) -> None:
    graph = without(loop(), "init", *([] if writes_after else ["step"]))
    state = Session(loop())
    state.run(targets=["init"])
    targets = ["step"] if writes_after else []
    (expected,) = Session(loop(), state=state.state.copy()).run(["y"], {"n": 5}, targets)
    assert len(hoist_reads(graph)) == 1
    assert graph["read"].op == "Identity"
    (y,) = Session(graph, state=state.state.copy()).run(["y"], {"n": 5}, targets)
    assert y == expected == 20


@pytest.mark.parametrize("op", ["ResourceGather", "ResourceGatherNd"])
def test_a_gather_from_a_variable_becomes_one_from_its_value(op: str) -> None:
    text = LOOP.replace("BEFORE", "").replace("INSIDE", "").replace("AFTER", "start")
    text = text.replace("shape=[], shared_name", "shape=[4], shared_name")
    text = text.replace("float32[]:2", "float32[4]:[1,2,3,5]")
    index = "index = Pack(body) {axis=0}\nread = "
    text = text.replace("read = ", index if op.endswith("Nd") else "read = ")
    indices = "index" if op.endswith("Nd") else "body"
    text = text.replace("ReadVariableOp(handle,", f"{op}(handle, {indices},")
    graph = cfgraph.loads(text.encode(), "graph")
    state = Session(graph)
    state.run(targets=["init"])
    without(graph, "init", "step")
    assert len(hoist_reads(graph)) == 1
    assert graph["read"].op == op.removeprefix("Resource")
    (y,) = Session(graph, state=state.state).run(["y"], {"n": 4})
    assert y == 0 * 1 + 1 * 2 + 2 * 3 + 3 * 5


@pytest.mark.parametrize(
    "graph",
    [
        loop(before="^init"),
        without(
            loop(inside="grow = AssignAddVariableOp(handle, product, ^read) {dtype=float32}"),
            "init",
            "step",
        ),
        without(loop(after="start"), "init"),
    ],
    ids=["before", "inside", "unordered"],
)
def test_a_read_stays_where_a_write_may_come_between(graph: Graph) -> None:
    assert not hoist_reads(graph)
    assert graph["read"].op == "ReadVariableOp"


def test_a_fed_read_stays() -> None:
    graph = without(loop(), "init", "step")
    assert not hoist_reads(graph, {graph["read"]})


def test_xla_compiles_a_loop_that_reads_a_variable() -> None:
    pytest.importorskip("jax", reason="jax (extra `xla`) is absent")
    run = Session(loop(), engine="xla")
    run.run(targets=["init"])
    for expected in (20, 220):
        (y,) = run.run(["y"], {"n": 5}, ["step"])
        np.testing.assert_allclose(y, expected)
    (cluster,) = run.cluster_runner.clusters.values()
    assert cluster.compiled_times == 1


@pytest.mark.parametrize("engine", ["tokens", "compiled", "xla"])
def test_a_loop_without_iterations_needs_no_value(engine: str) -> None:
    if engine == "xla":
        pytest.importorskip("jax", reason="jax (extra `xla`) is absent")
    run = Session(loop(), engine=engine)
    (y,) = run.run(["y"], {"n": 0})
    assert y == 0
    with pytest.raises(ExecutionError, match="uninitialized"):
        run.run(["y"], {"n": 1})
    run.run(targets=["init"])
    (y,) = run.run(["y"], {"n": 5})
    assert y == 20


def test_sessions_that_share_plans_have_their_own_variables() -> None:
    pytest.importorskip("jax", reason="jax (extra `xla`) is absent")
    graph = loop()
    first, second = Session(graph, engine="xla"), Session(graph, engine="xla")
    first.run(["y"], {"n": 0})
    second.reuse_plans(first)
    first.run(targets=["init"])
    with pytest.raises(ExecutionError, match="uninitialized"):
        second.run(["y"], {"n": 5})


def test_a_run_that_is_prepared_twice_has_one_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax", reason="jax (extra `xla`) is absent")
    granted = list[float]()

    def limited(*, timeout: float) -> Any:
        granted.append(timeout)
        return limits.limited(timeout=timeout)

    monkeypatch.setattr(prepared_runs, "limited", limited)
    assert Session(loop(), engine="xla").run("y", {"n": 0}, timeout=60) == [0]
    first, second = granted
    assert (first, second < first) == (60, True)
