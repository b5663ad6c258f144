"""Random programs and graphs, placed at random and partitioned, compute the same values."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cfgraph
from cfgraph.analysis.loops.frames import frames
from cfgraph.ir import registry
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph
from cfgraph.runtime.cost_model import CostModel
from tests.analysis.random_graphs import random_graph
from tests.build.programs import FLOATS, INTEGERS
from tests.build.programs import programs as structured
from tests.build.test_programs import expected, written
from tests.passes.random_programs import random_programs
from tests.sampled import half, sampled

SCHEDULES = ("fifo", "random")
RACES = {"CFG220", "CFG222"}
STARTS = st.fixed_dictionaries(
    {name: st.integers(0, 9) for name in INTEGERS}
    | {name: st.sampled_from([-2.0, 0.0, 0.5, 3.0]) for name in FLOATS}
)


def cut(graph: Graph, seed: int, devices: str = "cpu:0-2") -> Graph:
    cfgraph.place(graph, devices=devices, seed=seed)
    cfgraph.partition(graph)
    return graph


@pytest.mark.parametrize("first", sampled(range(0, 150, 25), 6))
def test_random_programs_compute_the_same_when_partitioned_under_any_schedule(first: int) -> None:
    for seed, program in random_programs(range(first, first + 25)):
        cut(program.graph, seed)
        for schedule in SCHEDULES:
            session = cfgraph.Session(program.graph, schedule=schedule, schedule_seed=seed)
            session.run(targets=["init"])
            values = session.run(program.fetches, program.feeds, program.targets)
            assert [int(value) for value in values] == program.expected, seed
            assert session.run(["memory:0"]) == [program.memory], seed


WRITTEN = {
    "program": structured(),
    "start": STARTS,
    "seed": st.integers(0, 99),
    "schedule_seed": st.integers(0, 99),
}
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=12, deadline=None, suppress_health_check=SLOW)
@given(**WRITTEN)
def test_a_structured_program_computes_the_same_on_any_devices(
    program: tuple[Any, ...], start: dict[str, Any], seed: int, schedule_seed: int
) -> None:
    assert_agrees_on_devices(program, start, seed, schedule_seed)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, suppress_health_check=SLOW)
@given(**WRITTEN)
def test_many_structured_programs_compute_the_same_on_any_devices(
    program: tuple[Any, ...], start: dict[str, Any], seed: int, schedule_seed: int
) -> None:
    assert_agrees_on_devices(program, start, seed, schedule_seed)


def assert_agrees_on_devices(
    program: tuple[Any, ...], start: dict[str, Any], seed: int, schedule_seed: int
) -> None:
    """Compare runs under three schedules (FIFO, random, virtual time) with the program."""
    b, fetches = written(program)
    initializer = b.initializer().name
    graph = cut(b.graph, seed)
    for how in (
        {"schedule": "fifo"},
        {"schedule": "random", "schedule_seed": schedule_seed},
        {"costs": CostModel()},
    ):
        session = cfgraph.Session(graph, **how)
        session.run(targets=[initializer], feeds=start)
        values = session.run([tensor.name for tensor in fetches], start, timeout=120)
        assert [value.tolist() for value in values] == expected(program, start), how


# the graphs of the other recipes all race
@pytest.mark.parametrize("kind", ["structured", "mixed", "loops", "wild"])
@pytest.mark.parametrize("seeds", half(range(24)))
def test_random_graphs_give_the_same_values_and_dead_tokens(seeds: range, kind: str) -> None:
    compared = sum(compared_runs(seed, kind) for seed in seeds)
    assert compared > 5


def compared_runs(seed: int, kind: str) -> int:
    """Return the number of comparable runs; a graph with racing Merges has none."""
    generated = random_graph(seed, kind)
    if any(finding.code in RACES for finding in cfgraph.check(generated.graph).findings):
        return 0
    fetches, partitioned = root_tensors(generated.graph), cut(copy_graph(generated.graph), seed)
    count = 0
    for number in range(3):
        feeds = generated.feeds(random.Random(10 * seed + number))
        try:
            expected = cfgraph.Session(generated.graph).run(fetches, feeds, allow_dead=True)
        except cfgraph.ExecutionError:
            continue  # a loop that stands still: some tensor never comes
        for schedule in SCHEDULES:
            session = cfgraph.Session(partitioned, schedule=schedule, schedule_seed=seed)
            values = session.run(fetches, feeds, allow_dead=True)
            for name, actual, value in zip(fetches, values, expected, strict=True):
                assert (actual is None) == (value is None), (seed, name)
                assert actual is None or np.array_equal(actual, value), (seed, name)
            count += 1
    return count


def root_tensors(graph: Graph) -> list[str]:
    """Return all tensors outside of loops."""
    loop_frames = frames(graph)
    return [
        f"{node.name}:{port}"
        for node in graph
        if loop_frames.of_outputs[node] is loop_frames.root
        for port in range(registry.output_count(node) or 0)
    ]
