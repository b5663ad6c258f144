"""The gradient of a broadcasting op has no sum if its inputs get their shapes from one tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.ir.graph import Graph
from cfgraph.ir.shapes import UNKNOWN_SHAPE
from cfgraph.runtime.session import Session

X = np.array([[0.2, -0.7, 1.1], [0.4, 0.9, -0.3]])
SUMS = {"BroadcastGradientArgs", "Sum"}


def ran(graph: Graph, fetches: list[Any], feeds: dict[str, Any]) -> list[Any]:
    """The values under both engines, which agree bit by bit."""
    compiled, tokens = (
        Session(graph, engine=engine).run(fetches, feeds) for engine in ("compiled", "tokens")
    )
    for mine, other in zip(compiled, tokens, strict=True):
        np.testing.assert_array_equal(mine, other)
    return compiled


def numeric(function: Callable[[Any], Any], x: Any) -> Any:
    """The derivative of the sum of a function by central differences."""
    result, step = np.zeros_like(x), 1e-6
    for index in np.ndindex(x.shape):
        change = np.zeros_like(x)
        change[index] = step
        result[index] = (function(x + change).sum() - function(x - change).sum()) / (2 * step)
    return result


def gelu(b: cfgraph.Builder, x: Any) -> Any:
    inner = b.Mul(0.8, b.AddV2(x, b.Mul(0.04, b.Mul(x, b.Mul(x, x)))))
    return b.Mul(b.Mul(0.5, x), b.AddV2(1.0, b.Tanh(inner)))


def gelu_of(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(0.8 * (x + 0.04 * x**3)))


@pytest.mark.parametrize("shape", [None, [None, None], [None, 3]], ids=str)
def test_a_chain_of_elementwise_ops_has_no_sums(shape: Any) -> None:
    b = cfgraph.Builder()
    y = gelu(b, b.placeholder("x", "float64", shape))
    (name,) = cfgraph.gradients(b.graph, [y.name], ["x:0"])
    assert not b.graph.ops & SUMS
    (value,) = ran(b.graph, [name], {"x:0": X})
    np.testing.assert_allclose(value, numeric(gelu_of, X), rtol=1e-5, atol=1e-8)


def test_a_loop_saves_no_shapes() -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float64", None)
    result = b.while_loop(
        lambda i, v: b.Less(i, 3),
        lambda i, v: (b.AddV2(i, 1), b.Mul(v, b.Sin(v))),
        (b.const(0), x),
    )
    (name,) = cfgraph.gradients(b.graph, [result[1].name], ["x:0"])
    assert not b.graph.ops & SUMS
    pushes = [node.inputs[1].node.op for node in b.graph if node.op == "StackPushV2"]
    assert "Shape" not in pushes

    def function(x: Any) -> Any:
        for _ in range(3):
            x = x * np.sin(x)
        return x

    (value,) = ran(b.graph, [name], {"x:0": X})
    np.testing.assert_allclose(value, numeric(function, X), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("p", [False, True])
def test_the_inputs_of_a_branch_have_the_shape_of_what_was_switched(p: bool) -> None:
    b = cfgraph.Builder()
    x, chosen = b.placeholder("x", "float64", None), b.placeholder("p", "bool", [])
    y = b.cond(chosen, lambda: b.Mul(x, b.Exp(x)), lambda: b.Sub(b.Sin(x), x))
    (name,) = cfgraph.gradients(b.graph, [y.name], ["x:0"])
    assert not b.graph.ops & SUMS
    (value,) = ran(b.graph, [name], {"x:0": X, "p:0": p})
    expected = (1 + X) * np.exp(X) if p else np.cos(X) - 1
    np.testing.assert_allclose(value, expected)


def test_a_tensor_that_broadcasts_is_summed() -> None:
    b = cfgraph.Builder()
    x, w = b.placeholder("x", "float64", None), b.placeholder("w", "float64", None)
    # the shape of the product is that of neither factor
    product = b.Mul(x, w)
    y = b.AddV2(b.Mul(product, x), b.Tanh(w))
    names = cfgraph.gradients(b.graph, [y.name], ["x:0", "w:0"])
    assert b.graph.ops >= SUMS
    w_value = np.array([2.0, 3.0, 0.5])
    dx, dw = ran(b.graph, names, {"x:0": X, "w:0": w_value})
    np.testing.assert_allclose(dx, 2 * X * w_value)
    np.testing.assert_allclose(dw, (X**2).sum(0) + 2 * (1 - np.tanh(w_value) ** 2))
    dx, dw = ran(b.graph, names, {"x:0": X, "w:0": np.float64(2)})
    np.testing.assert_allclose(dx, 4 * X)
    np.testing.assert_allclose(dw, (X**2).sum() + X.size * (1 - np.tanh(2.0) ** 2))


def test_an_x_that_is_fed_may_have_another_shape() -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float64", None)
    a = b.Tanh(x, name="a")
    y = b.Mul(a, x)
    names = cfgraph.gradients(b.graph, [y.name], ["a:0"])
    (value,) = ran(b.graph, names, {"x:0": X, "a:0": np.float64(3)})
    np.testing.assert_allclose(value, X.sum())


def test_a_placeholder_with_a_default_may_be_fed_another_shape() -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float64", None)
    default = b.PlaceholderWithDefault(x, shape=UNKNOWN_SHAPE, name="scale")
    y = b.Mul(b.StopGradient(default), x)
    names = cfgraph.gradients(b.graph, [y.name], ["x:0"])
    (value,) = ran(b.graph, names, {"x:0": np.float64(3), "scale:0": X})
    np.testing.assert_allclose(value, X.sum())


def test_the_index_of_a_binary_search_has_the_shape_of_the_values() -> None:
    b = cfgraph.Builder()
    rows = b.placeholder("rows", "float64", [None, None])
    index = b.LowerBound(rows, b.placeholder("values", "float64", [None, None]))
    y = b.Mul(b.Cast(index, DstT=rows.dtype), rows)
    names = cfgraph.gradients(b.graph, [y.name], ["rows:0"])
    (value,) = ran(b.graph, names, {"rows:0": X[:1, :1], "values:0": np.sort(X[:1])})
    np.testing.assert_allclose(value, [[1.0]])


def test_two_reads_of_a_variable_may_differ_in_shape() -> None:
    # between the reads, an assignment without a check of the shape runs
    text = """
v = VariableV2() {dtype=float32, shape=?}
one = Const() {dtype=float32, value=float32[1]:[5]}
first = Assign(v, one) {T=float32, validate_shape=false}
two = Const() {dtype=float32, value=float32[2]:[1, 2]}
a = Neg(v) {T=float32}
second = Assign(v, two, ^a) {T=float32, validate_shape=false}
b = Identity(v, ^second) {T=float32}
y = Mul(a, b) {T=float32}
"""
    graph = cfgraph.loads(text.encode(), "graph")
    names = cfgraph.gradients(graph, ["y:0"], ["a:0", "b:0"])
    session = cfgraph.Session(graph)
    session.run(targets=["first"])
    da, db = session.run([str(name) for name in names])
    assert (da.tolist(), db.tolist()) == ([3], [-5, -5])
