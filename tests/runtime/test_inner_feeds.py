"""Feeds of nodes inside of loops and functions: one value in every iteration and call."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.build.builder import Builder
from tests.runtime.test_taps import LOOP

ENGINES: list[dict[str, Any]] = [
    {"engine": "compiled"},
    {"engine": "tokens"},
    {"devices": "cpu:0-1"},
    {"costs": cfgraph.CostModel()},
]
CELL = "sequential_1/lstm_1/while/lstm_cell_1/mul_2"


def loop_graph(tmp_path: Path) -> cfgraph.Graph:
    path = tmp_path / "loop.graph"
    path.write_text(LOOP)
    return cfgraph.load(path)


@pytest.mark.parametrize("options", ENGINES, ids=str)
def test_a_value_fed_in_a_loop_is_there_in_every_iteration(
    options: dict[str, Any], tmp_path: Path
) -> None:
    session = cfgraph.Session(loop_graph(tmp_path), **options)
    assert session.run("exit", {"n": 7, "one": 3}) == [9]  # 0, 3, 6, 9
    assert session.run("exit", {"n": 7}) == [7]


def test_a_node_fed_in_a_branch_that_is_not_taken_stays_dead(tmp_path: Path) -> None:
    session, taps = cfgraph.Session(loop_graph(tmp_path)), cfgraph.Taps("either")
    session.run("exit", {"n": 4, "odd": 70}, ["either"], taps=taps)
    assert taps["either"].values == [0, 70, -2, 70]


@pytest.mark.parametrize("options", ENGINES, ids=str)
@pytest.mark.parametrize("name", ["cond/then/Add", "cond_true_572/Add", "cond/then/Add:0"])
def test_a_fed_branch_of_a_function_decides_as_before(
    name: str, options: dict[str, Any], fixtures: Path
) -> None:
    session = cfgraph.Session(cfgraph.load(fixtures / "graphs/cond_functional.pb"), **options)
    taken = session.run("out", {"x": 1.0, "y": 2.0, name: 100.0})
    other = session.run("out", {"x": 3.0, "y": 2.0, name: 100.0})
    assert (taken, other) == ([100.0], [4.0])  # x < y: Add, else y squared


def test_what_only_a_fed_node_needs_is_not_needed(fixtures: Path) -> None:
    session = cfgraph.Session(cfgraph.load(fixtures / "graphs/cond_functional.pb"))
    with pytest.raises(cfgraph.ExecutionError, match="placeholder tensor 'z'"):
        session.run("out", {"x": 1.0, "y": 2.0})
    assert session.run("out", {"x": 1.0, "y": 2.0, "cond/then/Add": 7.0}) == [7.0]


@pytest.mark.parametrize("options", ENGINES[:2], ids=str)
def test_a_loop_of_a_function_that_a_function_calls_is_fed(
    options: dict[str, Any], fixtures: Path, tmp_path: Path
) -> None:
    shutil.unpack_archive(fixtures / "verdicts" / "lstm.zip", tmp_path)
    graph = cfgraph.load(tmp_path / "lstm")
    session = cfgraph.Session(graph, state=cfgraph.restore(tmp_path / "lstm", graph), **options)
    call = "StatefulPartitionedCall_1/StatefulPartitionedCall/sequential_1/lstm_1/while/body"
    feeds = {"serving_default_keras_tensor": np.ones((1, 6, 4), np.float32)}
    outputs = [
        session.run(
            "StatefulPartitionedCall_1", {**feeds, name: np.full((1, 8), value, np.float32)}
        )
        for value in (0, 0.5)
        for name in (f"{call}/{CELL}", f"sequential_1_lstm_1_while_body_620/{CELL}")
    ]
    np.testing.assert_array_equal(outputs[0], np.zeros((1, 1, 2)))  # the bias alone
    np.testing.assert_array_equal(outputs[0], outputs[1])
    np.testing.assert_array_equal(outputs[2], outputs[3])
    assert np.abs(outputs[2]).min() > 0


def test_an_inner_loop_is_fed_in_each_outer_iteration(fixtures: Path) -> None:
    for engine in ("compiled", "tokens"):
        session = cfgraph.Session(cfgraph.load(fixtures / "graphs/nested.pb"), engine=engine)
        assert session.run("sum", {"while/while/add_1/y": np.float32(2)}) == [20000]


@pytest.mark.parametrize("engine", ["compiled", "tokens"])
def test_a_fed_value_equals_a_constant_in_its_place(engine: str) -> None:
    def graph(fixed: bool) -> cfgraph.Graph:
        b = Builder()
        n = b.placeholder("n", "int32", [])

        def body(i: Any, total: Any) -> Any:
            step = b.cond(b.Greater(i, b.const(2)), lambda: b.Square(i, name="squared"), lambda: i)
            extra = b.const(5, name="extra") if fixed else b.Mul(step, i, name="extra")
            return i + 1, total + extra + step

        _, total = b.while_loop(lambda i, total: i < n, body, (0, 0))
        b.Identity(total, name="total")
        return b.graph

    free, fixed = graph(fixed=False), graph(fixed=True)
    (inner,) = [
        f"{name}/extra"
        for name, function in free.functions.items()
        for node in function.definition.nodes
        if node.name == "extra"
    ]
    for count in (0, 1, 6):
        fed = cfgraph.Session(free, engine=engine).run("total", {"n": count, inner: 5})
        assert fed == cfgraph.Session(fixed, engine=engine).run("total", {"n": count})


def counted(b: Builder, start: Any, end: Any = 3) -> Any:
    return b.while_loop(lambda i: i < end, lambda i: i + 1, start)


def after_a_loop(b: Builder, n: Any, extra: Any) -> Any:
    return b.function(lambda x: extra(counted(b, x)) + x, name="called")(n)


def after_a_loop_in_a_branch(b: Builder, n: Any, extra: Any) -> Any:
    return b.cond(n > 1, lambda: extra(counted(b, n)) + n, lambda: n)


def after_a_loop_in_a_loop(b: Builder, n: Any, extra: Any) -> Any:
    return b.while_loop(lambda i: i < 9, lambda i: extra(counted(b, i)) + i, n)


def after_loops_in_both_calls(b: Builder, n: Any, extra: Any) -> Any:
    called = b.function(lambda x: extra(counted(b, x)) + x, name="called")
    return called(b.cond(n > 1, lambda: called(n), lambda: n))


def after_a_conditional(b: Builder, n: Any, extra: Any) -> Any:
    def called(x: Any) -> Any:
        return extra(b.cond(x > 1, lambda: x + 1, lambda: counted(b, x))) + x

    return b.function(called)(n)


def in_a_condition_of_a_loop(b: Builder, n: Any, extra: Any) -> Any:
    return b.while_loop(lambda i: i < extra(n), lambda i: i + 1, 0)


def in_a_condition_of_a_loop_in_a_branch(b: Builder, n: Any, extra: Any) -> Any:
    def loop() -> Any:
        return b.while_loop(lambda i: i < extra(counted(b, i)), lambda i: i + 1, n)

    return b.cond(n > 1, loop, lambda: n)


def in_a_branch_of_a_loop(b: Builder, n: Any, extra: Any) -> Any:
    is_large = n > 1

    def body(i: Any) -> Any:
        return b.cond(is_large, lambda: extra(counted(b, i)) + i, lambda: i + 1)

    return b.while_loop(lambda i: i < 9, body, n)


def after_a_loop_that_tests_the_same(b: Builder, n: Any, extra: Any) -> Any:
    is_large = n > 1

    def is_less(i: Any) -> Any:
        return i < b.cond(is_large, lambda: b.const(4), lambda: b.const(2))

    first = b.while_loop(is_less, lambda i: i + 1, 0)
    return b.cond(is_large, lambda: extra(first), lambda: n) + first


def after_controls(b: Builder, n: Any, extra: Any) -> Any:
    def called(x: Any) -> Any:
        with b.control(counted(b, x)):
            return extra(b.const(7)) + x

    return b.function(called)(n)


def without_inputs(b: Builder, n: Any, extra: Any) -> Any:
    return b.cond(n > 1, lambda: extra(b.const(7)) + n, lambda: n)


@pytest.mark.parametrize("options", ENGINES, ids=str)
@pytest.mark.parametrize(
    "place",
    [
        after_a_loop,
        after_a_loop_in_a_branch,
        after_a_loop_in_a_loop,
        after_loops_in_both_calls,
        after_a_conditional,
        in_a_condition_of_a_loop,
        in_a_condition_of_a_loop_in_a_branch,
        in_a_branch_of_a_loop,
        after_a_loop_that_tests_the_same,
        after_controls,
        without_inputs,
    ],
)
def test_a_value_fed_in_any_place_equals_a_constant(place: Any, options: dict[str, Any]) -> None:
    def graph(extra: Any) -> cfgraph.Graph:
        b = Builder()
        b.Identity(place(b, b.placeholder("n", "int32", []), lambda x: extra(b, x)), name="total")
        return b.graph

    free = graph(lambda b, x: b.Square(x, name="extra"))
    fixed = graph(lambda b, x: b.const(5))
    (inner,) = [
        f"{name}/extra"
        for name, function in free.functions.items()
        for node in function.definition.nodes
        if node.name == "extra"
    ]
    for count in (0, 4):
        fed = cfgraph.Session(free, **options).run("total", {"n": count, inner: 5})
        assert fed == cfgraph.Session(fixed, **options).run("total", {"n": count})


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("cond", "less:0"),
        ("enter", "zero:0"),
        ("next", "add:0"),
        ("merge", "switch:1"),
        ("limit", "n:0"),
    ],
)
def test_what_cannot_be_fed_names_what_can(name: str, instead: str, tmp_path: Path) -> None:
    graph = loop_graph(tmp_path)
    value = True if name == "cond" else 1
    with pytest.raises(cfgraph.UsageError, match="cannot be fed") as caught:
        cfgraph.Session(graph).run("exit", {"n": 3, name: value})
    assert instead in (caught.value.hint or "")


def test_a_handle_in_a_loop_cannot_be_fed(fixtures: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(fixtures / "verdicts" / "lstm.zip", tmp_path)
    graph = cfgraph.load(tmp_path / "lstm")
    cfgraph.lower(graph)
    scope = "StatefulPartitionedCall_1/StatefulPartitionedCall/sequential_1/lstm_1/while"
    feeds = {f"{scope}/Enter_7": np.zeros((4, 32), np.float32)}
    with pytest.raises(cfgraph.UsageError, match="resource") as caught:
        cfgraph.Session(graph).run("StatefulPartitionedCall_1", feeds)
    assert "sequential/lstm/lstm_cell/kernel_1" in (caught.value.hint or "")
