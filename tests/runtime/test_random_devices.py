"""Random programs on random devices under random schedules, against direct evaluation."""

from __future__ import annotations

import pytest

import cfgraph
from cfgraph.ir.library import copy_graph
from cfgraph.passes.partition.partition import partition
from cfgraph.passes.place.place import place
from cfgraph.runtime.cost_model import CostModel
from tests.passes.random_programs import random_programs
from tests.sampled import sampled


@pytest.mark.parametrize("first", sampled(range(0, 120, 15), 8))
def test_no_placement_and_no_schedule_changes_a_value_or_hangs(first: int) -> None:
    for seed, program in random_programs(range(first, first + 15)):
        graph = copy_graph(program.graph)
        place(graph, devices="cpu:0-2", seed=seed)
        partition(graph)
        for how in (
            {"schedule": "fifo"},
            {"schedule": "random", "schedule_seed": seed},
            {"costs": CostModel()},
        ):
            session = cfgraph.Session(graph, **how)
            session.run(targets=["init"])
            values = session.run(program.fetches, program.feeds, program.targets, timeout=60)
            assert [int(value) for value in values] == program.expected, seed
            assert session.run(["memory:0"]) == [program.memory], seed


@pytest.mark.parametrize("first", sampled(range(0, 40, 20), 2))
def test_a_session_on_several_devices_places_and_partitions_what_it_runs(first: int) -> None:
    for seed, program in random_programs(range(first, first + 20)):
        session = cfgraph.Session(program.graph, devices="cpu:0,cpu:1,gpu:0")
        session.run(targets=["init"])
        values = session.run(program.fetches, program.feeds, program.targets, timeout=60)
        assert [int(value) for value in values] == program.expected, seed
        assert session.run(["memory:0"]) == [program.memory], seed
