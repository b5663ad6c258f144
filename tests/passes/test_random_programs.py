"""Random structured programs compute what Python does, whatever passes, engine, and devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import cfgraph
from cfgraph.errors import Unsupported
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of
from tests.conformance.agree.ways import Requirements, Way, apply
from tests.conformance.recorded_ways import engine_options
from tests.passes.random_programs import random_program, random_programs
from tests.sampled import in_sweep

# how many programs have a way in a plain run, and in the sweep
WAYS = """
 50    300  lower fifo
 50    300  lower random
 10    150  partition fifo
 10    150  partition random
 10    150  partition simulated
 10    250  lower partition compiled
 10     50  devices=cpu:0,cpu:1,gpu:0
 10    150  devices=cpu:0-2
 10    300  optimize random
 10    300  lower optimize random
 10    600  optimize=4 random
 10    600  lower optimize=4 random
 30  10000  lower functionalize compiled
 20    100  lower functionalize tokens
 20  10000  lower functionalize=converter auto
 10    475  lower partition=cpu:0-3 workers=2
 10    475  lower partition=cpu:0-3 workers=3
"""
STEP = 10


def parameters() -> Iterator[Any]:
    """The first seed of a step in a way each."""
    for row in WAYS.strip().splitlines():
        plain, most, *stages = row.split()
        way = " ".join(stages)
        slow = in_sweep(range(int(plain), int(most), STEP))
        for first in (*range(0, int(plain), STEP), *slow):
            marks = [pytest.mark.slow] if first >= int(plain) else []
            marks += [pytest.mark.workers] if "workers" in way else []
            yield pytest.param(Way.parse(way), first, id=f"{way}-{first}", marks=marks)


@pytest.mark.parametrize(("way", "first"), [*parameters()])
def test_random_programs_compute_what_python_does(way: Way, first: int) -> None:
    seeds = range(first, first + STEP)
    found = {seed: difference(seed, way) for seed in seeds}
    assert {seed: text for seed, text in found.items() if text} == {}


def difference(seed: int, way: Way) -> str:
    """The difference of a program in a way from the program in Python, or ``."""
    program = random_program(seed)
    if seed % 2:
        # what the others need may go
        program.fetches, program.expected = program.fetches[-3:], program.expected[-3:]
    targets = (*program.targets, "init")
    run = Requirements((*program.fetches, "memory:0"), targets, tuple(program.feeds), seed)
    for stage in way.stages:
        apply(program.graph, stage, run)
    name, _, argument = way.engine.partition("=")
    try:
        return program.difference(**engine_options(name, argument, seed))
    except Unsupported as error:
        # a handle stays on its worker
        return "" if name == "workers" and "cannot leave" in error.message else str(error)


@pytest.mark.parametrize("count", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_most_regions_of_random_programs_are_functionalized(count: int) -> None:
    rejected = 0
    for seed, program in random_programs(range(count)):
        cfgraph.lower(program.graph)
        targets = [f"^{name}" for name in program.targets]
        fetches = [*program.fetches, *targets, "^init", "memory:0"]
        report = cfgraph.functionalize(program.graph, fetches)
        roles = {role_of(node) for node in program.graph}
        assert report.rejected or roles <= {None, Role.CONTROL_TRIGGER}, seed
        rejected += bool(report.rejected)
    # 17 of 10,000 programs: an inner predicate follows from outer ones that are no single Switch,
    # or an effect comes before and after a call that it is a part of
    assert rejected <= 1
