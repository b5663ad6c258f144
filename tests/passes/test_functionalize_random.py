"""Random structured programs, lowered and functionalized, compute what Python does."""

from __future__ import annotations

import pytest

import cfgraph
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of
from tests.passes.random_programs import RandomProgram, random_program, random_programs
from tests.sampled import half, in_sweep

STEP = 100
# an effect of a loop before a Merge of one input; effects that a Switch in a decided branch waits
# for; an effect that never runs
ORDERS = (7499, 4330, 4435, 4674)


def check(seeds: range, **options: str) -> None:
    rejected = sum(
        has_rejected(seed, program, **options) for seed, program in random_programs(seeds)
    )
    # 17 of 10,000 programs: an inner predicate follows from outer ones that are no single Switch,
    # or an effect comes before and after a call that it is a part of
    assert rejected <= len(seeds) // 20


def has_rejected(
    seed: int, program: RandomProgram, *, target: str = "tensorflow", **options: str
) -> bool:
    """Compare the values of a program, and say if a region keeps its form."""
    graph = program.graph
    cfgraph.lower(graph)
    targets = [f"^{name}" for name in program.targets]
    fetches = [*program.fetches, *targets, "^init", "memory:0"]
    report = cfgraph.functionalize(graph, fetches, target=target)
    primitives = [node.name for node in graph if role_of(node) not in (None, Role.CONTROL_TRIGGER)]
    assert not primitives or report.rejected, seed
    session = cfgraph.Session(graph, **options)
    session.run(targets=["init"])
    values = session.run(program.fetches, program.feeds, program.targets)
    assert [int(value) for value in values] == program.expected, seed
    assert session.run(["memory:0"]) == [program.memory], seed
    return bool(report.rejected)


@pytest.mark.parametrize("seed", ORDERS)
def test_effects_keep_their_order(seed: int) -> None:
    has_rejected(seed, random_program(seed))


@pytest.mark.parametrize("engine", ["compiled", "tokens"])
@pytest.mark.parametrize("seeds", half(range(STEP)))
def test_random_programs_compute_the_same_when_functionalized(seeds: range, engine: str) -> None:
    check(seeds, engine=engine)


def test_random_programs_compute_the_same_in_the_form_of_converters() -> None:
    check(range(STEP // 4), target="converter")


@pytest.mark.slow
@pytest.mark.parametrize("first", in_sweep(range(0, 10_000, STEP)))
def test_more_random_programs_compute_the_same_when_functionalized(first: int) -> None:
    check(range(first, first + STEP), engine="compiled")
    check(range(first, first + STEP), target="converter")
