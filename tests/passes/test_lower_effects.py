from __future__ import annotations

import pytest

import cfgraph
from tests.passes.functional_graphs import lowered

VARIABLE = """
v = VarHandleOp() {dtype=int32, shape=[], shared_name="v"}
zero = Const() {dtype=int32, value=int32[]:0}
init = AssignVariableOp(v, zero) {dtype=int32}
read = ReadVariableOp(v) {dtype=int32}
"""


def final(text: str, target: str, schedules: int = 5) -> set[int]:
    """The possible final values of the variable."""
    graph, values = lowered(VARIABLE + text), set()
    for seed in range(schedules):
        session = cfgraph.Session(graph, schedule="random", schedule_seed=seed)
        session.run([], targets=["init"])
        session.run([], targets=[target])
        values.add(int(session.run(["read:0"])[0]))
    return values


APPEND = """
function append(v: resource, digit: int32) -> () {
  ten = Const() {dtype=int32, value=int32[]:10}
  read = ReadVariableOp(v) {dtype=int32}
  mul = Mul(read:value:0, ten:output:0) {T=int32}
  add = AddV2(mul:z:0, digit) {T=int32}
  assign = AssignVariableOp(v, add:z:0) {dtype=int32}
  control_return done = assign
}
function append_one(v: resource, x: int32) -> (x: int32) {
  one = Const() {dtype=int32, value=int32[]:1}
  call = StatefulPartitionedCall(v, one:output:0) {Tin=(resource, int32), Tout=(), f=@append}
  return x = x
}
function append_two(v: resource, x: int32) -> (x: int32) {
  two = Const() {dtype=int32, value=int32[]:2}
  call = append(v, two:output:0)
  return x = x
}
"""


def test_effects_of_calls_follow_control_edges_and_run_once() -> None:
    text = """
a = append_one(v, zero)
b = append_two(v, zero, ^a)
c = append_one(v, zero, ^b)
end = NoOp(^c)
"""
    assert final(text + APPEND, "end") == {121}


def test_effects_follow_outputs_that_do_not_depend_on_them() -> None:
    text = """
a = append_one(v, zero)
end = append_two(v, a)
"""
    assert final(text + APPEND, "end") == {12}


def test_an_order_goes_through_what_does_nothing() -> None:
    text = """
a = append_one(v, zero)
if = If(copy, v, copy, ^a) {Tout=(), then_branch=@nothing, else_branch=@nothing}
copy = Identity(zero)
end = append_two(v, zero, ^if)
function nothing(v: resource, x: int32) -> () {
}
"""
    assert final(text + APPEND, "end") == {12}


def test_effects_in_a_loop_run_in_order_in_every_iteration() -> None:
    text = """
end = While(v, zero, zero) {cond=@cond, body=@body, parallel_iterations=10}
function cond(v: resource, i: int32, x: int32) -> (r: bool) {
  three = Const() {dtype=int32, value=int32[]:3}
  call = append_one(v, x)
  less = Less(i, three:output:0) {T=int32}
  return r = less:z:0
}
function body(v: resource, i: int32, x: int32) -> (v: resource, j: int32, y: int32) {
  one = Const() {dtype=int32, value=int32[]:1}
  add = AddV2(i, one:output:0) {T=int32}
  call = append_two(v, x)
  return v = v
  return j = add:z:0
  return y = x
}
"""
    assert final(text + APPEND, "end") == {1212121}


def test_a_body_that_must_not_run_has_no_effects() -> None:
    text = """
no = Const() {dtype=bool, value=bool[]:false}
if = If(no, v) {Tout=(), then_branch=@deep, else_branch=@nothing}
while = While(v, zero, ^if) {cond=@never, body=@body}
end = NoOp(^while)
function deep(v: resource) -> () {
  i = Const() {dtype=int32, value=int32[]:0}
  yes = Const() {dtype=bool, value=bool[]:true}
  case = Case(i:output:0, v, i:output:0) {Tin=(resource, int32), Tout=(int32), \
branches=(@append_one)}
  if = If(yes:output:0, v, i:output:0, ^case) {Tcond=bool, Tin=(resource, int32), Tout=(int32), \
then_branch=@append_two, else_branch=@append_one}
  while = While(v, i:output:0, ^if) {T=(resource, int32), cond=@once, body=@body}
}
function nothing(v: resource) -> () {
}
function never(v: resource, i: int32) -> (r: bool) {
  no = Const() {dtype=bool, value=bool[]:false}
  return r = no:output:0
}
function once(v: resource, i: int32) -> (r: bool) {
  one = Const() {dtype=int32, value=int32[]:1}
  less = Less(i, one:output:0) {T=int32}
  return r = less:z:0
}
function body(v: resource, i: int32) -> (v: resource, j: int32) {
  call = append_one(v, i)
  handle = VarHandleOp() {dtype=int32, shape=[], shared_name="v"}
  two = Const() {dtype=int32, value=int32[]:2}
  more = append(handle:resource:0, two:output:0, ^call)
  one = Const() {dtype=int32, value=int32[]:1}
  add = AddV2(i, one:output:0) {T=int32}
  return v = v
  return j = add:z:0
}
"""
    assert final(text + APPEND, "end") == {0}
    taken = text.replace("bool[]:false}\nif", "bool[]:true}\nif")
    assert final(taken + APPEND, "end") == {1212}


PAIR = """
function pair(v: resource, x: int32) -> (x: int32, y: int32) {
  one = Const() {dtype=int32, value=int32[]:1}
  ten = Const() {dtype=int32, value=int32[]:10}
  add_one = AssignAddVariableOp(v, one:output:0) {dtype=int32}
  add_ten = AssignAddVariableOp(v, ten:output:0) {dtype=int32}
  first = Identity(x, ^add_one) {T=int32}
  second = Identity(x, ^add_ten) {T=int32}
  return x = first:output:0
  return y = second:output:0
}
function nothing(v: resource, x: int32) -> (x: int32, y: int32) {
  return x = x
  return y = x
}
"""
IF = "if = If(copy, v, copy) {Tout=(int32, int32), then_branch=@nothing, else_branch=@pair"


def test_a_branch_that_is_to_be_lowered_runs_what_the_outputs_that_are_read_need() -> None:
    text = f"copy = Identity(zero)\n{IF}, _lower_using_switch_merge=true}}\nend = Identity(if:1)\n"
    assert final(text + PAIR, "end") == {10}


def test_a_branch_that_is_to_be_called_runs_all_that_has_effects() -> None:
    text = f"copy = Identity(zero)\n{IF}}}\nend = Identity(if:1)\n"
    assert final(text + PAIR, "end") == {11}


SPARE_CASE = """
  case = Case(i, v, order) {Tin=(resource,int32), Tout=(int32), branches=(@branch), \
_lower_using_switch_merge=true}
"""
CALL = """
  case = StatefulPartitionedCall(v, order) {Tin=(resource,int32), Tout=(int32), f=@branch}
"""


@pytest.mark.parametrize("call", [SPARE_CASE, CALL])
def test_an_output_that_waits_for_an_effect_of_a_spare_function_changes(call: str) -> None:
    text = f"""
loop = While(v, zero, zero) {{cond=@cond, body=@body, _lower_using_switch_merge=true}}
end = NoOp(^waiting)
waiting = Identity(loop:2)
function cond(v: resource, i: int32, order: int32) -> (r: bool) {{
  two = Const() {{dtype=int32, value=int32[]:2}}
  less = Less(i, two:output:0) {{T=int32}}
  return r = less:z:0
}}
function body(v: resource, i: int32, order: int32) -> (v: resource, i: int32, order: int32) {{
  one = Const() {{dtype=int32, value=int32[]:1}}
  add = AddV2(i, one:output:0) {{T=int32}}
{call}  return v = v
  return i = add:z:0
  return order = case:output:0
}}
function branch(v: resource, order: int32) -> (order: int32) {{
  three = Const() {{dtype=int32, value=int32[]:3}}
  add = AssignAddVariableOp(v, three:output:0) {{dtype=int32}}
  waiting = Identity(order, ^add) {{T=int32}}
  return order = waiting:output:0
}}
"""
    assert final(text, "end") == {6}
