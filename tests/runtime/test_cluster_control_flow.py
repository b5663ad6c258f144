"""Loops, conditionals and lists in a cluster: the same values from NumPy and from XLA."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.build.builder import Builder
from cfgraph.errors import ExecutionError, Unsupported

ENGINES = [
    "compiled",
    pytest.param("xla", marks=pytest.mark.skipif(find_spec("jax") is None, reason="jax is absent")),
]

LAUNCH = """
n = Placeholder() {dtype=int32, shape=[]}
x = Placeholder() {dtype=float32, shape=?}
out = XlaLaunch(n, x) {Tconstants=(), Targs=(int32,float32), Nresources=0, \
Tresults=(float32), function=@f}
"""

LOOP = """
function f(n: int32, x: float32) -> (y: float32) {
  zero = Const() {dtype=int32, value=int32[]:0}
  loop = StatelessWhile(zero:output:0, n, x) {T=(int32,int32,float32), cond=@c, body=@b}
  return y = loop:output:2
}
function c(i: int32, n: int32, x: float32) -> (going: bool) {
  less = Less(i, n) {T=int32}
  return going = less:z:0
}
function b(i: int32, n: int32, x: float32) -> (j: int32, n_out: int32, y: float32) {
  one = Const() {dtype=int32, value=int32[]:1}
  next = AddV2(i, one:output:0) {T=int32}
  sum = AddV2(x, x) {T=float32}
  return j = next:z:0
  return n_out = n
  return y = sum:z:0
}
"""

BRANCH = """
function f(n: int32, x: float32) -> (y: float32) {
  zero = Const() {dtype=int32, value=int32[]:0}
  less = Less(n, zero:output:0) {T=int32}
  if = StatelessIf(less:z:0, x) {Tcond=bool, Tin=(float32), Tout=(float32), \
then_branch=@t, else_branch=@e}
  return y = if:output:0
}
function t(x: float32) -> (y: float32) {
  neg = Neg(x) {T=float32}
  return y = neg:y:0
}
function e(x: float32) -> (y: float32) {
  return y = x
}
"""

CASE = """
function f(n: int32, x: float32) -> (y: float32) {
  case = StatelessCase(n, x) {Tin=(float32), Tout=(float32), branches=(@t,@e,@s)}
  return y = case:output:0
}
function t(x: float32) -> (y: float32) {
  neg = Neg(x) {T=float32}
  return y = neg:y:0
}
function e(x: float32) -> (y: float32) {
  return y = x
}
function s(x: float32) -> (y: float32) {
  square = PartitionedCall(x) {Tin=(float32), Tout=(float32), f=@square}
  return y = square:output:0
}
function square(x: float32) -> (y: float32) {
  square = Square(x) {T=float32}
  return y = square:y:0
}
"""

# the elements are pushed in one loop and popped in another, so that they come out in reverse
LISTS = """
function f(n: int32, x: float32) -> (y: float32) {
  zero = Const() {dtype=int32, value=int32[]:0}
  any = Const() {dtype=int32, value=int32[]:-1}
  list = EmptyTensorList(any:output:0, n) {element_dtype=float32, shape_type=int32}
  pushed = StatelessWhile(zero:output:0, n, x, list:handle:0) \
{T=(int32,int32,float32,variant), cond=@c, body=@push}
  start = ZerosLike(x) {T=float32}
  popped = StatelessWhile(zero:output:0, n, start:y:0, pushed:output:3) \
{T=(int32,int32,float32,variant), cond=@c, body=@pop}
  return y = popped:output:2
}
function c(i: int32, n: int32, x: float32, list: variant) -> (going: bool) {
  less = Less(i, n) {T=int32}
  return going = less:z:0
}
function push(i: int32, n: int32, x: float32, list: variant) \
-> (j: int32, n_out: int32, y: float32, list_out: variant) {
  one = Const() {dtype=int32, value=int32[]:1}
  next = AddV2(i, one:output:0) {T=int32}
  longer = TensorListPushBack(list, x) {element_dtype=float32}
  sum = AddV2(x, x) {T=float32}
  return j = next:z:0
  return n_out = n
  return y = sum:z:0
  return list_out = longer:output_handle:0
}
function pop(i: int32, n: int32, x: float32, list: variant) \
-> (j: int32, n_out: int32, y: float32, list_out: variant) {
  one = Const() {dtype=int32, value=int32[]:1}
  any = Const() {dtype=int32, value=int32[]:-1}
  next = AddV2(i, one:output:0) {T=int32}
  shorter = TensorListPopBack(list, any:output:0) {element_dtype=float32}
  ten = Const() {dtype=float32, value=float32[]:10}
  more = Mul(x, ten:output:0) {T=float32}
  sum = AddV2(more:z:0, shorter:tensor:0) {T=float32}
  return j = next:z:0
  return n_out = n
  return y = sum:z:0
  return list_out = shorter:output_handle:0
}
"""

READ = """
function f(n: int32, x: float32) -> (y: float32) {
  none = Const() {dtype=int32, value=int32[0]:()}
  list = TensorListFromTensor(x, none:output:0) {element_dtype=float32, shape_type=int32}
  zero = Const() {dtype=float32, value=float32[]:0.5}
  longer = TensorListSetItem(list:output_handle:0, n, zero:output:0) {element_dtype=float32}
  item = TensorListGetItem(list:output_handle:0, n, none:output:0) {element_dtype=float32}
  all = TensorListStack(longer:output_handle:0, none:output:0) {element_dtype=float32}
  y = AddV2(all:tensor:0, item:item:0) {T=float32}
  return y = y:z:0
}
"""


def run(body: str, n: int, x: Any, engine: str) -> Any:
    session = cfgraph.Session(cfgraph.loads((LAUNCH + body).encode(), "graph"), engine=engine)
    (value,) = session.run("out", {"n": np.int32(n), "x": np.asarray(x, np.float32)})
    (cluster,) = session.cluster_runner.clusters.values()
    assert engine == "compiled" or cluster.compiled_times, [str(c) for c in cluster.compilations]
    return value


@pytest.mark.parametrize("engine", ENGINES)
def test_a_loop_goes_round_as_often_as_it_should(engine: str) -> None:
    assert [run(LOOP, n, 3, engine) for n in (0, 1, 5)] == [3, 6, 96]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_conditional_takes_one_branch(engine: str) -> None:
    assert [run(BRANCH, n, 3, engine) for n in (-1, 1)] == [-3, 3]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_index_out_of_range_takes_the_last_branch(engine: str) -> None:
    assert [run(CASE, n, 3, engine) for n in (0, 1, 2, 3, -1)] == [-3, 3, 9, 9, 9]


@pytest.mark.parametrize("engine", ENGINES)
def test_what_one_loop_pushes_another_pops_last_first(engine: str) -> None:
    assert run(LISTS, 3, 1, engine) == 421
    assert run(LISTS, 0, 1, engine) == 0
    np.testing.assert_array_equal(run(LISTS, 2, [1, 2], engine), [21, 42])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_list_is_a_value(engine: str) -> None:
    np.testing.assert_array_equal(run(READ, 1, [1, 2, 3], engine), [3, 2.5, 5])


def test_effects_in_what_a_loop_calls_are_refused() -> None:
    body = LOOP.replace(
        "sum = AddV2(x, x) {T=float32}",
        "sum = StackPushV2(s:handle:0, x) {T=float32}\n  s = StackV2(n) {elem_type=float32}",
    ).replace("sum:z:0", "sum:output:0")
    with pytest.raises(Unsupported, match="StackV2 has effects"):
        run(body, 1, 1, "compiled")


# a list of `n` elements to which a loop of three iterations writes
WRITES = """
function f(n: int32, x: float32) -> (y: float32) {
  zero = Const() {dtype=int32, value=int32[]:0}
  shape = Const() {dtype=int32, value=int32[]:-1}
  list = TensorListReserve(shape:output:0, n) {element_dtype=float32, shape_type=int32}
  loop = StatelessWhile(zero:output:0, x, list:handle:0) \
{T=(int32,float32,variant), cond=@c, body=@b}
  all = TensorListStack(loop:output:2, shape:output:0) {element_dtype=float32}
  return y = all:tensor:0
}
function c(i: int32, x: float32, list: variant) -> (going: bool) {
  limit = Const() {dtype=int32, value=int32[]:3}
  less = Less(i, limit:output:0) {T=int32}
  return going = less:z:0
}
function b(i: int32, x: float32, list: variant) -> (j: int32, y: float32, list_out: variant) {
  one = Const() {dtype=int32, value=int32[]:1}
  next = AddV2(i, one:output:0) {T=int32}
  sum = AddV2(x, x) {T=float32}
  put = TensorListSetItem(list, i, x) {element_dtype=float32, resize_if_index_out_of_bounds=true}
  return j = next:z:0
  return y = sum:z:0
  return list_out = put:output_handle:0
}
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_a_list_that_outgrows_its_capacity_is_complete(engine: str) -> None:
    for n in (1, 2, 3):
        np.testing.assert_array_equal(run(WRITES, n, 1, engine), [1, 2, 4])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_write_beyond_the_end_of_a_list_is_an_error(engine: str) -> None:
    fixed = WRITES.replace("=true", "=false")
    np.testing.assert_array_equal(run(fixed, 3, 1, engine), [1, 2, 4])
    with pytest.raises(ExecutionError, match="modify element 2 in a list with 2 elements"):
        run(fixed, 2, 1, engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_elements_of_unknown_shape_are_not_read_before_they_are_written(engine: str) -> None:
    late = WRITES.replace("int32[]:0}", "int32[]:3}")
    with pytest.raises(ExecutionError, match="uninitialized"):
        run(late, 2, 1, engine)


def test_a_list_is_no_result_of_compiled_code() -> None:
    pytest.importorskip("jax")
    body = """
function f(n: int32, x: float32) -> (y: variant) {
  shape = Const() {dtype=int32, value=int32[]:-1}
  list = TensorListFromTensor(x, shape:output:0) {element_dtype=float32, shape_type=int32}
  return y = list:output_handle:0
}
"""
    launch = LAUNCH.replace("Tresults=(float32)", "Tresults=(variant)") + body + "\n"
    text = launch.replace("out = X", "count = TensorListLength(out)\nout = X")
    session = cfgraph.Session(cfgraph.loads(text.encode(), "graph"), engine="xla")
    (count,) = session.run("count", {"n": np.int32(0), "x": np.ones(3, np.float32)})
    (cluster,) = session.cluster_runner.clusters.values()
    assert count == 3
    assert [c.refused for c in cluster.compilations] == ["Unsupported: it returns a list"]


def test_a_list_that_exceeds_its_capacity_is_reported() -> None:
    pytest.importorskip("jax")
    session = cfgraph.Session(cfgraph.loads((LAUNCH + WRITES).encode(), "graph"), engine="xla")
    feeds = {"n": np.int32(2), "x": np.float32(1)}
    for _ in range(2):
        session.run("out", feeds)
    (cluster,) = session.cluster_runner.clusters.values()
    assert [bool(c.refused) for c in cluster.compilations] == [False, True]
    assert (cluster.calls, cluster.fused) == (2, 2)


def squares(capacity: int) -> cfgraph.Graph:
    """A loop of n iterations that writes to a list, which grows if it must."""
    b = Builder()
    n = b.placeholder("n", "int32", [])
    rows = b.TensorListReserve(b.const([], "int32"), b.const(capacity), element_dtype="float32")

    def body(i: Any, rows: Any) -> Any:
        value = b.Cast(b.Mul(i, i), DstT="float32")
        put = b.TensorListSetItem(rows, i, value, resize_if_index_out_of_bounds=True)
        return b.Add(i, b.const(1)), put

    _, after = b.while_loop(lambda i, _: b.Less(i, n), body, (b.const(0), rows))
    b.TensorListStack(after, b.const([], "int32"), element_dtype="float32", name="y")
    return b.graph


@pytest.mark.parametrize("capacity", [4, 0])
def test_a_list_that_a_loop_may_extend_is_compiled(capacity: int) -> None:
    pytest.importorskip("jax", reason="jax (extra `xla`) is absent")
    session = cfgraph.Session(squares(capacity), engine="xla")
    for count in (2, 4, 6):
        (values,) = session.run("y", {"n": np.int32(count)})
        expected = np.zeros(max(count, capacity))
        expected[:count] = np.arange(count) ** 2
        np.testing.assert_array_equal(values, expected)
    clusters = session.cluster_runner.clusters.values()
    ops = [node.op for cluster in clusters for node in cluster.line.order]
    assert "StatelessWhile" in ops


def pushes() -> cfgraph.Graph:
    """A loop of n iterations that pushes to an unlimited list."""
    b = Builder()
    n = b.placeholder("n", "int32", [])
    empty = b.EmptyTensorList(b.const([], "int32"), b.const(-1), element_dtype="float32")

    def body(i: Any, rows: Any) -> Any:
        return b.Add(i, b.const(1)), b.TensorListPushBack(rows, b.Cast(i, DstT="float32"))

    _, after = b.while_loop(lambda i, _: b.Less(i, n), body, (b.const(0), empty))
    b.TensorListStack(after, b.const([], "int32"), element_dtype="float32", name="y")
    return b.graph


@pytest.mark.parametrize("graph", [squares(0), pushes()], ids=["writes", "pushes"])
def test_a_list_that_grows_is_compiled_for_its_first_length(graph: cfgraph.Graph) -> None:
    pytest.importorskip("jax", reason="jax (extra `xla`) is absent")
    session = cfgraph.Session(graph, engine="xla")
    results = [session.run("y", {"n": np.int32(5)})[0] for _ in range(3)]
    (cluster,) = (
        cluster
        for cluster in session.cluster_runner.clusters.values()
        if any(node.op == "StatelessWhile" for node in cluster.line.order)
    )
    assert (cluster.compiled_times, cluster.calls, cluster.fused) == (1, 3, 1)
    for values in results:
        np.testing.assert_array_equal(values, results[0])
    # another length is beyond the capacity
    assert len(session.run("y", {"n": np.int32(7)})[0]) == 7
    assert cluster.compilations[-1].refused


def columns() -> cfgraph.Graph:
    """A loop that adds column i of a matrix in iteration i, for n iterations."""
    b = Builder()
    n, x = b.placeholder("n", "int32", []), b.placeholder("x", "float32", [2, 3])
    masks = {"begin_mask": 1, "end_mask": 1, "shrink_axis_mask": 2}

    def body(i: Any, total: Any) -> Any:
        begin, end = b.Pack([b.const(0), i]), b.Pack([b.const(0), b.Add(i, b.const(1))])
        column = b.StridedSlice(x, begin, end, b.const([1, 1]), **masks)
        return b.Add(i, b.const(1)), b.Add(total, column)

    start = (b.const(-1), b.const(np.zeros(2, np.float32)))
    _, total = b.while_loop(lambda i, _: b.Less(i, n), body, start)
    b.Identity(total, name="y")
    return b.graph


def test_a_slice_may_select_an_element_that_varies_in_a_compiled_loop() -> None:
    pytest.importorskip("jax", reason="jax (extra `xla`) is absent")
    session = cfgraph.Session(columns(), engine="xla")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (y,) = session.run("y", {"n": np.int32(3), "x": x})
    np.testing.assert_array_equal(y, x[:, -1] + x.sum(axis=1))
    (cluster,) = session.cluster_runner.clusters.values()
    assert cluster.compiled_times == 1
    with pytest.raises(ExecutionError, match="out of bounds"):
        session.run("y", {"n": np.int32(4), "x": x})
