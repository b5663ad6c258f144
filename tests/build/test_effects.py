from __future__ import annotations

from typing import Any

import pytest

from cfgraph import Builder
from tests.build.execution import rejection, run_builder


def counting() -> tuple[Builder, Any, Any]:
    b = Builder()
    return b, b.placeholder("n", "int32", []), b.variable(0.0, name="v")


def test_a_variable_keeps_its_value() -> None:
    b, _, v = counting()
    step, value = v.assign_add(2.0), v.read()
    assert run_builder(b, [value], None, [b.initializer(), step, step]) == [4.0]


def test_all_variables_are_initialised_at_once() -> None:
    b, _, v = counting()
    w = b.variable([1, 2], "int64", shape=[None])
    assert str(w.read().shape) == "[?]"
    assert run_builder(b, [v.read(), w.read()], None, [b.initializer()]) == [0.0, [1, 2]]


def test_a_variable_is_read_where_a_tensor_is_wanted() -> None:
    b, _, v = counting()
    assert run_builder(b, [v + 1, b.Neg(v), 2 * v], None, [b.initializer()]) == [1.0, -0.0, 0.0]


def test_variables_of_one_name_are_apart() -> None:
    b = Builder()
    first, second = b.variable(1, name="v"), b.variable(2, name="v")
    assert run_builder(b, [first.read(), second.read()], None, [b.initializer()]) == [1, 2]


def test_effects_in_a_body_run_in_the_order_of_the_program() -> None:
    b, n, v = counting()

    def body(i: Any) -> Any:
        v.assign_add(2.0)
        v.assign(v * 2)
        return i + 1

    (done,) = b.while_loop(lambda i: i < n, body, [0])
    with b.control(done):
        after = v.read()
    assert run_builder(b, [after], {"n": 3}, [b.initializer()]) == [28.0]


def test_an_effect_that_nobody_reads_runs_all_the_same() -> None:
    b, n, v = counting()

    def branch() -> Any:
        v.assign_add(5.0)
        return n

    out = b.cond(n > 0, branch, lambda: n * 2)
    assert out.op.node.op == "If"
    with b.control(out):
        after = v.read()
    assert run_builder(b, [out, after], {"n": 1}, [b.initializer()]) == [1, 5.0]


def test_reads_do_not_wait_for_each_other() -> None:
    b, _, v = counting()

    @b.function
    def reads() -> Any:
        first, second = v.read(), v.read()
        v.assign(first + second)
        return v.read()

    reads()
    nodes = {node.name: node for node in b.graph.functions["reads"].definition.nodes}
    waits = {
        name: [text for text in node.inputs if text.startswith("^")] for name, node in nodes.items()
    }
    assert waits["v/Read"] == waits["v/Read_1"] == []
    assert waits["v/Assign"] == ["^v/Read", "^v/Read_1"]
    assert waits["v/Read_2"] == ["^v/Assign"]
    returned = list(b.graph.functions["reads"].definition.control_returns)
    assert returned == ["v/Assign", "v/Read", "v/Read_1", "v/Read_2"]


def test_what_waits_outside_holds_back_the_whole_conditional() -> None:
    b, n, v = counting()
    step = v.assign_add(1.0)
    with b.control(step):
        out = b.cond(n > 0, lambda: v + 0.0, lambda: v * 0.0)
    assert [node.name for node in out.op.node.controls] == [step.name]
    assert run_builder(b, [out], {"n": 1}, [b.initializer()]) == [1.0]


def test_a_control_edge_from_outside_holds_back_the_node_that_runs_the_body() -> None:
    b, n, v = counting()
    step = v.assign_add(1.0)

    def inner() -> Any:
        with b.control(step):
            return v.read()

    out = b.cond(n > 0, lambda: b.cond(n > 1, inner, lambda: 0.0), lambda: 0.0)
    assert [node.name for node in out.op.node.controls] == [step.name]
    assert run_builder(b, [out], {"n": 2}, [b.initializer()]) == [1.0]


@pytest.mark.parametrize("n", [0, 2])
def test_prints_keep_their_order(n: int, capfd: pytest.CaptureFixture[str]) -> None:
    b, limit, _ = counting()

    def body(i: Any) -> Any:
        b.PrintV2(b.AsString(i))
        b.PrintV2("and")
        return i + 1

    (done,) = b.while_loop(lambda i: i < limit, body, [0])
    run_builder(b, [done], {"n": n})
    assert capfd.readouterr().err.split() == [word for i in range(n) for word in (str(i), "and")]


def test_a_variable_is_made_outside() -> None:
    b, n, _ = counting()
    error = rejection(lambda: b.cond(n > 0, lambda: b.variable(1, name="w").read(), lambda: 1))
    assert error.message == "the variable 'w' is created in the then branch of 'cond'"
    error = rejection(lambda: b.cond(n > 0, lambda: b.placeholder("w", "int32"), lambda: 1))
    assert error.message.startswith("the placeholder 'w' is created in the then branch of 'cond'")


def test_what_is_written_after_a_body_does_not_come_before_a_read_in_it() -> None:
    b, n, v = counting()

    @b.function
    def change() -> Any:
        before = b.cond(n > 0, lambda: v * 1.0, lambda: 0.0)
        v.assign_add(5.0)
        return before, v.read()

    assert run_builder(b, list(change()), {"n": 1}, [b.initializer()]) == [0.0, 5.0]
    assert list(b.graph.functions["cond_then"].definition.control_returns) == ["v/Read"]
