from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import cfgraph
from cfgraph import Builder
from cfgraph.ir import dtypes
from tests.build.execution import rejection, run_builder, run_with_tensorflow


def summing() -> tuple[Builder, Any, Any]:
    b = Builder()
    return b, b.placeholder("n", "int32", []), b.placeholder("x", "float32", [2])


@pytest.mark.parametrize(("n", "expected"), [(0, [0, [0.0, 0.0]]), (3, [3, [3.0, 6.0]])])
def test_a_loop_runs_as_long_as_its_condition_holds(n: int, expected: list[Any]) -> None:
    b, limit, x = summing()
    out = b.while_loop(lambda i, a: i < limit, lambda i, a: (i + 1, a + x), (0, x * 0))
    assert run_builder(b, list(out), {"n": n, "x": [1, 2]}) == expected


def test_a_captured_tensor_is_carried_once() -> None:
    b, limit, x = summing()
    out = b.while_loop(lambda i, a: i < limit, lambda i, a: (i + 1, a + x * x), [0, x])
    node = out[0].op.node
    assert [item.name for item in node.inputs] == ["while/i:0", "x:0", "n:0", "x:0"]
    body = b.graph.functions["while_body"].definition
    assert body.returns["x_out"] == "x"
    assert body.returns["n_out"] == "n"


def test_loop_variables_are_called_as_the_body_calls_them() -> None:
    b, limit, x = summing()
    b.while_loop(lambda *v: v[0] < limit, lambda count, total: (count + 1, total), [0, x])
    arguments = [arg.name for arg in b.graph.functions["while_body"].definition.inputs]
    assert arguments == ["count", "total", "n"]


class State(NamedTuple):
    done: Any
    pair: tuple[Any, Any]


def test_loop_variables_keep_their_structure() -> None:
    b, limit, _ = summing()
    out = b.while_loop(
        lambda s: s.done < limit,
        lambda s: State(s.done + 1, (s.pair[1], s.pair[0] + s.pair[1])),
        State(0, (0, 1)),
    )
    assert isinstance(out, State)
    assert run_builder(b, [out.done, *out.pair], {"n": 10}) == [10, 55, 89]


def test_a_dict_of_loop_variables_is_one_argument() -> None:
    b, limit, _ = summing()
    out = b.while_loop(
        lambda s: s["i"] < limit,
        lambda s: {"twice": s["twice"] * 2, "i": s["i"] + 1},
        {"i": 0, "twice": 1},
    )
    assert run_builder(b, [out["i"], out["twice"]], {"n": 5}) == [5, 32]


def test_a_single_loop_variable_needs_no_brackets() -> None:
    b, limit, _ = summing()
    assert run_builder(b, [b.while_loop(lambda i: i < limit, lambda i: i + 2, 0)], {"n": 5}) == [6]
    (listed,) = b.while_loop(lambda i: i < limit, lambda i: i + 2, [0])
    assert run_builder(b, [listed], {"n": 5}) == [6]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_maximum_of_iterations_ends_a_loop(dtype: str) -> None:
    b = Builder()
    most = b.placeholder("m", dtype, [])
    (fixed,) = b.while_loop(lambda i: i < 100, lambda i: i * 2, [1], maximum_iterations=3)
    (fed,) = b.while_loop(lambda i: i < 100, lambda i: i * 2, [1], maximum_iterations=most)
    assert run_builder(b, [fixed, fed], {"m": 5}) == [8, 32]
    assert run_builder(b, [fixed, fed], {"m": 50}) == [8, 128]


def test_a_loop_over_resources_alone_gets_a_counter() -> None:
    b = Builder()
    v = b.variable(3)
    done = b.while_loop(lambda: v < 10, lambda: v.assign_add(3), [])
    with b.control(done):
        after = v.read()
    assert done.node.op == "While"
    assert [str(dtype) for dtype in done.node.attrs["T"]] == ["int32", "resource"]
    assert run_builder(b, [after], None, [b.initializer()]) == [12]


@pytest.mark.parametrize("run", [run_builder, run_with_tensorflow])
def test_handles_of_variables_are_loop_variables(run: Any) -> None:
    b = Builder()
    v, w = b.variable(1.0), b.variable(2.0)

    def body(i: Any, first: Any, second: Any) -> Any:
        b.AssignAddVariableOp(first, b.ReadVariableOp(second, dtype="float32"))
        b.AssignAddVariableOp(second, b.ReadVariableOp(first, dtype="float32"))
        return i + 1, first, second

    loop = b.while_loop(lambda i, *_: i < 3, body, (0, v.handle, w.handle))
    assert loop[1].dtype is loop[2].dtype is dtypes.resource
    with b.control(loop[0]):
        values = [b.ReadVariableOp(handle, dtype="float32") for handle in loop[1:]]
    assert run(b, values, None, [b.initializer()]) == [21.0, 34.0]


def test_a_loop_over_handles_alone_gets_a_counter() -> None:
    b = Builder()
    v = b.variable(3)

    def add(handle: Any) -> Any:
        b.AssignAddVariableOp(handle, 3)
        return handle

    after = b.while_loop(lambda h: b.ReadVariableOp(h, dtype="int32") < 10, add, v.handle)
    value = b.ReadVariableOp(after, dtype="int32")
    assert run_builder(b, [value], None, [b.initializer()]) == [12]


def squared_thrice(**options: Any) -> tuple[Builder, Any]:
    b = Builder()
    x = b.placeholder("x", "float32", [])
    _, y = b.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * a), (0, x), **options)
    return b, y


@pytest.mark.parametrize("order", [1, 2])
def test_a_loop_may_let_devices_swap_the_values_that_it_saves(order: int) -> None:
    b, y = squared_thrice(swap_memory=True)
    for _ in range(order):
        (name,) = cfgraph.gradients(b.graph, [y.name], ["x:0"])
        y = b.graph.tensor(name)
    pushes = [node for node in b.graph if node.op == "StackPushV2" and "/f_acc_push" in node.name]
    assert len({node.name.split("/")[0] for node in pushes}) == order
    assert all(node.attr("swap_memory") for node in pushes)
    expected = {1: 8 * 2.0**7, 2: 56 * 2.0**6}[order]
    assert run_builder(b, [y], {"x": 2.0}) == [expected]


def test_no_gradient_passes_a_loop_without_back_prop() -> None:
    b, y = squared_thrice(back_prop=False)
    assert cfgraph.gradients(b.graph, [y.name], ["x:0"]) == [None]
    assert run_builder(b, [y], {"x": 2.0}) == [256.0]


@pytest.mark.parametrize("invariants", [([], [None]), {"a": [None]}])
def test_shapes_may_grow_where_invariants_allow_it(invariants: Any) -> None:
    b, limit, x = summing()
    _, out = b.while_loop(
        lambda i, a: i < limit,
        lambda i, a: (i + 1, b.ConcatV2([a, x], 0)),
        (0, x),
        shape_invariants=invariants,
    )
    assert str(out.shape) == "[?]"
    assert run_builder(b, [out], {"n": 2, "x": [1, 2]}) == [[1.0, 2.0] * 3]


def test_loops_and_conditionals_nest_both_ways() -> None:
    b, limit, x = summing()

    def step(i: Any, a: Any) -> Any:
        def inner() -> Any:
            return b.while_loop(lambda j, c: j < i, lambda j, c: (j + 1, c + x), (0, a))[1]

        return i + 1, b.cond(i % 2 == 0, inner, lambda: b.cond(a[0] > 5, lambda: a - x, lambda: a))

    out = b.while_loop(lambda i, a: i < limit, step, (0, x))
    a = 1.0
    for i in range(6):
        a = a + i if i % 2 == 0 else (a - 1 if a > 5 else a)
    assert run_builder(b, list(out), {"n": 6, "x": [1, 2]}) == [6, [a, 2 * a]]


def test_parallel_iterations_are_passed_on() -> None:
    b, limit, _ = summing()
    (out,) = b.while_loop(lambda i: i < limit, lambda i: i + 1, [0], parallel_iterations=1)
    assert out.op.node.attrs["parallel_iterations"] == 1
    error = rejection(lambda: b.while_loop(lambda i: True, lambda i: i, [0], parallel_iterations=0))
    assert error.message == "parallel_iterations of 'while' is 0"


def test_a_loop_variable_keeps_its_type() -> None:
    b, limit, x = summing()
    error = rejection(lambda: b.while_loop(lambda i, a: i < limit, lambda i, a: (i + 1, i), [0, x]))
    assert error.message == (
        "loop variable 'a' of 'while' is float32 before the loop and int32 after an iteration"
    )


def test_a_loop_variable_keeps_its_shape() -> None:
    b, _, x = summing()
    error = rejection(lambda: b.while_loop(lambda s: True, lambda s: {"a": s["a"][:1]}, {"a": x}))
    assert error.message == (
        "loop variable 'a' of 'while' has shape [2] before the loop and [1] after an iteration"
    )
    assert error.hint == "shape_invariants={'a': [None]}, if the shape may change"
    error = rejection(
        lambda: b.while_loop(lambda a: 1, lambda a: a, [x], shape_invariants={"b": []})
    )
    assert error.message == "'while' has no loop variable 'b'"
    error = rejection(
        lambda: b.while_loop(lambda a: True, lambda a: a, [x], shape_invariants=[[3]])
    )
    assert error.message == "loop variable 'a' has the initial shape [2], expected [3]"


def test_loop_variables_keep_their_number_and_structure() -> None:
    b, limit, x = summing()
    error = rejection(lambda: b.while_loop(lambda i, a: i < limit, lambda i, a: i + 1, [0, x]))
    assert "(*, *) before the loop, * after an iteration" in error.message
    error = rejection(
        lambda: b.while_loop(lambda i, a: i < limit, lambda i, a: (i, (a, a)), [0, x])
    )
    assert error.message.startswith("loop variable 'a' of 'while' is * before the loop, (*, *)")


def test_a_condition_is_one_scalar_bool() -> None:
    b, limit, x = summing()
    error = rejection(lambda: b.while_loop(lambda a: a < 1, lambda a: a, [x]))
    assert error.message == "the condition Less:0 has shape [2], expected a scalar"
    error = rejection(lambda: b.while_loop(lambda a: limit, lambda a: a, [x]))
    assert error.message == "the condition n:0 is int32, not bool"
    error = rejection(lambda: b.while_loop(lambda a: None, lambda a: a, [x]))
    assert error.message == "the condition of 'while' returns None, expected one bool"


def test_a_value_of_the_body_is_not_read_outside() -> None:
    b, limit, _ = summing()
    leaked: list[Any] = []

    def body(i: Any) -> Any:
        leaked.append(i + 1)
        return leaked[0]

    b.while_loop(lambda i: i < limit, body, [0])
    assert "was created in the body of 'while'" in rejection(lambda: leaked[0] + 1).message


def test_condition_and_body_take_the_loop_variables() -> None:
    b, limit, _ = summing()
    error = rejection(lambda: b.while_loop(lambda i, j: i < limit, lambda i: i, [0]))
    assert error.message.startswith("the condition of 'while' is called with 1 argument: ")
    error = rejection(lambda: b.while_loop(lambda i: i < limit, lambda: 1, [0]))
    assert error.message.startswith("the body of 'while' is called with 1 argument: ")
