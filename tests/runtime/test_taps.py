"""`session.run(..., taps=taps)`: arrays of nodes per iteration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cfgraph

# x * 2 while x < n; `odd` is live in iterations 1 and 3 alone
LOOP = """
n = Placeholder() {dtype=int32, shape=[]}
zero = Const() {dtype=int32, value=int32[]:0}
enter = Enter(zero) {frame_name="loop"}
limit = Enter(n) {frame_name="loop", is_constant=true}
merge = Merge(enter, next)
less = Less(merge, limit)
cond = LoopCond(less)
switch = Switch(merge, cond)
one = Const(^body) {dtype=int32, value=int32[]:1}
two = Const(^body) {dtype=int32, value=int32[]:2}
body = Identity(switch:1)
next = NextIteration(add)
add = AddV2(body, one)
rest = FloorMod(body, two)
is_odd = Equal(rest, one)
branch = Switch(body, is_odd)
odd = Neg(branch:1)
even = Neg(branch)
either = Merge(odd, even)
exit = Exit(switch)
"""


@pytest.fixture
def session(tmp_path: Path) -> cfgraph.Session:
    path = tmp_path / "loop.graph"
    path.write_text(LOOP)
    return cfgraph.Session(cfgraph.load(path))


def test_a_tapped_node_has_an_array_per_iteration(session: cfgraph.Session) -> None:
    taps = cfgraph.Taps("add", "exit")
    assert session.run("exit", {"n": 4}, taps=taps) == [4]
    assert list(taps) == ["add:0", "exit:0"]
    assert taps["add"].values == [1, 2, 3, 4]
    assert taps["add:0"].iterations == [(0,), (1,), (2,), (3,)]
    np.testing.assert_array_equal(taps["add"].stacked(), np.array([1, 2, 3, 4], np.int32))
    assert taps["add"].live.all()


def test_a_dead_iteration_is_none_and_not_live(session: cfgraph.Session) -> None:
    taps = cfgraph.Taps("odd")
    session.run("exit", {"n": 4}, ["either"], taps=taps)
    odd = taps["odd"]
    assert odd.values == [None, -1, None, -3]
    assert odd.live.tolist() == [False, True, False, True]
    assert odd.stacked().tolist() == [0, -1, 0, -3]


def test_the_iteration_that_ends_a_loop_counts_where_a_value_is_live(
    session: cfgraph.Session,
) -> None:
    taps = cfgraph.Taps("less", "add")
    session.run("exit", {"n": 2}, taps=taps)
    assert taps["less"].values == [True, True, False]
    assert taps["add"].values == [1, 2]


def test_taps_of_a_second_run_replace_those_of_the_first(session: cfgraph.Session) -> None:
    taps = cfgraph.Taps("add")
    for count in (3, 1):
        session.run("exit", {"n": count}, taps=taps)
        assert len(taps["add"].values) == count


def test_taps_and_a_trace_observe_the_same_run(session: cfgraph.Session) -> None:
    taps = cfgraph.Taps("op:AddV2", "merge[1]")
    session.run("exit", {"n": 2}, trace=True, taps=taps)
    assert session.timeline() is not None
    assert taps["add"].values == [1, 2]
    assert taps["merge:0"].values == [1]


def test_nested_loops_have_an_axis_each(graphs_of_fixtures: Path) -> None:
    session = cfgraph.Session(cfgraph.load(graphs_of_fixtures / "nested.pb"))
    taps = cfgraph.Taps("while/while/add")
    session.run("sum", taps=taps)
    assert taps["while/while/add"].stacked().shape == (100, 100)
    assert taps["while/while/add"].iterations[101] == (1, 1)


def test_an_unknown_node_is_a_usage_error(session: cfgraph.Session) -> None:
    with pytest.raises(cfgraph.UsageError, match="no node 'ad' in the graph"):
        session.run("exit", {"n": 2}, taps=cfgraph.Taps("ad"))
    with pytest.raises(KeyError):
        cfgraph.Taps("add")["add"]


def test_values_of_several_shapes_are_not_stacked(tmp_path: Path) -> None:
    grown = LOOP.replace("odd = Neg(branch:1)", "odd = Range(zero_, branch:1, one)").replace(
        "exit = Exit", "zero_ = Const(^body) {dtype=int32, value=int32[]:0}\nexit = Exit"
    )
    grown = grown.replace("either = Merge(odd, even)", "")
    path = tmp_path / "grown.graph"
    path.write_text(grown)
    taps = cfgraph.Taps("odd")
    cfgraph.Session(cfgraph.load(path)).run("exit", {"n": 4}, ["odd"], taps=taps)
    assert [value is not None and value.shape for value in taps["odd"].values] == [
        False,
        (1,),
        False,
        (3,),
    ]
    with pytest.raises(cfgraph.UsageError, match=r"2 shapes: \(1,\), \(3,\)"):
        taps["odd"].stacked()


@pytest.fixture
def graphs_of_fixtures(fixtures: Path) -> Path:
    return fixtures / "graphs"
