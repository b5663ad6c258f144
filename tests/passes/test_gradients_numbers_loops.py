"""Numbers that TensorFlow's own tests of loops expect of gradients, one program per test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cfgraph
from tests.passes.gradient_programs import GradientProgram, mapped, ops_after, squares, times


def test_squaring_until_100_has_the_gradient_1024() -> None:
    p = GradientProgram(v=2.0)
    assert p.gradients(squares(p, p["v"]), "v") == 1024


SQUARES = """
v = Placeholder() {dtype=float32, shape=[]}
limit = Const() {dtype=float32, value=float32[]:100}
enter = Enter(v) {frame_name="squares"}
top = Enter(limit) {frame_name="squares", is_constant=true}
merge = Merge(enter, next)
less = Less(merge, top)
cond = LoopCond(less)
switch = Switch(merge, cond)
body = Identity(switch:1)
square = Mul(body, body)
next = NextIteration(square)
r = Exit(switch)
"""


def test_a_loop_written_in_primitives_has_the_gradient_1024() -> None:
    graph = cfgraph.loads(SQUARES.encode())
    (name,) = cfgraph.gradients(graph, ["r"], ["v"])
    assert cfgraph.Session(graph).run([name or ""], {"v": 2}) == [1024]


def test_a_loop_that_leaves_through_a_conditional_has_the_same_gradient() -> None:
    p = GradientProgram(v=2.0)
    r = squares(p, p["v"])
    assert p.gradients(p.b.cond(r < 1000.0, lambda: r, lambda: r * 3.0), "v") == 1024


def test_gradients_request_the_device_of_what_they_differentiate() -> None:
    p = GradientProgram(v=2.0)
    with p.b.device("/device:CPU:0"):
        y = p.b.Square(p["v"], name="y")
    graph = p.graph()
    cfgraph.gradients(graph, [y.name], ["v"])
    devices = {node.device for node in graph if node.name.startswith("gradients/y_grad")}
    assert devices == {"/device:CPU:0"}


@pytest.mark.parametrize(
    ("use", "want"), [(lambda r: r * r, 524288), (lambda r: r + r, 2048)], ids=["square", "double"]
)
def test_a_loop_that_is_read_twice_sums_what_comes_back(use: Any, want: int) -> None:
    p = GradientProgram(v=2.0)
    assert p.gradients(use(squares(p, p["v"])), "v") == want


@pytest.mark.parametrize("parallel", [1, 10])
def test_multiplying_by_an_invariant_has_the_gradients_216_and_81(parallel: int) -> None:
    p = GradientProgram(a=3.0, v=2.0)
    a = p["a"]
    r = p.b.while_loop(lambda v: v < 100.0, lambda v: v * a, p["v"], parallel_iterations=parallel)
    assert p.gradients(r, "a", "v") == [216, 81]


REFERENCE = """
a = VariableV2() {dtype=float32, shape=[]}
three = Const() {dtype=float32, value=float32[]:3}
init = Assign(a, three)
v = Const() {dtype=float32, value=float32[]:2}
limit = Const() {dtype=float32, value=float32[]:100}
read = Identity(a)
enter = Enter(v) {frame_name="f"}
top = Enter(limit) {frame_name="f", is_constant=true}
by = Enter(read) {frame_name="f", is_constant=true}
merge = Merge(enter, next)
less = Less(merge, top)
cond = LoopCond(less)
switch = Switch(merge, cond)
mul = Mul(switch:1, by)
next = NextIteration(mul)
r = Exit(switch)
"""


def test_an_invariant_may_be_a_reference_variable() -> None:
    graph = cfgraph.loads(REFERENCE.encode())
    (name,) = cfgraph.gradients(graph, ["r"], ["a"])
    session = cfgraph.Session(graph)
    session.run(targets=["init"])
    assert session.run([name or ""]) == [216]


def test_an_invariant_may_be_a_resource_variable_read_in_the_loop() -> None:
    p = GradientProgram(v=2.0)
    a = p.b.variable(3.0)
    p.before = [p.b.initializer().name]
    r = p.b.while_loop(lambda v: v < 100.0, lambda v: v * a, p["v"])
    assert p.gradients(r, a.handle) == 216


def test_sizes_that_are_not_known_are_found_when_it_runs() -> None:
    p = GradientProgram()
    x = p.input("x", [3.0, 4.0], [None])
    v = times(p, 5, lambda v: x * v, p.b.const([2.0, 2.0]) + 0.0 * x)
    assert p.gradients(p.b.Sum(v, [0]), "x") == [810, 2560]


def test_a_loop_of_no_iterations_passes_gradients_through() -> None:
    p = GradientProgram()
    x = p.input("x", [1.0, 2.0], [None])
    r = times(p, 0, lambda v: v * x, p.b.const([1.0, 1.0]))
    assert p.gradients(r + x * x, "x") == [2, 4]


def test_a_loop_in_a_loop_that_squares_has_the_gradient_1024() -> None:
    p = GradientProgram(v=2.0)

    def body(v: Any) -> Any:
        # v * v, as a single-iteration loop over an invariant of the outer loop
        return times(p, 1, lambda w: w * v, v)

    assert p.gradients(p.b.while_loop(lambda v: v < 100.0, body, p["v"]), "v") == 1024


def doubled(p: GradientProgram, v: Any, count: int = 4) -> Any:
    """v doubled `count` times, in a loop."""
    return times(p, count, lambda w: w * 2.0, v)


def test_a_loop_in_a_conditional_in_a_loop_has_the_gradient_512() -> None:
    p = GradientProgram(v=1.0, always=True)
    always = p["always"]

    def body(v: Any) -> Any:
        return p.b.cond(always, lambda: p.b.Square(doubled(p, v)), lambda: v * 2.0)

    assert p.gradients(p.b.while_loop(lambda v: v < 128.0, body, p["v"]), "v") == 512


@pytest.mark.parametrize(
    ("limit", "step", "want"),
    [
        (8.0, lambda p, v: doubled(p, v, 3), 8),
        (256.0, lambda p, v: doubled(p, doubled(p, v)), 256),
        (128.0, lambda p, v: doubled(p, v) * doubled(p, v), 512),
    ],
    ids=["simple", "serial", "parallel"],
)
def test_loops_in_a_loop_may_follow_each_other_or_run_side_by_side(
    limit: float, step: Any, want: int
) -> None:
    p = GradientProgram(v=1.0)
    r = p.b.while_loop(lambda v: v < limit, lambda v: step(p, v), p["v"])
    assert p.gradients(r, "v") == want


@pytest.mark.parametrize("shape", [[], None])
def test_a_conditional_in_a_loop_has_the_gradient_1024(shape: Any) -> None:
    p = GradientProgram(always=True)
    v, always = p.input("v", 2.0, shape), p["always"]
    if shape is None:
        v = p.b.Reshape(v, p.b.const(np.zeros(0, np.int32)))

    def body(v: Any) -> Any:
        return p.b.cond(always, lambda: p.b.Square(v), lambda: v - 3.0)

    assert p.gradients(p.b.while_loop(lambda v: v < 100.0, body, v), "v") == 1024


@pytest.mark.parametrize(("pred", "want"), [(True, 8), (False, 0)])
def test_a_branch_in_a_loop_that_forgets_its_value_has_the_gradient_0(
    pred: bool, want: int
) -> None:
    p = GradientProgram(x=1.0, pred=pred)
    chosen = p["pred"]
    y = times(p, 3, lambda v: p.b.cond(chosen, lambda: v * 2.0, lambda: p.b.const(1.0)), p["x"])
    assert p.gradients(y, "x") == want


def test_rows_that_a_loop_reads_again_and_again_add_up() -> None:
    p = GradientProgram()
    v = p.b.variable(np.ones(4, np.float32))
    p.before = [p.b.initializer().name]

    def step(total: Any) -> Any:
        rows = p.b.ResourceGather(v.handle, [1, 3], dtype="float32")
        return total + p.b.Reshape(p.b.Sum(rows, [0]), p.b.const(np.zeros(0, np.int32)))

    assert p.gradients(times(p, 2, step, p.b.const(0.0)), v.handle) == [0, 2, 0, 2]


@pytest.mark.parametrize(("factor", "y", "want"), [(2.0, 8, 24), (1.0, 1, 3)])
def test_an_element_that_a_loop_reads_has_a_gradient(factor: float, y: int, want: int) -> None:
    p = GradientProgram(x=[1.0] * 5)
    x, zero = p["x"], p.b.const(0)
    r = times(p, 3, lambda v: v * factor * p.b.GatherV2(x, 0, zero), p.b.const(1.0))
    assert p.value(r) == y
    assert p.gradients(r, "x") == [want, 0, 0, 0, 0]


def test_a_whole_loop_in_a_branch_has_the_gradient_9() -> None:
    p = GradientProgram(x=1.0)
    x = p["x"]
    y = p.b.cond(x > 0.0, lambda: times(p, 2, lambda v: v * 3.0, x), lambda: x)
    assert p.gradients(y, "x") == 9


def feedback(p: GradientProgram, inside: Callable[[Any], Any] = lambda y: y) -> tuple[Any, Any]:
    """`while x < 100: y, x = y^2, x^2 + y^2`"""

    def body(x: Any, y: Any) -> Any:
        square = inside(p.b.Square(y))
        return p.b.Square(x) + square, square

    rx, ry = p.b.while_loop(lambda x, y: p.b.All(x < 100.0, axes(p, x)), body, [p["x"], p["y"]])
    return rx, ry


def axes(p: GradientProgram, x: Any) -> Any:
    return p.b.Range(0, p.b.Rank(x), 1)


def test_several_ys_and_xs_of_a_loop_have_their_gradients() -> None:
    p = GradientProgram(x=3.0, y=2.0)

    def body(x: Any, y: Any) -> Any:
        added = x + y
        return x * added, added

    rx, ry = p.b.while_loop(lambda x, y: x < 100.0, body, [p["x"], p["y"]])
    assert p.gradients([rx, ry], "x", "y") == [304, 124]
    assert p.gradients(rx, "x", "y") == [295, 120]


def test_an_integer_among_the_ys_counts_nothing() -> None:
    p = GradientProgram(v=2.0)
    i, r = p.b.while_loop(lambda i, v: v < 100.0, lambda i, v: (i + 1, v * v), [0, p["v"]])
    assert p.gradients([i, r], "v") == 1024


def test_a_variable_that_forwards_another_one_has_its_gradient() -> None:
    p = GradientProgram(v=np.ones((2, 3)).tolist(), w=np.ones((2, 3)).tolist())
    _, r = p.b.while_loop(lambda i, v: i < 10, lambda i, v: (i + 1, p.b.Identity(v)), [0, p["v"]])
    assert p.gradients(r, "v") == np.ones((2, 3)).tolist()


def test_a_variable_that_becomes_a_constant_has_the_gradient_0() -> None:
    p = GradientProgram(v=3.0)
    r = times(p, 2, lambda v: p.b.const(1.0), p["v"])
    assert p.gradients(r, "v") == 0


def test_two_loops_one_behind_the_other_have_the_gradient_1024() -> None:
    p = GradientProgram(v=2.0)
    assert p.gradients(squares(p, squares(p, p["v"], 10.0)), "v") == 1024


def test_two_loops_side_by_side_have_the_gradient_64() -> None:
    p = GradientProgram(v=2.0)
    first, second = squares(p, p["v"], 8.0), squares(p, p["v"], 8.0)
    assert p.gradients(first + second, "v") == 64


def test_a_control_edge_from_one_variable_to_another_changes_no_gradient() -> None:
    p = GradientProgram(x=1.0, y=1.0)

    def body(x: Any, y: Any) -> Any:
        with p.b.control(y):
            kept = p.b.Identity(x)
        return kept, y + 1.0

    rx, _ = p.b.while_loop(lambda x, y: y < 5.0, body, [p["x"], p["y"]])
    assert p.gradients(rx, "x") == 1


def test_the_weight_of_a_y_comes_through() -> None:
    p = GradientProgram(x=1.0)
    y = times(p, 3, p.b.Identity, p["x"])
    weights = {"grad_ys": [np.float32(73)]}
    assert p.gradients(y, "x", options=weights) == 73


def test_each_element_of_a_vector_has_its_gradient() -> None:
    p = GradientProgram(v=[2.0, 2.0])
    r = p.b.while_loop(lambda v: p.b.Sum(v, [0]) < 200.0, lambda v: v * v, p["v"])
    assert p.gradients(r, "v") == [1024, 1024]


def test_a_map_over_a_list_within_a_loop_has_the_gradient_107520() -> None:
    p = GradientProgram(param=2.0)
    param, start = p["param"], p.b.const([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    y = times(p, 10, lambda x: mapped(p, lambda item: item * param, x, 6), start)
    assert p.gradients(y, "param") == 107520


def test_gradients_stop_outside_of_a_loop_at_stop_gradients() -> None:
    p = GradientProgram(x=3.0, y=2.0)
    rx, ry = feedback(p)
    stop = p.b.StopGradient
    assert p.gradients(rx, "y") == 136
    assert p.gradients(ry, "y") == 32
    assert p.gradients(rx + ry, "y") == 168
    assert p.gradients(rx + stop(ry), "y") == 136
    assert p.gradients(stop(rx) + ry, "y") == 32
    for y in (stop(rx), stop(ry), stop(rx + ry), stop(rx) + stop(ry)):
        assert p.gradients(y, "y") is None


@pytest.mark.parametrize(
    ("x", "y", "by_x", "by_y"), [(3.0, 2.0, 156, 0), ([3.0, 4.0], [2.0, 3.0], [156, 400], [0, 0])]
)
def test_a_gradient_that_stops_within_a_loop_is_0(x: Any, y: Any, by_x: Any, by_y: Any) -> None:
    p = GradientProgram(x=x, y=y)
    rx, _ = feedback(p, p.b.StopGradient)
    assert p.gradients(rx, "y") == by_y
    assert p.gradients(rx, "x") == by_x


def test_nothing_is_added_for_what_stops_gradients_within_a_loop() -> None:
    p = GradientProgram(x=3.0, y=2.0)
    rx, _ = feedback(p, lambda y: p.b.StopGradient(y, name="stopped"))
    graph = p.graph()
    cfgraph.gradients(graph, [rx.name], ["x", "y"])
    assert [name for name in graph.nodes if "stopped_grad" in name] == []


def test_the_gradient_of_a_loop_may_be_stopped_and_used() -> None:
    p = GradientProgram(x=2.0, y=2.0)
    y = p["y"]
    r = p.b.while_loop(lambda x: x < 100.0, lambda x: x * y, p["x"])
    graph = p.graph()
    (name,) = cfgraph.gradients(graph, [r.name], ["y"])
    assert name is not None
    held = graph.add("StopGradient", graph.tensor(name))
    square = graph.add("Square", graph.tensor("y"))
    total = graph.add("AddV2", square, graph.add("Mul", held, graph.tensor("y")), name="total")
    (by_y,) = cfgraph.gradients(graph, [total.name], ["y"])
    assert p.values(graph, [by_y], {}) == [388]


@pytest.mark.parametrize(("count", "want"), [(0, [0, 0]), (1, [1, 1])])
def test_a_sum_over_a_path_of_integers_has_the_gradient_of_the_floats(
    count: int, want: list[int]
) -> None:
    p = GradientProgram(x=[1.0, 1.0], n=count)
    n, x = p["n"], p["x"]

    def body(i: Any, v: Any) -> Any:
        return i + 1, v + x + p.b.Cast(i, DstT="float32")

    _, r = p.b.while_loop(lambda i, v: i < n, body, [0, p.b.const([0.0, 0.0])])
    assert p.gradients(r, "x") == want


def test_a_condition_of_two_parts_has_a_gradient() -> None:
    p = GradientProgram(x=2.0)
    _, r = p.b.while_loop(
        lambda i, v: p.b.LogicalAnd(i < 10, v < 100.0), lambda i, v: (i + 1, v * v), [0, p["x"]]
    )
    assert p.gradients(r, "x") == 1024


def test_a_loop_that_squares_saves_one_value_an_iteration() -> None:
    p = GradientProgram(v=2.0)
    r = times(p, 4, p.b.Square, p["v"])
    assert (p.value(r), p.gradients(r, "v")) == (65536, 524288)
    assert ops_after(p, r, "v")["StackV2"] == 1


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_case_of_three_in_a_loop_has_a_second_derivative_in_each_branch(index: int) -> None:
    p = GradientProgram(v=1.0, index=index)
    index, b = p["index"], p.b

    def body(v: Any) -> Any:
        return b.case(index, [lambda: v * v, lambda: v * v * v, lambda: b.Square(v) * v * v])

    r = times(p, 2, body, p["v"])
    power = (2 + p.feeds["index"]) ** 2
    found = [p.gradients(r, "v", order=order) for order in (1, 2)]
    assert found == [power, power * (power - 1)]
