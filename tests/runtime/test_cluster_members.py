"""Runs that name nodes inside clusters."""

from __future__ import annotations

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import CfgraphError, ExecutionError, UsageError
from cfgraph.ir.graph import Graph
from tests.passes.functional_graphs import graph_of

# u and w meet in `both`, so that one cluster has all nodes; v counts its additions
TEXT = """
x = Placeholder() {dtype=float32, shape=[]}
z = Placeholder() {dtype=float32, shape=[]}
v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
zero = Const() {dtype=float32, value=float32[]:0}
init = AssignVariableOp(v, zero) {dtype=float32}
u = Square(x) {T=float32}
u2 = Neg(u) {T=float32}
grow = AssignAddVariableOp(v, u) {dtype=float32}
w = Mul(u, z) {T=float32}
w2 = Neg(w) {T=float32}
both = AddV2(u2, w2) {T=float32}
"""

LOOP = """
n = Placeholder() {dtype=int32, shape=[]}
zero = Const() {dtype=int32, value=int32[]:0}
enter = Enter(zero) {frame_name="f"}
limit = Enter(n) {frame_name="f", is_constant=true}
merge = Merge(enter, next)
less = Less(merge, limit)
go = LoopCond(less)
switch = Switch(merge, go)
two = Const(^here) {dtype=int32, value=int32[]:2}
here = Identity(switch:1)
more = AddV2(here, two)
twice = Mul(more, two)
less_again = Sub(twice, more)
next = NextIteration(less_again)
exit = Exit(switch)
out = Neg(exit)
"""


def clustered(text: str) -> Graph:
    """The graph of a text, with all nodes in clusters."""
    graph = graph_of(text)
    report = cfgraph.cluster(graph)
    assert report.clusters
    return graph


def ops(session: cfgraph.Session) -> list[str]:
    """The ops of the last run."""
    assert session.ran is not None
    return sorted(node.op for node in session.ran)


def test_what_is_in_a_cluster_can_be_fetched() -> None:
    graph = clustered(TEXT)
    assert {"u", "u2", "w", "w2"}.isdisjoint(graph.nodes)
    session = cfgraph.Session(graph)
    session.run(targets=["init"])
    assert session.run(["u:0", "w", "both"], {"x": 3, "z": 2}) == [9, 18, -27]
    assert session.run("u2", {"x": 3}) == [-9]
    assert "XlaLaunch" in ops(session)


def test_a_run_that_names_no_node_in_a_cluster_runs_its_launch_as_a_whole() -> None:
    graph = clustered(TEXT + "read = ReadVariableOp(v) {dtype=float32}\n")
    launch = next(node for node in graph if node.op == "XlaLaunch")
    session = cfgraph.Session(graph)
    session.run(targets=["init"])
    assert session.run(launch.name, {"x": 3, "z": 2})
    with pytest.raises(ExecutionError, match="placeholder tensor 'z'"):
        session.run(launch.name, {"x": 3})


def test_a_node_in_a_cluster_can_be_fed_and_run_as_a_target() -> None:
    session = cfgraph.Session(clustered(TEXT))
    assert session.run("both", {"u:0": 5, "z": 2}) == [-15]
    assert session.run(["^w2", "u2"], {"x": 3, "z": 2}) == [-9]
    assert session.run("u2", {"x": 3}) == [-9]


def test_a_cluster_in_a_loop_is_opened_in_its_loop() -> None:
    graph = clustered(LOOP)
    assert {"more", "twice"}.isdisjoint(graph.nodes)
    for devices in (None, "cpu:0,cpu:1"):
        session = cfgraph.Session(graph, devices=devices)
        assert session.run("out", {"n": 5}, targets=["twice"]) == [-6]
        assert "XlaLaunch" in ops(session)


def test_a_name_that_no_cluster_has_is_refused_as_ever() -> None:
    with pytest.raises(UsageError, match="no node 'nobody'"):
        cfgraph.Session(clustered(TEXT)).run("nobody", {"x": 3})


def test_what_runs_is_a_launch_of_what_is_needed() -> None:
    session = cfgraph.Session(clustered(TEXT))
    session.run("u2", {"x": 3})
    assert session.ran is not None
    launch = next(node for node in session.ran if node.op == "XlaLaunch")
    assert [item.node.name for item in launch.inputs] == ["x"]
    assert launch.name == "cluster_0"


def test_random_numbers_do_not_depend_on_other_fetches() -> None:
    text = """
x = Placeholder() {dtype=float32, shape=[]}
shape = Const() {dtype=int32, value=int32[1]:[3]}
drawn = RandomUniform(shape) {dtype=float32, T=int32, seed=3, seed2=4}
a = Mul(drawn, drawn)
b = AddV2(a, x)
c = Neg(a)
"""
    graph = clustered(text)
    assert "a" not in graph
    alone = cfgraph.Session(graph, seed=7).run("a")[0]
    whole = cfgraph.Session(graph, seed=7).run("c", {"x": 0.0})[0]
    np.testing.assert_array_equal(alone, -whole)


def test_a_cluster_whose_function_was_replaced_is_seen_as_it_is_now() -> None:
    graph, other = clustered(TEXT), clustered(TEXT.replace("u2 = Neg", "u2 = Abs"))
    session = cfgraph.Session(graph)
    assert session.run("u2", {"x": 3}) == [-9]
    graph.functions.update(other.functions)
    assert session.run("u2", {"x": 3}) == [9]


PARTLY_NEEDED = """
x = Placeholder() {dtype=float32, shape=[]}
z = Placeholder() {dtype=float32, shape=[]}
v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
r = ReadVariableOp(v) {dtype=float32}
a = Neg(x)
b = Square(a)
c = Mul(a, z)
d = Mul(a, r)
"""


@pytest.mark.parametrize("jit", [None, "numpy"])
def test_a_cluster_does_not_wait_for_what_the_fetches_do_not_need(jit: str | None) -> None:
    graph = cfgraph.loads(PARTLY_NEEDED.encode())
    report = cfgraph.cluster(graph, fetches=["b", "c", "d"])
    assert [set(cluster.nodes) for cluster in report.clusters] == [set("abcdr")]
    session = cfgraph.Session(graph, jit=jit)
    assert session.run(["b"], {"x": 2.0}) == [4.0]
    assert session.run(["b", "c"], {"x": 2.0, "z": 3.0}) == [4.0, -6.0]
    with pytest.raises(CfgraphError, match="'z'"):
        session.run(["c"], {"x": 2.0})
    with pytest.raises(CfgraphError, match="v"):
        session.run(["d"], {"x": 2.0})


def test_a_constant_is_live_where_its_cluster_is_dead() -> None:
    text = """
p = Placeholder() {dtype=bool, shape=[]}
x = Placeholder() {dtype=float32, shape=[]}
one = Const() {dtype=float32, value=float32[]:1.0}
s = Switch(x, p) {T=float32}
a = AddV2(s:1, one) {T=float32}
b = Mul(a, one) {T=float32}
m = Merge(b, s:0) {N=2, T=float32}
"""
    graph = clustered(text)
    assert "one" not in graph
    session = cfgraph.Session(graph)
    for p, b in ((True, 5), (False, 4)):
        feeds = {"p": np.bool_(p), "x": np.float32(4)}
        assert session.run(["m", "one"], feeds) == [b, 1]
