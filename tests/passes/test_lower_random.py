from __future__ import annotations

import pytest

import cfgraph
from cfgraph.passes.lower.lower import lower
from tests.passes.random_programs import random_programs
from tests.sampled import sampled


@pytest.mark.parametrize("first", sampled(range(0, 300, 50), 3))
def test_random_programs_compute_the_same_when_lowered_under_any_schedule(first: int) -> None:
    for seed, program in random_programs(range(first, first + 50)):
        lower(program.graph)
        for schedule in ("fifo", "random"):
            session = cfgraph.Session(program.graph, schedule=schedule, schedule_seed=seed)
            session.run(targets=["init"])
            values = session.run(program.fetches, program.feeds, program.targets)
            assert [int(value) for value in values] == program.expected, seed
            assert session.run(["memory:0"]) == [program.memory], seed
