"""Loops and conditionals of a file are compiled as they are, where no lowered form says more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import ExecutionError
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import edit_function

pytest.importorskip("jax", reason="needs the extra `xla`")

GRAPHS = Path(__file__).parents[3] / "fixtures" / "graphs"
HEAD = """
n = Placeholder() {dtype=int32, shape=[]}
zero = Const() {dtype=int32, value=int32[]:0}
x = Const() {dtype=float32, value=float32[2]:[1, 2]}
"""
LOOP = """
loop = While(zero, n, x) {T=(int32, int32, float32), cond=@c, body=@b, parallel_iterations=1}
y = Identity(loop:2)
function c(i: int32, n: int32, x: float32) -> (going: bool) {
  less = Less(i, n) {T=int32}
  return going = less:z:0
}
function b(i: int32, n: int32, x: float32) -> (j: int32, m: int32, z: float32) {
  one = Const() {dtype=int32, value=int32[]:1}
  next = AddV2(i, one:output:0) {T=int32}
  STEP
  return j = next:z:0
  return m = n
  return z = step
}
"""
BRANCHES = """
function then(x: float32) -> (y: float32) {
  size = Const() {dtype=int32, value=int32[1]:[2]}
  drawn = RandomUniform(size:output:0) {T=int32, dtype=float32, seed=3, seed2=5}
  sum = AddV2(x, drawn:output:0) {T=float32}
  return y = sum:z:0
}
function else(x: float32) -> (y: float32) {
  double = AddV2(x, x) {T=float32}
  return y = double:z:0
}
"""
CALLS = "{Tcond=bool, Tin=(float32), Tout=(float32), then_branch=@then, else_branch=@else}"
DRAWING = f"""
  few = Const() {{dtype=int32, value=int32[]:2}}
  is_late = Less(few:output:0, i) {{T=int32}}
  step = If(is_late:z:0, x) {CALLS}
"""
LIST = (
    HEAD
    + """
shape = Const() {dtype=int32, value=int32[0]:[]}
list = TensorListReserve(shape, n) {element_dtype=int32, shape_type=int32}
loop = While(zero, n, list) {T=(int32, int32, variant), cond=@c, body=@b, parallel_iterations=1}
y = TensorListStack(loop:2, shape) {element_dtype=int32, num_elements=-1}
function c(i: int32, n: int32, x: variant) -> (going: bool) {
  less = Less(i, n) {T=int32}
  return going = less:z:0
}
function b(i: int32, n: int32, x: variant) -> (j: int32, m: int32, z: variant) {
  one = Const() {dtype=int32, value=int32[]:1}
  next = AddV2(i, one:output:0) {T=int32}
  set = TensorListSetItem(x, i, next:z:0) {element_dtype=int32}
  return j = next:z:0
  return m = n
  return z = set:output_handle:0
}
"""
)
STEP = "step = AddV2(x, x) {T=float32}"


def loop(step: str, *changes: tuple[str, str]) -> str:
    """A loop whose body has a step that makes `step`, with replaced texts."""
    text = LOOP.replace("STEP", step).replace("z = step", "z = step:output:0")
    if "AddV2(x, x)" in step:
        text = text.replace("z = step:output:0", "z = step:z:0")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return HEAD + text


def results(graph: Graph, engine: str, fetches: list[str], count: int = 4) -> tuple[Any, set[str]]:
    """The results of two runs, and the functions of the graph that runs."""
    with cfgraph.Session(graph, engine=engine, seed=3) as session:
        values = [session.run(fetches, {"n": count}) for _ in range(2)]
        assert session.ran is not None
        return values, {*session.ran.functions}


def require_same(text: str, fetches: list[str]) -> set[str]:
    """The functions of a run by XLA, which computes what tokens do."""
    graph = cfgraph.loads(text.encode(), "graph")
    expected, _ = results(graph, "tokens", fetches)
    have, functions = results(graph, "xla", fetches)
    for values in zip(have, expected, strict=True):
        for value, other in zip(*values, strict=True):
            np.testing.assert_array_equal(value, other)
    return functions


@pytest.mark.smallest
def test_a_loop_of_a_file_is_compiled_as_it_is() -> None:
    graph = cfgraph.load(GRAPHS / "while_functional.pb")
    expected, _ = results(graph, "tokens", ["out"])
    have, functions = results(graph, "xla", ["out"])
    assert have == expected
    assert functions > {"while_body_591", "while_cond_590"}


@pytest.mark.parametrize(
    ("text", "function"),
    [(loop(STEP), "b"), (loop(DRAWING) + BRANCHES, "then"), (LIST, "c")],
    ids=["numbers", "draws in a branch", "a list"],
)
def test_what_a_function_computes_is_what_tokens_compute(text: str, function: str) -> None:
    assert function in require_same(text, ["y"])


PREDICATE = [
    ("going: bool", "going: int32"),
    ("going = less:z:0", "going = left:z:0"),
    ("less = Less(i, n) {T=int32}", "left = Sub(n, i) {T=int32}"),
]
# an effect that no output of the body needs, and that runs in each iteration all the same
VARIABLE = 'w = VarHandleOp() {dtype=float32, shape=[2], shared_name="w"}\n'
EFFECT = [
    ("x) {T=(int32, int32, float32)", "x, w, ^init) {T=(int32, int32, float32, resource)"),
    ("x: float32) -> (going", "x: float32, w: resource) -> (going"),
    ("x: float32) -> (j: int32, m: int32, z: float32)", "x: float32, w: resource) -> "
     "(j: int32, m: int32, z: float32, v: resource)"),
    ("return z", "add = AssignAddVariableOp(w, x) {dtype=float32}\n  return v = w\n  return z"),
]  # fmt: skip
# a second variable whose value nothing reads, and cannot always be computed, or is never fed
UNREAD = [
    ("x) {T=(int32, int32, float32)", "x, FIRST) {T=(int32, int32, float32, float32)"),
    ("x: float32) -> (going", "x: float32, u: float32) -> (going"),
    ("x: float32) -> (j: int32, m: int32, z: float32)", "x: float32, u: float32) -> "
     "(j: int32, m: int32, z: float32, v: float32)"),
    ("return z", "size = Const() {dtype=int32, value=int32[1]:[3]}\n  "
     "reshaped = Reshape(u, size:output:0) {T=float32, Tshape=int32}\n  return v = NEXT\n"
     "  return z"),
]  # fmt: skip
FAILING = [*UNREAD, ("FIRST", "x"), ("NEXT", "reshaped:output:0")]
UNFED = [*UNREAD, ("FIRST", "unfed"), ("NEXT", "u")]
NEVER_FED = "unfed = Placeholder() {dtype=float32, shape=[2]}\n"
# the result that the loop does not change is read, and a step fails
UNCHANGED = [
    ("loop:2", "loop:1"),
    ("int32[]:1}", "int32[]:0}"),
    ("AddV2(i, one:output:0)", "FloorDiv(i, one:output:0)"),
]
ASSIGNED = "init = AssignVariableOp(w, x) {dtype=float32}\n" + (
    "after = ReadVariableOp(w, ^loop) {dtype=float32}\n"
)


@pytest.mark.parametrize(
    ("text", "fetches"),
    [
        (loop(STEP, *PREDICATE), ["y"]),
        (loop(STEP, *EFFECT) + VARIABLE + ASSIGNED, ["y", "after"]),
        (loop(DRAWING).replace("step = If", "step = StatelessIf") + BRANCHES, ["y"]),
        (loop(STEP, *FAILING), ["y"]),
        (loop(STEP, *UNFED) + NEVER_FED, ["y"]),
        (loop(STEP, *UNCHANGED), ["y"]),
    ],
    ids=[
        "a number as condition",
        "an effect that nothing needs",
        "draws in a stateless branch",
        "a failing step that nothing reads",
        "an input that nothing reads",
        "a result that does not change",
    ],
)
def test_a_loop_whose_lowered_form_says_more_is_lowered(text: str, fetches: list[str]) -> None:
    assert "b" not in require_same(text, fetches)


def test_each_run_has_its_own_cluster_and_the_functions_as_they_are_then() -> None:
    graph = cfgraph.loads((loop(STEP) + "w = Neg(y) {T=float32}\n").encode(), "graph")
    with cfgraph.Session(graph, engine="xla") as session:
        for fetch, sign in (("y", 1), ("w", -1), ("y", 1)):
            np.testing.assert_array_equal(session.run(fetch, {"n": 3}), [[8 * sign, 16 * sign]])
        with edit_function(graph, "b") as body:
            body.set_op(body["step"], "Mul", body["step"].attrs)
        np.testing.assert_array_equal(session.run("y", {"n": 3}), [[1, 256]])


def test_the_limit_of_iterations_ends_a_loop_of_a_file() -> None:
    with cfgraph.Session(cfgraph.loads(loop(STEP).encode(), "graph"), engine="xla") as session:
        session.run("y", {"n": 4}, max_iterations=4)
        with pytest.raises(ExecutionError, match="more than 3 iterations") as error:
            session.run("y", {"n": 4}, max_iterations=3)
    assert error.value.node == "cluster_0/loop"


# an inner loop writes rows of a list, and the outer body one more behind it
NESTED = """
function c(i: int32, n: int32, x: float32) -> (going: bool) {
  less = Less(i, n) {T=int32}
  return going = less:z:0
}
function b(i: int32, n: int32, x: float32) -> (j: int32, m: int32, z: float32) {
  none = Const() {dtype=int32, value=int32[0]:[]}
  zero = Const() {dtype=int32, value=int32[]:0}
  one = Const() {dtype=int32, value=int32[]:1}
  two = Const() {dtype=int32, value=int32[]:2}
  three = Const() {dtype=int32, value=int32[]:3}
  next = AddV2(i, one:output:0) {T=int32}
  list = TensorListReserve(none:output:0, three:output:0) {element_dtype=float32, shape_type=int32}
  inner = While(zero:output:0, x, list:handle:0) {T=(int32, float32, variant), cond=@d, body=@e, \
parallel_iterations=1}
  last = TensorListSetItem(inner:output:2, two:output:0, x) {element_dtype=float32}
  rows = TensorListStack(last:output_handle:0, none:output:0) {element_dtype=float32, \
num_elements=3}
  sum = Sum(rows:tensor:0, zero:output:0) {T=float32, Tidx=int32}
  return j = next:z:0
  return m = n
  return z = sum:output:0
}
function d(k: int32, x: float32, rows: variant) -> (going: bool) {
  two = Const() {dtype=int32, value=int32[]:2}
  less = Less(k, two:output:0) {T=int32}
  return going = less:z:0
}
function e(k: int32, x: float32, rows: variant) -> (next: int32, y: float32, set: variant) {
  one = Const() {dtype=int32, value=int32[]:1}
  sine = Sin(x) {T=float32}
  more = AddV2(k, one:output:0) {T=int32}
  row = TensorListSetItem(rows, k, sine:y:0) {element_dtype=float32}
  return next = more:z:0
  return y = sine:y:0
  return set = row:output_handle:0
}
"""


def test_a_list_that_is_used_behind_an_inner_loop_keeps_no_loop_out() -> None:
    text = HEAD.replace("float32[2]:[1, 2]", "float32[]:0.5") + NESTED
    text += (
        "loop = While(zero, n, x) {T=(int32, int32, float32), cond=@c, body=@b}\ny = Neg(loop:2)\n"
    )
    graph = cfgraph.loads(text.encode(), "graph")
    cfgraph.lower(graph)
    expected, _ = results(graph, "tokens", ["y"])
    with cfgraph.Session(graph, engine="xla") as session:
        for _ in range(3):
            value = session.run(["y"], {"n": 4})
        clusters = session.cluster_runner.clusters.values()
        assert [each.refused or each.compiled_times for each in clusters] == [1]
        assert session.ran is not None
        assert not [node.name for node in session.ran if node.op in ("Enter", "Exit")]
    np.testing.assert_allclose(value, expected[0], rtol=1e-6)
