"""Temporary variables in loops: a name belongs to one iteration of one run."""

from __future__ import annotations

from typing import Any

import pytest

import cfgraph
from cfgraph.errors import ExecutionError

# sums 2.0 over three iterations, each with a temporary variable of its own
LOOP = """
zero = Const() {dtype=int32, value=int32[]:0}
start = Const() {dtype=float32, value=float32[]:0}
i = Enter(zero) {frame_name="f"}
s = Enter(start) {frame_name="f"}
limit = Const() {dtype=int32, value=int32[]:3}
most = Enter(limit) {frame_name="f", is_constant=true}
head = Merge(i, i_next)
sum = Merge(s, s_next)
less = Less(head, most)
go = LoopCond(less)
i_switch = Switch(head, go)
s_switch = Switch(sum, go)
body = Identity(i_switch:1)
one = Const(^body) {dtype=int32, value=int32[]:1}
two = Const(^body) {dtype=float32, value=float32[]:2}
t = TemporaryVariable(^body) {dtype=float32, shape=[], var_name="t"}
set = Assign(t, two)
END
i_more = Add(body, one)
i_next = NextIteration(i_more)
s_more = Add(s_switch:1, value)
s_next = NextIteration(s_more)
exit = Exit(s_switch)
"""
DESTROYED = 'value = DestroyTemporaryVariable(set) {var_name="t"}'
LEFT = "value = Identity(set)"
OUTSIDE = """
outer = TemporaryVariable() {dtype=float32, shape=[], var_name="t"}
filled = Assign(outer, start)
s = RefEnter(filled) {frame_name="g"}
end = DestroyTemporaryVariable(s) {var_name="t"}
exit = Exit(end)
"""
ENGINES: list[dict[str, Any]] = [
    {},
    {"engine": "compiled"},
    {"schedule": "random"},
]


def loop(end: str) -> cfgraph.Graph:
    return cfgraph.loads(LOOP.replace("END", end).encode(), "graph")


@pytest.mark.parametrize("options", ENGINES)
@pytest.mark.parametrize("end", [DESTROYED, LEFT])
def test_each_iteration_and_each_run_has_temporaries_of_its_own(
    end: str, options: dict[str, Any]
) -> None:
    with cfgraph.Session(loop(end), **options) as session:
        assert [session.run(["exit"]) for _ in range(2)] == [[6.0], [6.0]]


@pytest.mark.parametrize("options", ENGINES)
def test_a_second_temporary_of_an_iteration_needs_another_name(options: dict[str, Any]) -> None:
    again = 'u = TemporaryVariable(^set) {dtype=float32, shape=[], var_name="t"}\n'
    graph = loop(again + "value = Add(set, u)")
    with (
        cfgraph.Session(graph, **options) as session,
        pytest.raises(ExecutionError, match="Temporary variable 't' already exists"),
    ):
        session.run("exit")


@pytest.mark.parametrize("options", ENGINES)
def test_a_temporary_is_destroyed_once(options: dict[str, Any]) -> None:
    """TensorFlow reads memory that it has freed, which may end the process."""
    again = 'again = DestroyTemporaryVariable(set, ^first) {var_name="t"}\n'
    graph = loop(DESTROYED.replace("value", "first") + f"\n{again}value = Add(first, again)")
    with (
        cfgraph.Session(graph, **options) as session,
        pytest.raises(ExecutionError, match="'t' does not exist in this iteration"),
    ):
        session.run("exit")


def test_a_temporary_is_destroyed_where_it_was_created() -> None:
    text = "start = Const() {dtype=float32, value=float32[]:0}" + OUTSIDE
    with (
        cfgraph.Session(cfgraph.loads(text.encode(), "graph")) as session,
        pytest.raises(ExecutionError, match="'t' does not exist in this iteration"),
    ):
        session.run("exit")
