"""Who reads a variable through its reference finds what it holds by then."""

from __future__ import annotations

import pytest

import cfgraph
from cfgraph.errors import ExecutionError
from cfgraph.runtime.state import State
from tests.runtime.graphs import session

WRITING_LOOP = """
v = VariableV2() {dtype=int32, shape=[]}
one = Const() {dtype=int32, value=int32[]:1}
init = Assign(v, one) {T=int32}
read = Identity(v)
start = Enter(one) {frame_name="f"}
ref = RefEnter(v) {frame_name="f", is_constant=true, T=int32}
held = Enter(read) {frame_name="f", is_constant=true}
by = Enter(one) {frame_name="f", is_constant=true}
i = Merge(start, next)
less = Less(held, limit)
limit = Const(^i) {dtype=int32, value=int32[]:100}
go = LoopCond(less)
s = Switch(i, go)
add = AddV2(s:1, by)
write = AssignAdd(ref, held, ^add) {T=int32}
next = NextIteration(add, ^write)
out = Exit(s)
"""


@pytest.mark.parametrize("devices", [None, "cpu:0-2"])
@pytest.mark.parametrize("schedule", ["fifo", "random"])
def test_an_invariant_that_is_read_from_a_reference_changes_with_the_variable(
    schedule: str, devices: str | None
) -> None:
    state, graph = State(), cfgraph.loads(WRITING_LOOP.encode(), "graph")
    if devices:
        cfgraph.place(graph, devices=devices, seed=3)
        cfgraph.partition(graph)
    run = cfgraph.Session(graph, state=state, schedule=schedule, schedule_seed=2)
    run.run([], targets=["init"])
    assert run.run(["out:0"], max_iterations=20) == [8]
    assert run.run(["read:0"]) == [128]


def test_a_value_that_is_fetched_by_reference_is_what_the_variable_holds_in_the_end() -> None:
    text = (
        "v = VariableV2() {dtype=int32, shape=[]}\none = Const() {dtype=int32, value=int32[]:1}\n"
    )
    text += "init = Assign(v, one) {T=int32}\nread = Identity(v)\n"
    text += "add = AssignAdd(v, one, ^read) {T=int32}\nneg = Neg(read, ^add)\n"
    made = session(text)
    with pytest.raises(ExecutionError, match="Attempting to use uninitialized value v"):
        made.run(["read:0"])
    made.run([], targets=["init"])
    assert made.run(["read:0", "neg:0"]) == [2, -2]
