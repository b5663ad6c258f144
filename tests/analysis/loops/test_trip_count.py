from __future__ import annotations

from typing import Any

import pytest

import cfgraph
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.loops.while_loop import static_trip_count
from cfgraph.ops.shape_inference import infer_shapes

NEVER_ENDS = None


def trips_of(b: cfgraph.Builder) -> int | None:
    cfgraph.lower(b.graph)
    loop = next(frame for frame in frames(b.graph).all if frame.loop_conds)
    return static_trip_count(loop.loop_conds[0], infer_shapes(b.graph))


def counted(compare: str, start: int, limit: int, step: int, *, swapped: bool) -> int | None:
    b = cfgraph.Builder()
    end = b.const(limit)

    def going_on(i: Any) -> Any:
        return getattr(b, compare)(*((end, i) if swapped else (i, end)))

    b.Identity(b.while_loop(going_on, lambda i: b.AddV2(i, step), b.const(start)), name="y")
    return trips_of(b)


def plain(compare: str, start: int, limit: int, step: int, *, swapped: bool) -> int | None:
    sides = {"Less": "__lt__", "LessEqual": "__le__", "Greater": "__gt__", "GreaterEqual": "__ge__"}
    here = start
    for count in range(100):
        left, right = (limit, here) if swapped else (here, limit)
        if not getattr(left, sides[compare])(right):
            return count
        here += step
    return NEVER_ENDS


@pytest.mark.parametrize("compare", ["Less", "LessEqual", "Greater", "GreaterEqual"])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    ("start", "limit", "step"),
    [(0, 7, 1), (0, 7, 3), (1, 7, 3), (7, 0, -2), (0, 0, 1), (5, 2, 1), (2, 5, -1), (0, 6, 0)],
)
def test_trips_are_those_that_a_counter_takes(
    compare: str, swapped: bool, start: int, limit: int, step: int
) -> None:
    want = plain(compare, start, limit, step, swapped=swapped)
    assert counted(compare, start, limit, step, swapped=swapped) == want


def test_trips_of_two_conditions_are_the_fewer_that_are_known() -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float32", [])
    found = b.while_loop(
        lambda i, v: b.LogicalAnd(b.Less(i, 9), b.Less(v, 100.0)),
        lambda i, v: (b.AddV2(i, 1), b.Mul(v, v)),
        (b.const(0), x),
    )
    b.Identity(found[1], name="y")
    assert trips_of(b) == 9


def test_trips_of_a_limit_that_is_fed_are_unknown() -> None:
    b = cfgraph.Builder()
    limit = b.placeholder("limit", "int32", [])
    b.Identity(b.while_loop(lambda i: b.Less(i, limit), lambda i: i + 1, b.const(0)), name="y")
    assert trips_of(b) is None


def test_trips_of_a_step_that_changes_are_unknown() -> None:
    b = cfgraph.Builder()
    b.Identity(b.while_loop(lambda i: b.Less(i, 9), lambda i: b.AddV2(i, i), b.const(1)), name="y")
    assert trips_of(b) is None
