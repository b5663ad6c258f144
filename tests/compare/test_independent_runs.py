"""Runs that are compared instead of one in which accesses to variables have no defined order."""

from __future__ import annotations

import time

import pytest

import cfgraph
from cfgraph.comparison.equivalence import ComparisonRunOptions, compare_runs
from cfgraph.comparison.independent_runs import IndependentRuns, independent_runs
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph
from tests.compare.racing_graphs import NEGATED, READS_FIRST, SQUARED, WRITES_FIRST

REFERENCE = """
x = Placeholder() {dtype=float32, shape=[]}
two = Const() {dtype=float32, value=float32[]:2}
w = VariableV2() {dtype=float32, shape=[]}
w/Assign = Assign(w, two)
w/read = Identity(w)
y = Mul(x, w/read)
z = Neg(w/read)
"""
# the branches exclude each other
CHOICE = """
x = Placeholder() {dtype=float32, shape=[]}
p = Placeholder() {dtype=bool, shape=[]}
v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
out = If(p, v, x) {Tout=(float32), then_branch=@read, else_branch=@assign}

function read(v: resource, x: float32) -> (y: float32) {
  y = ReadVariableOp(v) {dtype=float32}
  return y
}

function assign(v: resource, x: float32) -> (y: float32) {
  done = AssignVariableOp(v, x) {dtype=float32}
  y = Identity(x, ^done)
  return y
}
"""
# the call reads the variable
CALL = """
x = Placeholder() {dtype=float32, shape=[]}
v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
out = StatefulPartitionedCall(v) {Tout=(float32), f=@read}
assign = AssignVariableOp(v, x) {dtype=float32}

function read(v: resource) -> (y: float32) {
  y = ReadVariableOp(v) {dtype=float32}
  return y
}
"""


def divided(text: str, *fetches: str, targets: tuple[str, ...] = ()) -> IndependentRuns:
    return independent_runs(cfgraph.loads(text.encode(), "graph"), fetches, targets, ())


def loaded(*texts: str) -> list[Graph]:
    return [cfgraph.loads(text.encode(), "graph") for text in texts]


def test_an_initializer_runs_apart_from_what_reads_its_variable() -> None:
    names = ("w/Assign:0", "y:0", "z:0")
    runs = ((("w/Assign:0",), ()), (("y:0", "z:0"), ()))
    assert divided(REFERENCE, *names) == IndependentRuns(runs)
    targets = ("w/Assign",)
    runs = ((("y:0",), ()), ((), ("w/Assign",)))
    assert divided(REFERENCE, "y:0", targets=targets) == IndependentRuns(runs)


def test_accesses_in_a_function_count() -> None:
    runs = ((("out:0",), ()), ((), ("assign",)))
    assert divided(CALL, "out:0", targets=("assign",)) == IndependentRuns(runs)


def test_a_fetch_that_depends_on_a_race_is_left_out() -> None:
    found = divided(READS_FIRST, "early:0", "value:0", "sum:0")
    assert found.runs == ((("early:0",), ()), (("value:0",), ()))
    assert {name: race.related for name, race in found.races.items()} == {
        "sum:0": ("early", "assign")
    }


def test_branches_that_exclude_each_other_do_not_race() -> None:
    assert divided(CHOICE, "out:0") == IndependentRuns(((("out:0",), ()),))


def test_equal_graphs_with_a_race_do_not_differ() -> None:
    a, b = loaded(READS_FIRST, WRITES_FIRST)
    delta = compare_runs(a, b)
    assert (bool(delta), delta.fetches, [*delta.races]) == (False, ("value:0",), ["sum:0"])
    with pytest.raises(UsageError, match="two runs of the first graph may differ") as caught:
        compare_runs(a, b, ComparisonRunOptions(fetches=("sum",)))
    assert caught.value.code == "CFG225"


def test_a_difference_is_found_in_spite_of_a_race() -> None:
    a, b = loaded(NEGATED, SQUARED)
    delta = compare_runs(a, b, ComparisonRunOptions(fetches=("early", "value")))
    assert [gap.what for gap in delta.gaps] == ["value:0"]
    assert not delta.races
    a, b = loaded(READS_FIRST, WRITES_FIRST.replace("Neg", "Square"))
    delta = compare_runs(a, b)
    assert ([gap.what for gap in delta.gaps], [*delta.races]) == (["value:0"], ["sum:0"])


# the read of one iteration and the assignment of the next one have no defined order
LOOP = """
n = Placeholder() {dtype=int32, shape=[]}
v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
zero = Const() {dtype=int32, value=int32[]:0}
start = Const() {dtype=float32, value=float32[]:0}
limit = Enter(n) {frame_name="loop", is_constant=true}
handle = Enter(v) {frame_name="loop", is_constant=true}
i = Enter(zero) {frame_name="loop"}
s = Enter(start) {frame_name="loop"}
i/merge = Merge(i, i/next)
s/merge = Merge(s, s/next)
less = Less(i/merge, limit)
cond = LoopCond(less)
i/switch = Switch(i/merge, cond)
s/switch = Switch(s/merge, cond)
body = Identity(i/switch:1)
one = Const(^body) {dtype=int32, value=int32[]:1}
unit = Const(^body) {dtype=float32, value=float32[]:1}
assign = AssignAddVariableOp(handle, unit) {dtype=float32}
read = ReadVariableOp(handle, ^assign) {dtype=float32}
i/add = AddV2(body, one)
s/add = AddV2(s/switch:1, read)
i/next = NextIteration(i/add)
s/next = NextIteration(s/add)
i/exit = Exit(i/switch)
s/exit = Exit(s/switch)
"""


def test_iterations_that_overlap_race() -> None:
    found = divided(LOOP, "i/exit", "s/exit")
    assert found.runs == ((("i/exit",), ()),)
    assert [*found.races] == ["s/exit"]
    ordered = LOOP.replace("NextIteration(i/add)", "NextIteration(i/add, ^read)")
    assert divided(ordered, "i/exit", "s/exit").runs == ((("i/exit", "s/exit"), ()),)


def test_many_variables_are_divided_in_time() -> None:
    count = 400
    lines = ["x = Placeholder() {dtype=float32, shape=[]}"]
    for n in range(count):
        lines.append(f'v{n} = VarHandleOp() {{dtype=float32, shape=[], shared_name="v{n}"}}')
        lines.append(f"assign{n} = AssignVariableOp(v{n}, x) {{dtype=float32}}")
        lines.append(f"read{n} = ReadVariableOp(v{n}) {{dtype=float32}}")
    names = tuple(f"assign{n}" for n in range(count))
    fetches = tuple(f"read{n}:0" for n in range(count))
    start = time.process_time()
    found = divided("\n".join(lines) + "\n", *fetches, targets=names)
    assert time.process_time() - start < 5
    assert found.runs == ((fetches, ()), ((), names))
