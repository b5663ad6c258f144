"""Loops one of whose Enters waits for an Exit of the same loop keep their values in each pass."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import cfgraph
from tests.analysis.graph_text import graph
from tests.sampled import sampled

COUNTER = """
x = Placeholder() {dtype=float32, shape=[]}
zero = Const() {dtype=int32, value=int32[]:0}
trips = Const() {dtype=int32, value=int32[]:3}
i_first = Enter(zero) {frame_name="loop"}
limit = Enter(trips) {frame_name="loop", is_constant=true}
i = Merge(i_first, i_next)
less = Less(i, limit)
cond = LoopCond(less)
i_sw = Switch(i, cond)
i_id = Identity(i_sw:1)
one = Const(^i_id) {dtype=int32, value=int32[]:1}
i_add = AddV2(i_id, one)
i_next = NextIteration(i_add)
half = Const(^i_id) {dtype=float32, value=float32[]:0.5}
two = Const(^i_id) {dtype=int32, value=int32[]:2}
none = Const(^i_id) {dtype=int32, value=int32[]:0}
rest = FloorMod(i_id, two)
odd = Greater(rest, none)
"""
VARIABLE = """
NAME_first = Enter(NAME_start) {frame_name="loop"}
NAME = Merge(NAME_first, NAME_next)
NAME_sw = Switch(NAME, cond)
NAME_exit = Exit(NAME_sw)
NAME_out = Identity(NAME_exit)
"""
CONDITIONAL = """
NAME_s = Switch(FIRST, odd)
NAME_t = Switch(SECOND, odd)
NAME_n = Neg(NAME_t:1)
NAME_h = Tanh(NAME_s)
NAME = Merge(NAME_h, NAME_n)
"""
INNER = """
NAME_i_first = Enter(none) {frame_name="NAME"}
NAME_limit = Enter(two) {frame_name="NAME", is_constant=true}
NAME_p_first = Enter(FIRST) {frame_name="NAME"}
NAME_q_first = Enter(SECOND) {frame_name="NAME"}
NAME_i = Merge(NAME_i_first, NAME_i_next)
NAME_p = Merge(NAME_p_first, NAME_p_next)
NAME_q = Merge(NAME_q_first, NAME_q_next)
NAME_less = Less(NAME_i, NAME_limit)
NAME_cond = LoopCond(NAME_less)
NAME_i_sw = Switch(NAME_i, NAME_cond)
NAME_p_sw = Switch(NAME_p, NAME_cond)
NAME_q_sw = Switch(NAME_q, NAME_cond)
NAME_i_id = Identity(NAME_i_sw:1)
NAME_one = Const(^NAME_i_id) {dtype=int32, value=int32[]:1}
NAME_i_add = AddV2(NAME_i_id, NAME_one)
NAME_i_next = NextIteration(NAME_i_add)
NAME_p_tanh = Tanh(NAME_p_sw:1)
NAME_p_neg = Neg(NAME_p_tanh)
NAME_p_next = NextIteration(NAME_p_neg)
NAME_q_neg = Neg(NAME_q_sw:1)
NAME_q_tanh = Tanh(NAME_q_neg)
NAME_q_next = NextIteration(NAME_q_tanh)
NAME = Exit(NAME_p_sw)
NAME_q_exit = Exit(NAME_q_sw)
"""
OPERATIONS = (
    "NAME = Neg(FIRST)",
    "NAME = Mul(FIRST, half)",
    "NAME = AddV2(FIRST, SECOND)",
    "NAME = Tanh(FIRST)",
    CONDITIONAL,
    INNER,
)
PASSES: dict[str, Callable[[cfgraph.Graph, list[str]], Any]] = {
    "cluster": lambda program, _: cfgraph.cluster(program),
    "cluster the fetched": lambda program, fetches: cfgraph.cluster(program, fetches=fetches),
    "cluster by inputs": lambda program, _: cfgraph.cluster(program, deadness="inputs"),
    "cluster regions": lambda program, _: cfgraph.cluster(program, regions=True),
    "functionalize": lambda program, _: cfgraph.functionalize(program),
    "functionalize the fetched": cfgraph.functionalize,
    "optimize": lambda program, fetches: cfgraph.optimize(program, fetches=fetches),
}


def filled(text: str, **names: str) -> str:
    for key, name in names.items():
        text = text.replace(key, name)
    return text


def late_loop(rng: random.Random) -> tuple[str, list[str]]:
    """A loop, and its results. A variable of level n starts from an Exit of one of level n-1, and
    reads, but for the second one of an inner loop, only variables up to its own level.
    """
    levels: dict[str, int] = {"a": 0, "b": 0}
    starts = ["a_start = Neg(x)", "b_start = Identity(x)"]
    for name in ("c", "d", "e")[: rng.randint(1, 3)]:
        source = rng.choice([*levels])
        form = rng.choice(["Neg(SOURCE)", "Const(^SOURCE) {dtype=float32, value=float32[]:0.25}"])
        starts.append(f"{name}_start = {form.replace('SOURCE', f'{source}_out')}")
        levels[name] = levels[source] + 1
    body = [step for name in levels for step in _body(rng, name, levels)]
    variables = [filled(VARIABLE, NAME=name) for name in levels]
    return "\n".join([COUNTER, *starts, *variables, *body]), [f"{name}_out" for name in levels]


def _body(rng: random.Random, name: str, levels: dict[str, int]) -> Iterator[str]:
    readable = [f"{other}_sw:1" for other in levels if levels[other] <= levels[name]]
    value = rng.choice(readable)
    for step in range(rng.randint(1, 4)):
        form, made = rng.choice(OPERATIONS), f"{name}_{step}"
        # an inner loop runs its second variable in the same frame, and nothing reads it
        second = [f"{other}_sw:1" for other in levels] if form is INNER else readable
        yield filled(form, NAME=made, FIRST=value, SECOND=rng.choice(second))
        value = made
    yield f"{name}_next = NextIteration({value})"


def outcome(program: cfgraph.Graph, fetches: list[str], engine: str = "auto") -> list[float]:
    with cfgraph.Session(program, engine=engine) as session:
        return [float(value) for value in session.run(fetches, {"x": 0.7})]


@pytest.mark.parametrize("seed", sampled(range(12), 4))
@pytest.mark.parametrize("name", PASSES)
def test_a_pass_keeps_the_values_of_a_loop_that_waits_for_its_own_exits(
    name: str, seed: int
) -> None:
    text, fetches = late_loop(random.Random(seed))
    program = graph(text)
    expected = outcome(program, fetches, "tokens")
    PASSES[name](program, fetches)
    assert outcome(program, fetches) == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_a_conditional_of_a_loop_that_waits_for_itself_keeps_its_form() -> None:
    # iteration 0 takes the branch that does not wait for c, which starts from the result of a
    body = [
        "c_start = Neg(a_out)",
        "a_start = Neg(x)",
        filled(CONDITIONAL, NAME="m", FIRST="a_sw:1", SECOND="c_sw:1"),
    ]
    body += ["a_next = NextIteration(m)", "c_next = NextIteration(c_sw:1)"]
    variables = [filled(VARIABLE, NAME=name) for name in ("a", "c")]
    text = "\n".join([COUNTER.replace("int32[]:3", "int32[]:1"), *variables, *body])
    program = graph(text)
    expected = outcome(program, ["a_out", "c_out"], "tokens")
    report = cfgraph.functionalize(program)
    assert {region.name: region.code for region in report.regions}["m"] == "CFG609"
    assert outcome(program, ["a_out", "c_out"]) == pytest.approx(expected)
