"""Bodies of functions as one callable: order, effects, what stays NumPy, and whose error it is."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import Unsupported
from cfgraph.ir.dtypes import float32
from cfgraph.ir.function_graph import FunctionGraph, instantiate
from cfgraph.ir.shapes import SCALAR_SHAPE
from cfgraph.ops.families.resource_variables import Variable
from cfgraph.ops.opdef.function_bodies import compile_time_nodes, execution_order
from cfgraph.ops.opdef.op import OpError, numpy_kernel
from cfgraph.runtime.straight_line import StraightLine, traced_kernels


def function(text: str) -> FunctionGraph:
    """The only function of a graph in the text format."""
    graph = cfgraph.loads(text.encode(), "graph")
    (found,) = graph.functions.values()
    return instantiate(found, {}, graph.functions)


def line(text: str) -> StraightLine:
    return StraightLine(function(text), numpy_kernel)


TWO = """
function f(a: float32, b: float32) -> (sum: float32, a_out: float32) {
  unread = Neg(a) {T=float32}
  product = Mul(a, b) {T=float32}
  sum = AddV2(product:z:0, a) {T=float32}
  return sum = sum:z:0
  return a_out = a
}
"""


def test_several_outputs_come_as_a_tuple_arguments_among_them() -> None:
    body = line(TWO)
    assert body.run(None, np.float32(2), np.float32(3)) == (8, 2)
    assert [node.name for node in body.order] == ["product", "sum"]


def test_one_output_comes_bare_and_none_as_none() -> None:
    one = (
        "function f(x: float32) -> (y: float32) {\n  y = Neg(x) {T=float32}\n  return y = y:y:0\n}"
    )
    assert line(one).run(None, np.float32(2)) == -2
    assert line("function f(x: float32) -> () {\n}").run(None, np.float32(2)) is None


EFFECTS = """
function f(v: resource, x: float32) -> (before: float32, after: float32) {
  before = ReadVariableOp(v) {dtype=float32}
  assign = AssignAddVariableOp(v, x, ^before) {dtype=float32}
  after = ReadVariableOp(v, ^assign) {dtype=float32}
  twice = AssignAddVariableOp(v, x, ^after) {dtype=float32}
  return before = before:value:0
  return after = after:value:0
  control_return effect = twice
}
"""


def test_effects_follow_control_edges_and_run_though_nobody_reads_them() -> None:
    cell = Variable(float32, SCALAR_SHAPE, "v", resource=True, value=np.float32(1))
    assert line(EFFECTS).run(None, cell, np.float32(10)) == (1, 11)
    assert cell.value == 21


WRONG = """
function f(x: float32, dims: int32) -> (y: float32) {
  same = Identity(x) {T=float32}
  y = Reshape(same:output:0, dims) {T=float32}
  return y = y:output:0
}
"""


def test_an_error_is_that_of_the_inner_node() -> None:
    body = line(WRONG)
    with pytest.raises(OpError) as caught:
        body.run(None, np.zeros(3, np.float32), np.int32([2, 2]))
    failed = body.failed(caught.value)
    assert failed is not None
    assert failed.name == "y"
    found = body.located(caught.value, "launch")
    assert isinstance(found, OpError)
    assert found.node == "launch/y"


@pytest.mark.parametrize(
    ("node", "what"),
    [
        ("y = Switch(x, p) {T=float32}", "control flow (Switch)"),
        ("y = Nowhere(x) {T=float32}", "op 'Nowhere', which has no kernel"),
        ("y = SymbolicGradient(x) {Tin=(float32), Tout=(float32), f=@f}", "has no kernel"),
    ],
)
def test_what_is_no_straight_line_is_refused_by_name(node: str, what: str) -> None:
    output = {"Sw": "output_true", "No": "out", "Sy": "output"}[node[4:6]]
    text = (
        f"function f(x: float32, p: bool) -> (y: float32) {{\n  {node}\n"
        f"  return y = y:{output}:0\n}}"
    )
    with pytest.raises(Unsupported) as caught:
        line(text)
    assert what in caught.value.message
    assert (caught.value.node, caught.value.code) == ("f/y", "CFG709")


STATIC = """
function f(x: float32, like: float32, dims: int32) -> (y: float32) {
  shape = Shape(like) {T=float32, out_type=int32}
  zero = Const() {dtype=int32, value=int32[1]:[0]}
  more = ConcatV2(shape:output:0, dims, axis:output:0) {T=int32, Tidx=int32, N=2}
  axis = Const() {dtype=int32, value=int32[]:0}
  y = Reshape(x, more:output:0) {T=float32, Tshape=int32}
  return y = y:output:0
}
"""


def test_what_must_be_known_is_found_through_shape_arithmetic_but_not_behind_shapes() -> None:
    found = {node.name for node in compile_time_nodes(execution_order(function(STATIC)))}
    assert found == {"shape", "more", "axis", "dims"}


def test_a_traced_body_keeps_shape_arithmetic_in_numpy() -> None:
    jax: Any = pytest.importorskip("jax", reason="jax (extra `xla`) is absent")
    made = function(STATIC)
    static = compile_time_nodes(execution_order(made))
    body = StraightLine(made, traced_kernels(jax.numpy, static))
    dims = np.int32([3])

    def compute(x: Any, like: Any) -> Any:
        return body.run(None, x, like, dims)

    result = jax.jit(compute)(np.arange(6, dtype=np.float32), np.zeros(2, np.float32))
    np.testing.assert_array_equal(np.asarray(result), np.arange(6).reshape(2, 3))


def test_a_value_is_let_go_behind_its_last_reader() -> None:
    source = "\n".join(
        ["function f(x: float32) -> (y: float32) {"]
        + [f"  n{i} = Neg({'x' if not i else f'n{i - 1}:y:0'}) {{T=float32}}" for i in range(50)]
        + ["  return y = n49:y:0", "}"]
    )
    body, x = line(source), np.zeros(100_000, np.float32)
    tracemalloc.start()
    body.run(None, x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * x.nbytes
