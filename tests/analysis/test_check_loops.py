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
    builder.while_loop(lambda i, k: cond(builder, n, i, k), body, (0, 1))
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
        (lambda b, n, i, k: k < n, counting, ["note"]),
        (lambda b, n, i, k: b.const(True), counting, ["warning"]),
        (lambda b, n, i, k: b.const(False), counting, []),
        (lambda b, n, i, k: i < n, counting, []),
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
