"""Numbers that TensorFlow's own tests expect of gradients of conditionals and functional loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from tests.passes.gradient_programs import GradientProgram, mapped, ops_after, squares, times

# -- conditionals ----------------------------------------------------------------------------------


def test_a_conditional_of_identities_has_the_gradient_1() -> None:
    p = GradientProgram(x=10.0)
    x = p["x"]
    y = p.b.cond(p.b.const(1) < 2, lambda: p.b.Identity(x), lambda: p.b.Identity(x))
    assert p.gradients(y, "x") == 1


@pytest.mark.parametrize(("c", "want"), [(1, 42), (3, 3)])
def test_the_gradient_is_that_of_the_branch_that_ran(c: int, want: int) -> None:
    p = GradientProgram(x=10.0, c=c)
    y = p.b.cond(p["c"] < 2, lambda: p["x"] * 42.0, lambda: p["x"] * 3.0)
    assert p.gradients(y, "x") == want


@pytest.mark.parametrize(("c", "want"), [(1, 980), (3, 30)])
def test_a_gradient_leads_on_to_what_was_computed_before_the_conditional(c: int, want: int) -> None:
    p = GradientProgram(x=10.0, c=c)
    seven, x = p["x"] * 7.0, p["x"]
    y = p.b.cond(p["c"] < 2, lambda: seven * seven, lambda: x * x * 1.5)
    assert p.gradients(y, "x") == want


@pytest.mark.parametrize("outer", [True, False])
def test_conditionals_nest(outer: bool) -> None:
    p = GradientProgram(x=0.0, outer=outer)
    x = p["x"]
    y = p.b.cond(p["outer"], lambda: x, lambda: p.b.cond(x < 1.0, lambda: x, lambda: x))
    assert p.gradients(y, "x") == 1


@pytest.mark.parametrize(("pred", "want"), [(True, 4), (False, 0)])
def test_a_branch_that_is_a_constant_has_the_gradient_0(pred: bool, want: int) -> None:
    p = GradientProgram(x=1.0, y=2.0, pred=pred)
    x, y = p["x"], p["y"]
    with p.b.device("/device:CPU:0"):
        z = p.b.cond(p["pred"], lambda: x * y * 2.0, lambda: p.b.const(2.0))
    assert p.gradients(z, "x") == want
    assert p.gradients(z, "x", order=2) in (None, 0)


@pytest.mark.parametrize(("pred", "want"), [(True, [1, 1]), (False, [0, 2])])
def test_a_gather_in_a_branch_adds_up_what_it_reads_twice(pred: bool, want: list[int]) -> None:
    p = GradientProgram(x=[1.0, 1.0], pred=pred)
    x = p["x"]
    y = p.b.cond(p["pred"], lambda: p.b.Identity(x), lambda: p.b.GatherV2(x, [1, 1], p.b.const(0)))
    assert p.gradients(y, "x") == want


@pytest.mark.parametrize(
    ("pred", "want"), [(True, [[0, 0], [1, 1], [1, 1], [0, 0]]), (False, [[0, 0]] * 4)]
)
def test_rows_of_a_variable_that_a_branch_reads_have_gradients(pred: bool, want: Any) -> None:
    p = GradientProgram(pred=pred)
    v = p.b.variable(np.ones((4, 2), np.float32))
    p.before = [p.b.initializer().name]
    y = p.b.cond(
        p["pred"],
        lambda: p.b.Sum(p.b.ResourceGather(v.handle, [1, 2], dtype="float32"), [0, 1]),
        lambda: p.b.const(0.0),
    )
    assert p.gradients(y, v.handle) == want


def test_several_gathers_in_a_branch_have_gradients() -> None:
    p = GradientProgram(x1=np.ones((3, 3)).tolist(), x2=2.0)
    v = p.b.variable(np.ones((4, 2), np.float32))
    p.before = [p.b.initializer().name]
    x1, x2 = p["x1"], p["x2"]

    def branch() -> Any:
        rows = p.b.Sum(p.b.ResourceGather(v.handle, [1, 2], dtype="float32"), [0, 1])
        return rows + 2.0 * p.b.Sum(x1[2], [0]) + 6.0 * x2

    y = p.b.cond(x2 > 1.0, branch, lambda: x2)
    by_v, by_x1, by_x2 = p.gradients(y, v.handle, "x1", "x2")
    assert by_v == [[0, 0], [1, 1], [1, 1], [0, 0]]
    assert by_x1 == [[0, 0, 0], [0, 0, 0], [2, 2, 2]]
    assert by_x2 == 6


@pytest.mark.parametrize("pred", [True, False])
def test_both_variables_have_gradients_of_their_shapes(pred: bool) -> None:
    p = GradientProgram(pred=pred)
    first, second = p.b.variable([1.0, 2.0]), p.b.variable([3.0, 4.0], name="other")
    p.before = [p.b.initializer().name]
    y = p.b.cond(p["pred"], lambda: first * 1.0, lambda: second * 1.0)
    chosen, left = ([1, 1], [0, 0]) if pred else ([0, 0], [1, 1])
    assert p.gradients(y, first.handle, second.handle) == [chosen, left]


PICKS_A_VARIABLE = """
p = Placeholder() {dtype=bool, shape=[]}
a = VarHandleOp() {dtype=float32, shape=[1], shared_name="a"}
b = VarHandleOp() {dtype=float32, shape=[1], shared_name="b"}
two = Const() {dtype=float32, value=float32[1]:[2]}
init_a = AssignVariableOp(a, two)
init_b = AssignVariableOp(b, two)
sa = Switch(a, p)
sb = Switch(b, p)
chosen = Merge(sb, sa:1) {T=resource}
y = ReadVariableOp(chosen) {dtype=float32}
"""


def test_a_conditional_that_picks_a_variable_passes_it_the_gradient() -> None:
    graph = cfgraph.loads(PICKS_A_VARIABLE.encode())
    names = cfgraph.gradients(graph, ["y"], ["a", "b"])
    session = cfgraph.Session(graph)
    session.run(targets=["init_a", "init_b"])
    wanted = [name for name in names if name]
    for pred, want in ((True, [[1], [0]]), (False, [[0], [1]])):
        assert [value.tolist() for value in session.run(wanted, {"p": pred})] == want


@pytest.mark.parametrize(("pred", "want"), [(True, [2, 2, 2]), (False, [0, 0, 0])])
def test_a_list_within_a_branch_has_a_gradient(pred: bool, want: list[int]) -> None:
    p = GradientProgram(x=[1.0, 2.0, 3.0], pred=pred)
    x = p["x"]
    y = p.b.cond(
        p["pred"],
        lambda: mapped(p, lambda item: item * 2.0, x, 3),
        lambda: p.b.const(np.zeros(3, np.float32)),
    )
    assert p.gradients(y, "x") == want


def test_values_between_the_steps_of_a_branch_come_back() -> None:
    p = GradientProgram(x=10.0)
    x = p["x"]

    def branch() -> Any:
        square = x * x
        return square * square

    assert p.gradients(p.b.cond(x > 0.0, branch, lambda: x), "x") == 4000


# -- loops in functional form ----------------------------------------------------------------------


def test_a_loop_of_one_variable_yields_16_and_32() -> None:
    p = GradientProgram(x=2.0)
    r = squares(p, p["x"], 8.0)
    assert (p.value(r), p.gradients(r, "x")) == (16, 32)


def test_a_variable_that_stays_is_a_factor() -> None:
    p = GradientProgram(x=5.0, y=3.0)
    rx, ry = p.b.while_loop(lambda x, y: x < 45.0, lambda x, y: (x * y, y), [p["x"], p["y"]])
    assert (p.value(rx), p.value(ry), p.gradients(rx, "x")) == (45, 3, 9)


def test_two_variables_that_change_together_have_six_gradients() -> None:
    p = GradientProgram(x=5.0, y=3.0)
    rx, ry = p.b.while_loop(lambda x, y: x < 45.0, lambda x, y: (x * y, x + y), [p["x"], p["y"]])
    assert (p.value(rx), p.value(ry)) == (120, 23)
    assert [p.gradients(y, "x") for y in (rx, ry, [rx, ry])] == [39, 4, 43]
    assert [p.gradients(y, "y") for y in (rx, ry, [rx, ry])] == [55, 6, 61]


def test_what_the_condition_reads_from_outside_is_no_variable() -> None:
    p = GradientProgram(x=2.0, y=3.0)
    y = p["y"]
    r = p.b.while_loop(lambda x: x + y < 15.0, lambda x: x * 3.0, p["x"])
    assert (p.value(r), p.gradients(r, "x")) == (18, 9)


def test_what_the_body_reads_from_outside_is_an_invariant() -> None:
    p = GradientProgram(x=2.0, y=3.0)
    y = p["y"]
    r = p.b.while_loop(lambda x: x < 8.0, lambda x: x * y, p["x"])
    assert (p.value(r), p.gradients(r, "x")) == (18, 9)


def test_a_sum_of_powers_by_two_loops_yields_364_and_547() -> None:
    p = GradientProgram(n=3.0, m=5)
    n, m = p["n"], p["m"]

    def body(i: Any, total: Any) -> Any:
        _, power = p.b.while_loop(
            lambda j, power: j < i, lambda j, power: (j + 1, power * n), [0, p.b.const(1.0)]
        )
        return i + 1, total + power

    _, total = p.b.while_loop(lambda i, total: i <= m, body, [0, p.b.const(0.0)])
    assert (p.value(total), p.gradients(total, "n")) == (364, 547)


def test_a_call_in_the_body_of_a_loop_from_a_bare_file_has_the_gradient_8() -> None:
    p = GradientProgram(x=1.0)
    double = p.b.function(lambda x: x * 2.0, name="double")
    r = p.b.while_loop(lambda x: x < 5.0, double, p["x"])
    assert {"StatelessWhile"} <= {node.op for node in p.graph()}
    assert p.gradients(r, "x") == 8


def test_an_invariant_factor_is_not_saved() -> None:
    p = GradientProgram(x=2.0, v=3.0)
    v = p["v"]
    r = times(p, 4, lambda x: v * x, p["x"])
    assert ops_after(p, r, "x", "v")["StackPushV2"] == 1
    assert ops_after(p, r, "x")["StackPushV2"] == 0


def test_a_constant_factor_is_not_saved() -> None:
    p = GradientProgram(x=2.0)
    assert ops_after(p, times(p, 4, lambda x: x * 2.0, p["x"]), "x")["StackPushV2"] == 0


def test_a_value_that_is_read_twice_is_saved_once() -> None:
    p = GradientProgram(x=2.0)
    r = times(p, 2, lambda x: p.b.Exp(x * x) * x, p["x"])
    pushes = ops_after(p, r, "x")["StackPushV2"]
    assert pushes == 2  # x, and its exponential


def test_a_loop_that_gathers_its_result_passes_the_gradient_through() -> None:
    p = GradientProgram(x=[2.0, 2.0])
    r = p.b.while_loop(lambda v: p.b.Sum(v, [0]) < 16.0, lambda v: v * v, p["x"])
    assert p.gradients(p.b.GatherV2(r, [0], p.b.const(0)), "x") == [32, 0]


def test_a_loop_has_a_second_and_a_third_derivative() -> None:
    p = GradientProgram(x=2.0)
    r = squares(p, p["x"], 8.0)
    assert p.value(r) == 16
    assert [p.gradients(r, "x", order=order) for order in (1, 2, 3)] == [32, 48, 48]


def test_two_loops_behind_each_other_have_a_second_derivative() -> None:
    p = GradientProgram(x=2.0)
    r = squares(p, squares(p, p["x"], 4.0), 16.0)
    assert [p.gradients(r, "x", order=order) for order in (1, 2)] == [32, 48]


def test_three_orders_of_a_cosine_of_a_cosine_are_those_of_calculus() -> None:
    p = GradientProgram(x=0.5)
    r = times(p, 2, p.b.Cos, p["x"])
    u, c, s = np.cos(0.5), np.cos(0.5), np.sin(0.5)
    first = np.sin(u) * s
    second = -np.cos(u) * s * s + np.sin(u) * c
    third = -np.sin(u) * s**3 - 3 * np.cos(u) * s * c - np.sin(u) * s
    found = [p.gradients(r, "x", order=order) for order in (1, 2, 3)]
    np.testing.assert_allclose(found, [first, second, third], rtol=1e-5)
