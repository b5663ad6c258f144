"""A reader of a variable through its reference gets its value at that time."""

from __future__ import annotations

import pytest

import cfgraph
from cfgraph.errors import ExecutionError
from cfgraph.runtime.engine.step import State
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


VARIABLES = """
v = VariableV2() {dtype=bool, shape=[]}
no = Const() {dtype=bool, value=bool[]:false}
at = VariableV2() {dtype=int32, shape=[]}
last = Const() {dtype=int32, value=int32[]:2}
init = Assign(v, no) {T=bool}
init_at = Assign(at, last) {T=int32}
read = Identity(v)
read_at = Identity(at)
"""


@pytest.mark.parametrize(
    ("switch", "wanted"),
    [
        ("s = Switch(last, read)", -2),
        ("s = Switch(last, v)", -2),
        ("s = Switch(read_at, read)", -2),
        ("s = RefSwitch(at, v)", -2),
        ("s = _SwitchN(last, read_at) {num_outs=3}", 2),
        ("s = _SwitchN(read_at, read_at) {num_outs=3}", 2),
    ],
)
def test_what_a_switch_is_driven_by_is_read(switch: str, wanted: int) -> None:
    last = "Abs(s:2)" if "_SwitchN" in switch else "Abs(s:1)"
    made = session(f"{VARIABLES}{switch}\nn = Neg(s:0)\na = {last}\nm = Merge(n, a)\n")
    made.run([], targets=["init", "init_at"])
    assert made.run(["m:0"]) == [wanted]
