"""Errors of a limit name the condition of the loop, and what it read in the last iterations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import pytest

import cfgraph
from cfgraph.errors import CfgraphError
from tests.late_runs import timeout_error_at

COMPILED = MappingProxyType({"engine": "compiled"})


def run_of(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    session_options: Mapping[str, Any] = COMPILED,
) -> Callable[..., Any]:
    """The run of a loop with the variables 0 and 1.0, and n = 3 from outside."""
    builder = cfgraph.Builder()
    n = builder.placeholder("n", "int32", [])
    builder.while_loop(
        lambda i, x: cond(n, i, x), lambda i, x: body(builder, i, x), (0, 1.0), name="loop"
    )
    session = cfgraph.Session(builder.graph, **session_options)
    return partial(session.run, ["loop:1"], {"n:0": 3})


def error_of(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    session_options: Mapping[str, Any] = COMPILED,
    **limits: Any,
) -> CfgraphError:
    """The error of such a run."""
    with pytest.raises(CfgraphError) as caught:
        run_of(cond, body, session_options)(**limits)
    return caught.value


def nested(step: int) -> Callable[..., Any]:
    """A body with an inner loop up to 5, which counts in steps."""

    def body(builder: Any, i: Any, x: Any) -> Any:
        (j,) = builder.while_loop(lambda j: j < 5, lambda j: (j + step,), (0,), name="inner")
        return i - j, x

    return body


def test_a_limit_of_iterations_names_unchanged_inputs() -> None:
    error = error_of(lambda n, i, x: i < n, lambda b, i, x: (i * 1, x + 1), max_iterations=100)
    assert str(error).splitlines()[2:5] == [
        "  condition 'loop/cond/Less' of loop 'loop', in iterations 98, 99, 100, reads",
        "    'loop/Merge': 0, unchanged",
        "    'n': 3, unchanged",
    ]


@pytest.mark.parametrize("limit", [0, 1, 7])
def test_values_are_those_that_the_condition_reads_in_the_iteration(limit: int) -> None:
    error = error_of(
        lambda n, i, x: (i > -n) | (x > 0), lambda b, i, x: (i - 2, x + 1), max_iterations=limit
    )
    numbers = list(range(max(0, limit - 2), limit + 1))
    assert error.to_json()["loop"] == {
        "name": "loop",
        "condition": "loop/cond/LogicalOr",
        "iterations": numbers,
        "inputs": [
            {
                "tensor": "loop/Merge",
                "values": [str(-2 * number) for number in numbers],
                "changes": limit > 0,
            },
            {
                "tensor": "loop/Merge_1",
                "values": [str(1.0 + number) for number in numbers],
                "changes": limit > 0,
            },
            {"tensor": "n", "values": ["3"] * len(numbers), "changes": False},
        ],
    }


@pytest.mark.parametrize(("step", "loop"), [(1, "loop"), (-1, "loop/body/inner")])
@pytest.mark.parametrize("limit", ["max_iterations", "timeout"])
def test_the_loop_that_does_not_end_is_named(step: int, loop: str, limit: str) -> None:
    def is_named(error: CfgraphError) -> bool:
        # on a busy machine a loop may not advance between two looks at its stack
        return bool(error.loop and error.loop.loop == loop and error.loop.inputs[0].changes)

    loops = (lambda n, i, x: i < n), nested(step)
    if limit == "timeout":
        run = run_of(*loops)
        error: CfgraphError = timeout_error_at(lambda seconds: run(timeout=seconds), is_named)
    else:
        error = error_of(*loops, max_iterations=50)
    assert is_named(error)
    assert sorted(error.loop.iterations) == list(error.loop.iterations)


def test_a_timeout_names_the_values_near_the_deadline() -> None:
    run = run_of(lambda n, i, x: x < 2, lambda b, i, x: (i + 1, x * 1.0))
    error = timeout_error_at(
        lambda seconds: run(timeout=seconds),
        lambda error: error.loop and error.loop.iterations[0] > 10,
    )
    (read,) = error.loop.inputs
    assert (read.tensor, set(read.values), read.changes) == ("loop/Merge_1", {"1.0"}, False)


@pytest.mark.parametrize(
    "options",
    [{"engine": "tokens"}, {"devices": "cpu:0-1"}, {"memory": {}}, {"costs": cfgraph.CostModel()}],
)
def test_each_engine_names_what_the_condition_reads_as_generated_code_does(options: Any) -> None:
    loop = (lambda n, i, x: i < n), (lambda b, i, x: (i * 1, x + 1))
    error = error_of(*loop, options, max_iterations=100)
    assert error.loop == error_of(*loop, max_iterations=100).loop
    assert str(error).count("condition 'loop/cond/Less'") == 1


@pytest.mark.parametrize("engine", ["compiled", "tokens"])
def test_the_values_of_a_random_condition_are_those_of_the_failed_run(engine: str) -> None:
    text = """
shape = Const() {dtype=int32, value=int32[0]:[]}
r = RandomUniform(shape) {T=int32, dtype=float32, seed=3, seed2=5}
zero = Const() {dtype=float32, value=float32[]:0}
loop = While(zero, r) {T=(float32, float32), cond=@c, body=@b}
function c(i: float32, r: float32) -> (going: bool) {
  less = LessEqual(i, r) {T=float32}
  return going = less:z:0
}
function b(i: float32, r: float32) -> (j: float32, m: float32) {
  twice = AddV2(i, i) {T=float32}
  return j = twice:z:0
  return m = r
}
"""
    graph = cfgraph.loads(text.encode(), "graph")
    session, drawn = cfgraph.Session(graph, engine=engine), cfgraph.Session(graph)
    for _ in range(3):
        with pytest.raises(cfgraph.ExecutionError) as error:
            session.run("loop:0", max_iterations=5)
        values = error.value.loop.inputs[1].values
        assert {float(value) for value in values} == {float(drawn.run("r")[0])}


def test_a_traced_run_names_what_the_condition_reads() -> None:
    error = error_of(
        lambda n, i, x: i < n, lambda b, i, x: (i * 1, x + 1), max_iterations=100, trace=True
    )
    assert [item.tensor for item in error.loop.inputs] == ["loop/Merge", "n"]


def test_a_run_with_lasting_effects_is_not_repeated_for_an_explanation() -> None:
    builder = cfgraph.Builder()
    count = builder.variable(0, name="count")
    init, value = builder.initializer(), count.read()
    builder.while_loop(lambda: count >= 0, lambda: count.assign_add(1), [], name="loop")
    session = cfgraph.Session(builder.graph, engine="tokens")
    session.run(targets=init.name)
    with pytest.raises(cfgraph.ExecutionError, match="more than 100 iterations"):
        session.run(targets=["loop"], max_iterations=100)
    assert session.run([value.name]) == [101]


def test_clusters_of_xla_name_what_the_condition_of_the_loop_reads() -> None:
    pytest.importorskip("jax", reason="needs the extra `xla`")
    error = error_of(
        lambda n, i, x: i < n,
        lambda b, i, x: (i * 1, x + 1),
        {"engine": "xla"},
        max_iterations=100,
    )
    assert error.node == "loop/NextIteration"
    assert [item.tensor for item in error.loop.inputs] == ["loop/Merge", "n"]
