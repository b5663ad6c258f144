"""Loops that cannot end, as functional nodes and as primitives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import cfgraph


def levels(cond: Callable[..., Any], body: Callable[..., Any], lowered: bool) -> list[str]:
    """The levels of the findings on a loop of two counters."""
    builder = cfgraph.Builder()
    n = builder.placeholder("n", "int32", [])
    builder.while_loop(lambda i, k: cond(builder, n, i, k), body, (1, 0))
    if lowered:
        cfgraph.lower(builder.graph)
    return [item.level for item in cfgraph.check(builder.graph).findings if item.code == "CFG226"]


def counting(i: Any, k: Any) -> Any:
    return i + 1, k


def swapping(i: Any, k: Any) -> Any:
    return k, i


@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize(
    ("cond", "body", "expected"),
    [
        (lambda b, n, i, k: k < n, counting, ["warning"]),
        (lambda b, n, i, k: b.const(True), counting, ["warning"]),
        (lambda b, n, i, k: b.const(False), counting, []),
        (lambda b, n, i, k: i < n, counting, []),
        (lambda b, n, i, k: i < n, lambda i, k: (i + 0, k + 1), ["warning"]),
        (lambda b, n, i, k: i < n, lambda i, k: (1 * (i - 0), k + 1), ["warning"]),
        (lambda b, n, i, k: i < n, lambda i, k: (i + k, k), ["warning"]),
        (lambda b, n, i, k: i < n, lambda i, k: (i * 2, k + 1), []),
        (lambda b, n, i, k: k < n, lambda i, k: (i + 1, k + i), []),
        (lambda b, n, i, k: k < n, swapping, []),
        (lambda b, n, i, k: b.RandomUniform([], dtype="float32") < 0.9, counting, []),
    ],
)
def test_a_loop_whose_predicate_no_iteration_changes_is_reported(
    cond: Any, body: Any, expected: list[str], lowered: bool
) -> None:
    assert levels(cond, body, lowered) == expected


def test_a_condition_that_reads_a_variable_may_change() -> None:
    builder = cfgraph.Builder()
    v = builder.variable(3)
    builder.while_loop(
        lambda h: builder.ReadVariableOp(h, dtype="int32") < 10, lambda h: h, v.handle
    )
    assert not [f for f in cfgraph.check(builder.graph).findings if f.code == "CFG226"]


@pytest.mark.parametrize("lowered", [False, True])
def test_the_finding_names_the_loop_and_the_variables_that_its_condition_reads(
    lowered: bool,
) -> None:
    builder = cfgraph.Builder()
    n = builder.placeholder("n", "int32", [])
    builder.while_loop(lambda i, k: i < n, lambda i, k: (i + 0, k + 1), (0, 1), name="loop")
    if lowered:
        cfgraph.lower(builder.graph)
    (finding,) = (f for f in cfgraph.check(builder.graph).findings if f.code == "CFG226")
    names = ("loop/Merge", "loop/Enter_2") if lowered else ("i", "n")
    condition = "loop/cond/Less:0" if lowered else "Less:0"
    assert finding.related == names
    assert finding.node == ("loop/LoopCond" if lowered else "loop")
    assert finding.message == (
        f"no iteration changes the condition '{condition}', which reads "
        f"'{names[0]}', '{names[1]}': once started, the loop never ends"
    )


def test_a_loop_that_a_neutral_float_may_change_is_not_reported() -> None:
    builder = cfgraph.Builder()
    builder.while_loop(lambda x: 1 / x < 0, lambda x: x + 0.0, builder.placeholder("x", "float32"))
    assert not [f for f in cfgraph.check(builder.graph).findings if f.code == "CFG226"]
