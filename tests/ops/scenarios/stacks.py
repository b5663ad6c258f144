"""Scenarios of stacks."""

from __future__ import annotations

from cfgraph.ir.dtypes import float32, int32, string
from tests.ops.scenario import Runs, Scenario, Sketch


def push_and_pop(g: Sketch) -> Runs:
    s = g("StackV2", 10, elem_type=float32)
    one = g("StackPushV2", s, [1.0, 2.0])
    two = g("StackPushV2", s, 3.0, controls=[one], swap_memory=True)
    top = g("StackPopV2", s, elem_type=float32, controls=[two])
    bottom = g("StackPopV2", s, elem_type=float32, controls=[top])
    under = g("StackPopV2", s, elem_type=float32, controls=[bottom])
    return [[one, two, top, bottom], [top], [under], [bottom]]


def limits(g: Sketch) -> Runs:
    runs: list[list[object]] = []
    for size in (0, 1, 2, -1):
        s = g("StackV2", size, elem_type=int32)
        one = g("StackPushV2", s, 1)
        two = g("StackPushV2", s, 2, controls=[one])
        runs += [[one], [two]]
    return [*runs, [g("StackV2", g.hidden([1, 2]), elem_type=int32).node]]


def closed(g: Sketch) -> Runs:
    s = g("StackV2", -1, elem_type=string)
    push = g("StackPushV2", s, "a")
    close = g("StackCloseV2", s, controls=[push])
    again = g("StackPushV2", s, "b", controls=[close])
    pop = g("StackPopV2", s, elem_type=string, controls=[close])
    return [[close.node], [again], [pop], [push]]


def another_type(g: Sketch) -> Runs:
    s = g("StackV2", -1, elem_type=int32)
    kept = g("StackPushV2", s, 1)
    return [[g("StackPushV2", s, 1.0)], [g("StackPopV2", s, elem_type=float32, controls=[kept])]]


def the_legacy_form(g: Sketch) -> Runs:
    s = g("Stack", elem_type=float32, stack_name="s")
    one = g("StackPush", s, 1.0)
    two = g("StackPush", s, [2.0], controls=[one])
    top = g("StackPop", s, elem_type=float32, controls=[two])
    close = g("StackClose", s, controls=[top])
    late = g("StackPop", s, elem_type=float32, controls=[close])
    return [[one, top], [close.node], [late]]


SCENES: list[Scenario] = [push_and_pop, limits, closed, another_type, the_legacy_form]
