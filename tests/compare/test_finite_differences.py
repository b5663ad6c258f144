from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.comparison.finite_differences import (
    Accuracy,
    SlopeComparison,
    compare_with_slopes,
    worst_comparisons,
)
from cfgraph.comparison.gradient_check import GradientCheckOptions, check_gradients
from cfgraph.ir.graph import Graph
from cfgraph.passes.derivatives import DerivativeRequest, derivatives

X = np.array([[0.3, -1.2], [2.0, 0.1]])


def cubes(x: Any) -> float:
    return float(np.sum(x**3))


def test_a_correct_gradient_agrees_to_ten_digits() -> None:
    result = compare_with_slopes(cubes, X, 3 * X**2)
    assert result.agrees
    assert (result.directions, result.rough) == (4, 0)
    assert result.max_abs < 1e-9


def test_the_worst_element_of_a_wrong_gradient_is_named() -> None:
    wrong = 3 * X**2
    wrong[1, 0] += 0.01
    result = compare_with_slopes(cubes, X, wrong)
    assert not result.agrees
    assert result.index == (1, 0)
    assert result.max_abs == pytest.approx(0.01)
    assert (result.actual, result.expected) == pytest.approx((12.01, 12.0))


def test_a_relative_error_of_one_in_ten_thousand_is_found() -> None:
    assert not compare_with_slopes(cubes, X, 3 * X**2 * 1.0001).agrees
    assert compare_with_slopes(cubes, X, 3 * X**2 * 1.0001, accuracy=Accuracy(rtol=1e-3)).agrees


def test_a_large_tensor_is_compared_at_some_elements_and_one_random_direction() -> None:
    x = np.linspace(-1, 1, 1000).reshape(10, 100)
    result = compare_with_slopes(cubes, x, 3 * x**2, most=5)
    assert (result.agrees, result.directions) == (True, 6)
    wrong = 3 * x**2
    wrong[3:8] += 1
    assert not compare_with_slopes(cubes, x, wrong, most=1).agrees


def test_a_complex_gradient_has_a_slope_along_each_axis() -> None:
    z = np.array([1 + 2j, 0.5 - 1j])

    def power(z: Any) -> float:
        return float(np.sum(np.abs(z) ** 2))

    result = compare_with_slopes(power, z, 2 * z)
    assert (result.agrees, result.directions) == (True, 4)
    assert not compare_with_slopes(power, z, 2 * np.conj(z)).agrees


def test_a_bend_is_not_compared() -> None:
    def relu(x: Any) -> float:
        return float(np.sum(np.maximum(x, 0)))

    x = np.array([0.0, 1.0])
    result = compare_with_slopes(relu, x, x)
    assert (result.agrees, result.directions, result.rough) == (True, 1, 1)
    assert compare_with_slopes(relu, x[:1], x[:1]).skipped == "not smooth here"


def test_a_jump_nearby_is_not_compared() -> None:
    result = compare_with_slopes(lambda x: float(x > 1.5e-5), np.float64(0), np.float64(0))
    assert (result.rough, result.skipped) == (1, "not smooth here")


def test_a_gradient_of_the_wrong_shape_does_not_agree() -> None:
    result = compare_with_slopes(cubes, X, 3 * X[0] ** 2)
    assert not result.agrees
    assert result.skipped == "the gradient has shape [2], expected [2, 2]"


def test_a_gradient_that_is_not_finite_does_not_agree() -> None:
    assert not compare_with_slopes(cubes, X, np.full_like(X, np.nan)).agrees


def test_an_integer_x_is_rejected() -> None:
    with pytest.raises(cfgraph.UsageError, match="expected a float or complex dtype"):
        compare_with_slopes(cubes, np.arange(3), np.arange(3))


def test_the_worst_of_several_cases_is_reported() -> None:
    good, bad = (
        SlopeComparison("x", True, 3, 0, 1e-9, 1e-9),
        SlopeComparison("x", False, 2, 1, 0.5, 0.1),
    )
    none = SlopeComparison("x", skipped="its gradient is dead")
    result = worst_comparisons([{"x": good}, {"x": bad}, {"x": none}])["x"]
    assert (result.agrees, result.directions, result.rough, result.max_abs) == (False, 5, 1, 0.5)
    assert worst_comparisons([{"x": none}, {"x": good}])["x"] == good


# -- the gradients of a graph ----------------------------------------------------------------------


def checked(graph: Graph, y: str, xs: list[str], **options: Any) -> dict[str, SlopeComparison]:
    requested = {
        key: options.pop(key) for key in ("order", "stop_gradients", "grad_ys") if key in options
    }
    result = derivatives(graph, DerivativeRequest([y], xs, **requested))
    return check_gradients(graph, result, GradientCheckOptions(**options))[-1]


def test_the_gradients_of_a_loop_with_a_conditional_agree() -> None:
    b = cfgraph.Builder()
    x, w = b.placeholder("x", "float64", [3]), b.placeholder("w", "float64", [])

    def step(i: Any, v: Any) -> Any:
        return i + 1, b.cond(i % 2 == 0, lambda: v * w, lambda: b.Sin(v))

    _, y = b.while_loop(lambda i, v: i < 4, step, [0, x])
    result = checked(b.graph, y.name, ["x", "w"], cases=2)
    assert {x: item.agrees for x, item in result.items()} == {"x": True, "w": True}
    assert (result["x"].directions, result["w"].directions) == (6, 2)


def test_a_wrong_gradient_in_a_graph_is_found() -> None:
    graph = cfgraph.loads(b"""
x = Placeholder() {dtype=float64, shape=[2]}
y = Exp(x)
""")
    result = derivatives(graph, DerivativeRequest(["y"], ["x"]))
    grad = graph.tensor(result[0].names[0] or "").node
    graph.set_input(grad, 0, graph.tensor("x"))
    (row,) = check_gradients(graph, result)
    assert not row["x"].agrees


def test_variables_are_reset_for_every_run() -> None:
    graph = cfgraph.loads(b"""
w = VarHandleOp() {dtype=float64, shape=[2], shared_name="w"}
v = VariableV2() {dtype=float64, shape=[]}
read = ReadVariableOp(w) {dtype=float64}
one = Const() {dtype=float64, value=float64[2]:[1, 1]}
y0 = Mul(read, read)
y = Mul(y0, v)
spoil = AssignAddVariableOp(w, one, ^y0)
z = Identity(y, ^spoil)
""")
    result = checked(graph, "z", ["w", "v"])
    assert all(item.agrees for item in result.values())
    assert result["w"].directions == 2


def test_initializers_set_variables() -> None:
    graph = cfgraph.loads(b"""
w = VarHandleOp() {dtype=float64, shape=[], shared_name="w"}
three = Const() {dtype=float64, value=float64[]:3}
init = AssignVariableOp(w, three)
read = ReadVariableOp(w) {dtype=float64}
y = Mul(read, read)
""")
    result = checked(graph, "y", ["w"], inits=["init"])
    assert result["w"].expected == pytest.approx(6)


def test_tensors_at_which_gradients_stop_are_held_constant() -> None:
    graph = cfgraph.loads(b"""
x = Placeholder() {dtype=float64, shape=[]}
s = StopGradient(x)
a = Exp(x)
b = Mul(a, s)
y = Mul(b, a)
""")
    assert checked(graph, "y", ["x"])["x"].agrees
    graph = cfgraph.loads(cfgraph.dumps(graph))
    assert checked(graph, "y", ["x"], stop_gradients=["a"])["x"].skipped


def test_a_gradient_that_stops_within_a_loop_is_skipped_with_the_reason() -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float64", [])
    _, y = b.while_loop(
        lambda i, v: i < 3, lambda i, v: (i + 1, v * b.StopGradient(v, name="held")), [0, x]
    )
    result = checked(b.graph, y.name, ["x"])
    assert "gradients stop in a loop" in result["x"].skipped
    assert "held" in result["x"].skipped


def test_random_ops_draw_the_same_numbers_in_every_run() -> None:
    graph = cfgraph.loads(b"""
x = Placeholder() {dtype=float64, shape=[4]}
shape = Const() {dtype=int32, value=int32[1]:[4]}
r = RandomUniform(shape) {dtype=float64}
y = Mul(x, r)
""")
    result = checked(graph, "y", ["x"])
    assert (result["x"].agrees, result["x"].directions) == (True, 4)


def test_inputs_are_positive_if_others_lead_to_nan() -> None:
    graph = cfgraph.loads(b"""
x = Placeholder() {dtype=float64, shape=[50]}
y = Log(x)
""")
    assert checked(graph, "y", ["x"])["x"].agrees


def test_a_y_that_is_never_finite_is_an_error() -> None:
    graph = cfgraph.loads(b"""
x = Placeholder() {dtype=float64, shape=[]}
zero = Const() {dtype=float64, value=float64[]:0}
n = Mul(x, zero)
y = Log(n)
""")
    with pytest.raises(cfgraph.ExecutionError, match="y:0 is not finite"):
        checked(graph, "y", ["x"])


def test_unknown_sizes_are_chosen() -> None:
    graph = cfgraph.loads(b"""
x = Placeholder() {dtype=float64, shape=[?,3]}
y = Square(x)
""")
    assert checked(graph, "y", ["x"], size=4)["x"].directions == 12


def test_upstream_gradients_are_weights() -> None:
    graph = cfgraph.loads(b"""
x = Placeholder() {dtype=float64, shape=[]}
dy = Placeholder() {dtype=float64, shape=[2]}
two = Const() {dtype=float64, value=float64[2]:[1, 2]}
y = Mul(x, two)
""")
    for weight in ("dy", np.array([3.0, 5.0])):
        result = checked(cfgraph.loads(cfgraph.dumps(graph)), "y", ["x"], grad_ys=[weight])
        assert result["x"].agrees
    assert result["x"].expected == pytest.approx(13)


def test_the_second_order_is_compared_with_the_slopes_of_the_first() -> None:
    graph = cfgraph.loads(b"""
x = Placeholder() {dtype=float64, shape=[]}
y = Sin(x)
""")
    result = checked(graph, "y", ["x"], order=2, feeds={"x": 0.5})
    assert result["x"].agrees
    assert result["x"].expected == pytest.approx(-np.sin(0.5))


def test_without_a_gradient_nothing_runs_and_no_feed_is_needed() -> None:
    builder = cfgraph.Builder()
    cell = builder.placeholder("cell", "resource", [])
    x = builder.placeholder("x", "float64", [])
    y = builder.Round(builder.ReadVariableOp(cell, dtype="float64") * builder.StopGradient(x))
    added = derivatives(builder.graph, DerivativeRequest(ys=[y.name], xs=["x:0"]))
    (row,) = check_gradients(builder.graph, added)
    assert row["x:0"].skipped == "it has no gradient"
