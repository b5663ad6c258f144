from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Graph
from cfgraph.passes.widen import widen
from cfgraph.runtime.engine.step import State


def run(graph: Graph, fetches: list[str], feeds: dict[str, Any] | None = None) -> list[Any]:
    return cfgraph.Session(graph).run(fetches, feeds or {})


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_constants_and_placeholders_of_every_width_become_doubles(kind: str) -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", kind, [2])
    b.Identity(x * b.const([0.5, 2.0], kind), name="y")
    assert widen(b.graph)
    (y,) = run(b.graph, ["y"], {"x": [1.0, 1e-9]})
    assert y.dtype == np.float64
    assert y.tolist() == [0.5, 2e-9]


def test_complex_numbers_get_twice_the_width() -> None:
    b = cfgraph.Builder()
    z = b.placeholder("z", "complex64", [])
    b.Real(z, name="y")
    widen(b.graph)
    assert b.graph.tensor("z").dtype is dtypes.complex128
    assert b.graph.tensor("y").dtype is dtypes.float64


def test_integers_and_booleans_stay() -> None:
    graph = cfgraph.loads(b"""
n = Placeholder() {dtype=int32, shape=[]}
p = Placeholder() {dtype=bool, shape=[]}
s = Switch(n, p)
""")
    before = cfgraph.dumps(graph)
    assert not widen(graph)
    assert cfgraph.dumps(graph) == before


def test_a_loop_over_floats_computes_in_doubles() -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float32", [])
    _, y = b.while_loop(lambda i, v: i < 30, lambda i, v: (i + 1, v * 1.1), [0, x])
    b.Identity(y, name="y")
    widen(b.graph)
    (y,) = run(b.graph, ["y"], {"x": 1.0})
    assert y == np.float64(1.0) * np.prod(np.full(30, np.float64(np.float32(1.1))))


def test_variables_hold_doubles() -> None:
    graph = cfgraph.loads(b"""
w = VarHandleOp() {dtype=float32, shape=[], shared_name="w"}
v = VariableV2() {dtype=float32, shape=[]}
one = Const() {dtype=float32, value=float32[]:0.1}
init_w = AssignVariableOp(w, one)
init_v = Assign(v, one)
read = ReadVariableOp(w) {dtype=float32}
y = AddV2(read, v)
""")
    widen(graph)
    state = State()
    session = cfgraph.Session(graph, state=state)
    session.run(targets=["init_w", "init_v"])
    (y,) = session.run(["y"])
    assert y.dtype == np.float64
    assert y == 2 * np.float64(np.float32(0.1))


def test_a_default_that_the_file_leaves_out_is_widened_too() -> None:
    graph = cfgraph.loads(b"""
shape = Const() {dtype=int32, value=int32[1]:[2]}
seed = Const() {dtype=int32, value=int32[2]:[1, 2]}
y = StatelessRandomUniform(shape, seed)
""")
    widen(graph)
    (y,) = run(graph, ["y"])
    assert y.dtype == np.float64


def test_an_op_without_a_double_form_stays_between_casts() -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float32", [1, 2, 2, 1])
    size = b.const([4, 4], "int32")
    b.Square(b.ResizeBilinear(x, size, name="resized"), name="y")
    report = widen(b.graph)
    assert report.names == {"resized": ("resized",)}
    assert report.warnings == ("no double precision in resized (ResizeBilinear)",)
    (y,) = run(b.graph, ["y"], {"x": np.ones([1, 2, 2, 1])})
    assert y.dtype == np.float64
    assert y.shape == (1, 4, 4, 1)


def test_an_op_that_reads_bits_reads_the_same_bits() -> None:
    graph = cfgraph.loads(b"""
x = Placeholder() {dtype=float32, shape=[]}
bits = Bitcast(x) {T=float32, type=int32}
back = Bitcast(bits) {T=int32, type=float32}
y = Mul(back, x)
""")
    widen(graph)
    bits, y = run(graph, ["bits", "y"], {"x": 1.5})
    assert (bits, bits.dtype) == (np.float32(1.5).view(np.int32), np.int32)
    assert (y, y.dtype) == (2.25, np.float64)


def test_widening_again_changes_nothing() -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float32", [1, 2, 2, 1])
    b.ResizeBilinear(x, b.const([4, 4], "int32"), name="y")
    widen(b.graph)
    before = cfgraph.dumps(b.graph)
    assert not widen(b.graph)
    assert cfgraph.dumps(b.graph) == before


def test_a_function_is_lowered_and_widened() -> None:
    graph = cfgraph.loads(b"""
x = Placeholder() {dtype=float32, shape=[]}
call = PartitionedCall(x) {Tin=(float32), Tout=(float32), f=@f}
function f(a: float32) -> (r: float32) {
  c = Const() {dtype=float32, value=float32[]:2.0}
  m = Mul(a, c:output:0) {T=float32}
  return r = m:z:0
}
""")
    widen(graph)
    (y,) = run(graph, ["call"], {"x": 0.1})
    assert (y, y.dtype) == (0.2, np.float64)


def test_an_unknown_op_is_left_as_it_is() -> None:
    graph = cfgraph.loads(b"""
x = Placeholder() {dtype=float32, shape=[]}
u = Mystery(x) {T=float32}
""")
    widen(graph)
    assert graph["u"].attrs["T"] is dtypes.float32
