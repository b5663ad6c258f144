"""A cluster may contain assertions: it fails as tokens do, and only where they fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.backends.xla import tier as xla_tier
from cfgraph.errors import CfgraphError
from tests.backends.xla.tier_fixtures import at_once
from tests.command_fixtures import Command

__all__ = ["at_once"]

pytest.importorskip("jax", reason="needs the extra `xla`")

HEAD = """
n = Placeholder() {dtype=int32, shape=[]}
zero = Const() {dtype=int32, value=int32[]:0}
ten = Const() {dtype=int32, value=int32[]:10}
text = Const() {dtype=string, value=string[]:"n is"}
is_positive = Less(zero, n)
"""
STRAIGHT = """
double = AddV2(n, n)
is_few = Less(double, ten)
check = Assert(is_few, text, double) {T=(string, int32)}
square = Square(double, ^check)
y = AddV2(square, square)
"""
# without a message, and after the result
LAST = """
double = AddV2(n, n)
is_few = Less(double, ten)
square = Square(double)
y = AddV2(square, square)
check = Assert(is_few, double, is_few) {T=(int32, bool)}
done = NoOp(^check)
"""
BRANCH = """
double = AddV2(n, n)
side = If(is_positive, double) {Tcond=bool, Tin=(int32), Tout=(int32), \
then_branch=@then, else_branch=@else}
square = Square(side)
y = AddV2(square, square)
function then(x: int32) -> (y: int32) {
  ten = Const() {dtype=int32, value=int32[]:10}
  text = Const() {dtype=string, value=string[]:"x is"}
  less = Less(x, ten:output:0) {T=int32}
  check = Assert(less:z:0, text:output:0, x) {T=(string, int32)}
  double = AddV2(x, x, ^check) {T=int32}
  return y = double:z:0
  control_return check = check
}
function else(x: int32) -> (y: int32) {
  square = Square(x) {T=int32}
  return y = square:y:0
}
"""
# the assertion is dead unless n is positive
DEAD = """
double = AddV2(n, n)
side = Switch(double, is_positive)
words = Const(^taken) {dtype=string, value=string[]:"n is"}
taken = Identity(side:1)
is_few = Less(taken, ten)
check = Assert(is_few, words, taken) {T=(string, int32)}
square = Square(taken, ^check)
other = Neg(side)
y = Merge(square, other)
"""
LOOP = """
loop = While(zero, n, zero) {T=(int32, int32, int32), cond=@c, body=@b, parallel_iterations=1}
y = Identity(loop:2)
function c(i: int32, n: int32, x: int32) -> (going: bool) {
  less = Less(i, n) {T=int32}
  return going = less:z:0
}
function b(i: int32, n: int32, x: int32) -> (j: int32, m: int32, z: int32) {
  one = Const() {dtype=int32, value=int32[]:1}
  ten = Const() {dtype=int32, value=int32[]:10}
  text = Const() {dtype=string, value=string[]:"x is"}
  next = AddV2(i, one:output:0) {T=int32}
  less = Less(x, ten:output:0) {T=int32}
  check = Assert(less:z:0, text:output:0, x, i) {T=(string, int32, int32)}
  sum = AddV2(x, next:z:0, ^check) {T=int32}
  return j = next:z:0
  return m = n
  return z = sum:z:0
  control_return check = check
}
"""
LOWERED = """
i = Enter(zero) {frame_name="loop"}
x = Enter(zero) {frame_name="loop"}
limit = Enter(n) {frame_name="loop", is_constant=true}
bound = Enter(ten) {frame_name="loop", is_constant=true}
merge = Merge(i, next)
merge_x = Merge(x, next_x)
less = Less(merge, limit)
cond = LoopCond(less)
switch = Switch(merge, cond)
switch_x = Switch(merge_x, cond)
body = Identity(switch:1)
body_x = Identity(switch_x:1)
words = Const(^body) {dtype=string, value=string[]:"x is"}
is_less = Less(body_x, bound)
check = Assert(is_less, words, body_x, body) {T=(string, int32, int32)}
one = Const(^body) {dtype=int32, value=int32[]:1}
add = AddV2(body, one)
sum = AddV2(body_x, add, ^check)
next = NextIteration(add)
next_x = NextIteration(sum)
exit = Exit(switch)
y = Exit(switch_x)
"""
NUMBERS = """
real = Cast(n) {SrcT=int32, DstT=float32}
root = Sqrt(real)
check = CheckNumerics(root) {message="of a root"}
y = AddV2(check, check)
"""
# a loop that would not end; the kernels of NumPy look at the deadline before each call
GUARDED = """
same = StatefulPartitionedCall(n) {Tin=(int32), Tout=(int32), f=@s}
GUARD
loop = While(start) {T=(int32), cond=@c, body=@b, parallel_iterations=1}
y = Identity(loop)
function s(x: int32) -> (y: int32) {
  return y = x
}
function c(i: int32) -> (going: bool) {
  ten = Const() {dtype=int32, value=int32[]:10}
  less = Less(i, ten:output:0) {T=int32}
  return going = less:z:0
}
function b(i: int32) -> (j: int32) {
  next = AddV2(i, i) {T=int32}
  return j = next:z:0
}
"""
ASSERTION = """
is_few = Less(zero, same)
check = Assert(is_few, text, same) {T=(string, int32)}
start = Identity(same, ^check)
"""
ROW = """
table = Const() {dtype=int32, value=int32[3]:[1,2,-1]}
start = Gather(table, same)
"""
# the loop runs in the condition of another, whose body changes its first value
IN_CONDITION = (
    GUARDED.replace("(start) {T=(int32)", "(zero, start) {T=(int32, int32)")
    .replace("cond=@c, body=@b", "cond=@outer, body=@next")
    .replace("GUARD", ASSERTION)
    + """
function outer(i: int32, n: int32) -> (going: bool) {
  inner = While(n) {T=(int32), cond=@c, body=@b, parallel_iterations=1}
  less = Less(i, inner:output:0) {T=int32}
  return going = less:z:0
}
function next(i: int32, n: int32) -> (j: int32, m: int32) {
  zero = Const() {dtype=int32, value=int32[]:0}
  one = Const() {dtype=int32, value=int32[]:1}
  more = AddV2(i, one:output:0) {T=int32}
  left = Sub(n, STEP:output:0) {T=int32}
  is_positive = Less(zero:output:0, left:z:0) {T=int32}
  check = Assert(is_positive:z:0, left:z:0) {T=(int32)}
  checked = Identity(left:z:0, ^check) {T=int32}
  return j = more:z:0
  return m = checked:output:0
  control_return check = check
}
"""
)
CASES = {
    "straight": (STRAIGHT, [2, 7]),
    "after the result": (LAST, [2, 7]),
    "branch": (BRANCH, [2, -7, 7]),
    "dead": (DEAD, [2, -7, 7]),
    "loop": (LOOP, [0, 3, 9]),
    "lowered loop": (LOWERED, [0, 3, 9]),
    "numbers": (NUMBERS, [4, -4]),
}


def session(text: str, engine: str) -> cfgraph.Session:
    """A session of a graph with the constants of all."""
    return cfgraph.Session(cfgraph.loads((HEAD + text).encode(), "graph"), engine=engine)


def outcome(run: cfgraph.Session, n: int, **options: Any) -> list[Any]:
    """The value of y, or the error."""
    targets = ["done"] if "done" in run.graph else []
    try:
        return run.run(["y:0"], {"n": n}, targets, **options)
    except CfgraphError as error:
        return [type(error), error.code, error.message, error.node, str(error)]


def compiled_ops(run: cfgraph.Session) -> set[str]:
    """The ops in functions of a run whose clusters were all executables of XLA."""
    clusters = run.cluster_runner.clusters.values()
    assert run.ran is not None
    assert clusters
    assert all(each.compiled_times and not each.fused for each in clusters)
    return {node.op for body in run.ran.functions.values() for node in body.definition.nodes}


@pytest.mark.parametrize("name", CASES)
def test_an_assertion_is_compiled_with_what_surrounds_it(name: str) -> None:
    text, (first, *_) = CASES[name]
    run = session(text, "xla")
    assert outcome(run, first) == outcome(session(text, "tokens"), first)
    assert compiled_ops(run) & {"Assert", "CheckNumerics"}


@pytest.mark.parametrize("name", CASES)
def test_an_assertion_in_a_cluster_fails_as_tokens_do(
    name: str, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xla_tier, "MOST_REMAINING", 1.0)
    text, numbers = CASES[name]
    run, tokens = session(text, "auto"), session(text, "tokens")
    for _ in range(9):
        outcome(run, numbers[0])
    assert "XLA compiled" in run.tier_choice
    for n in numbers:
        assert outcome(run, n) == outcome(tokens, n)


@pytest.mark.parametrize("order", ["first", "last"])
def test_an_assertion_leaves_the_variables_as_tokens_do(order: str) -> None:
    text = """
w = VarHandleOp() {dtype=int32, shape=[], shared_name="w"}
init = AssignVariableOp(w, ten) {dtype=int32}
is_few = Less(n, ten)
check = Assert(is_few, text, n, FIRST) {T=(string, int32)}
step = AssignAddVariableOp(w, n, LAST) {dtype=int32}
y = ReadVariableOp(w, ^step, ^check) {dtype=int32}
"""
    text = text.replace(", FIRST", ", ^step" * (order == "last"))
    text = text.replace(", LAST", ", ^check" * (order == "first"))
    values = []
    for engine in ("tokens", "xla"):
        run = session(text, engine)
        run.run(targets=["init"])
        outcomes = [outcome(run, n) for n in (1, 20, 2)]
        values.append([outcomes[0], outcomes[1][2], outcomes[2]])
    assert values[0] == values[1]


@pytest.mark.parametrize(
    ("text", "passing", "n"),
    [
        (GUARDED.replace("GUARD", ASSERTION), 1, -1),
        (GUARDED.replace("GUARD", ROW), 1, 7),
        (IN_CONDITION.replace("STEP", "zero"), 1, -1),
        (IN_CONDITION.replace("STEP", "one"), 20, 3),
    ],
)
def test_a_loop_after_a_check_that_fails_does_not_run(text: str, passing: int, n: int) -> None:
    run, tokens = session(text, "xla"), session(text, "tokens")
    assert outcome(run, passing, timeout=50) == outcome(tokens, passing)
    assert outcome(run, n, timeout=50)[:3] == outcome(tokens, n)[:3]


def test_a_text_that_another_node_reads_stays_outside() -> None:
    text = STRAIGHT.replace("y = AddV2(square, square)", "long = StringLength(text)\nPLUS")
    run = session(text.replace("PLUS", "y = AddV2(square, long)"), "xla")
    assert outcome(run, 2) == [20]
    assert "Assert" in compiled_ops(run)
    assert outcome(run, 7)[2] == "assertion failed: [n is] [14]"


@pytest.mark.parametrize("name", ["branch", "loop", "lowered loop"])
def test_no_assertion_is_named_as_an_obstacle(name: str, command: Command, tmp_path: Path) -> None:
    file = tmp_path / "checked.graph"
    file.write_text(HEAD + CASES[name][0])
    line = ["run", str(file), "--feed", "n=2", "--fetch", "y", "--engine", "xla"]
    assert "outside" not in command(*line, "--explain-engine").err


def test_the_data_of_the_first_iteration_that_fails_is_shown() -> None:
    assert outcome(session(LOOP, "xla"), 9)[2] == "assertion failed: [x is] [10] [4]"
