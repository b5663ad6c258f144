"""Loops that cannot end, as functional nodes and as primitives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import cfgraph
from tests.analysis.graph_text import findings


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


# c starts from the result of v, which doubles; the sum of v is in c
LATE = """
x = Placeholder() {dtype=float32, shape=[]}
zero = Const() {dtype=int32, value=int32[]:0}
trips = Const() {dtype=int32, value=int32[]:3}
i_first = Enter(zero) {frame_name="loop", parallel_iterations=PARALLEL}
limit = Enter(trips) {frame_name="loop", is_constant=true, parallel_iterations=PARALLEL}
v_first = Enter(x) {frame_name="loop", parallel_iterations=PARALLEL}
c_first = Enter(v_out) {frame_name="loop", parallel_iterations=PARALLEL}
i = Merge(i_first, i_next)
v = Merge(v_first, v_next)
c = Merge(c_first, c_next)
less = Less(i, limit)
cond = LoopCond(less)
i_sw = Switch(i, cond)
v_sw = Switch(v, cond)
c_sw = Switch(c, cond)
i_id = Identity(i_sw:1)
one = Const(^i_id) {dtype=int32, value=int32[]:1}
i_add = AddV2(i_id, one)
double = AddV2(v_sw:1, v_sw:1)
sum = AddV2(c_sw:1, double)
i_next = NextIteration(i_add)
v_next = NextIteration(double)
c_next = NextIteration(sum)
v_out = Exit(v_sw)
c_out = Exit(c_sw)
"""


def late(parallel: int, text: str = LATE) -> list[tuple[str, str, str | None]]:
    """Level, message, and hint of the findings on a loop one of whose Enters waits for an Exit."""
    found = findings(text.replace("PARALLEL", str(parallel)))
    return [(f.level, f.message, f.hint) for f in found if f.code == "CFG227"]


def test_a_loop_that_needs_more_iterations_in_flight_is_reported_with_their_number() -> None:
    assert late(4) == []
    ((level, message, hint),) = late(3)
    assert level == "warning"
    assert "'loop' deadlocks with parallel_iterations=3" in message
    assert "its Enter 'c_first' waits for its Exit 'v_out'" in message
    assert "set parallel_iterations to 4" in (hint or "")


def test_a_loop_with_an_unknown_number_of_iterations_in_flight_is_a_note() -> None:
    text = LATE.replace("Const() {dtype=int32, value=int32[]:3}", "Placeholder() {dtype=int32}")
    assert [level for level, _, _ in late(1, text)] == ["warning"]
    ((level, message, _),) = late(10, text)
    assert (level, "deadlocks if it runs more than 9 iterations" in message) == ("note", True)


def test_an_exit_that_waits_for_the_enter_which_waits_for_it_is_reported() -> None:
    # the second iteration of v reads the first one of c
    text = LATE.replace("double = AddV2(v_sw:1, v_sw:1)", "double = AddV2(v_sw:1, c_sw:1)")
    ((level, message, _),) = late(10, text)
    assert level == "warning"
    assert "'loop' deadlocks unless its first test ends it" in message
    assert "Exit 'v_out', which waits for the Enter" in message


def test_two_loops_one_after_the_other_are_not_reported() -> None:
    second = """
        again = Enter(v_out) {frame_name="second", parallel_iterations=1}
        end = Enter(less_out) {frame_name="second", is_constant=true, parallel_iterations=1}
        a = Merge(again, a_next)
        stop = LoopCond(end)
        a_sw = Switch(a, stop)
        a_next = NextIteration(a_sw:1)
        a_out = Exit(a_sw)
        less_out = Placeholder() {dtype=bool, shape=[]}
    """
    text = LATE.replace("Enter(v_out)", "Enter(x)").replace("PARALLEL", "1")
    assert [f for f in findings(text + second) if f.code == "CFG227"] == []
