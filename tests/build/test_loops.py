from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from cfgraph import Builder
from tests.build.execution import rejection, run_builder


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
