"""Every recorded session agrees when its graph is spread at random over three devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import cfgraph
from cfgraph.ir.graph import Graph
from tests.backends.workers.uneven_links import UnevenThreads
from tests.conformance import recorded
from tests.sampled import in_sweep, sampled

CASES = recorded.parameters("session")
# a CPU, and GPUs whose memory is counted: what is not on the CPU's is copied
GPUS = "cpu:0,gpu:0,gpu:1"


def cut(seed: int, devices: str = "cpu:0-2") -> Callable[[Graph], Graph]:
    """Places at random and partitions."""

    def prepare(graph: Graph) -> Graph:
        cfgraph.place(graph, devices=devices, seed=seed)
        cfgraph.partition(graph)
        return graph

    return prepare


def assert_agrees(case: dict[str, Any], seed: int, **options: Any) -> None:
    failure = recorded.disagreement(case, cut(seed), **options)
    assert not failure, failure


@pytest.mark.parametrize("case", sampled(CASES, 18))
def test_a_session_on_three_devices_agrees(case: dict[str, Any]) -> None:
    seed = sum(case["id"].encode())
    assert_agrees(case, seed, schedule=("fifo", "random")[seed % 2], schedule_seed=seed)


@pytest.mark.parametrize("case", sampled(CASES[1:], 36))
def test_a_session_on_simulated_gpus_agrees(case: dict[str, Any]) -> None:
    seed = sum(case["id"].encode())
    failure = recorded.disagreement(case, cut(seed, GPUS), memory={})
    assert not failure, failure


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("case", in_sweep(CASES))
def test_a_session_agrees_wherever_its_nodes_are_and_whoever_goes_first(
    case: dict[str, Any], seed: int
) -> None:
    assert_agrees(case, seed)
    for schedule_seed in range(3):
        assert_agrees(case, seed, schedule="random", schedule_seed=schedule_seed)


def on_workers(case: dict[str, Any], workers: int) -> str:
    """The difference from the record on workers, whose links delay and split what they carry."""
    seed = sum(case["id"].encode())
    return recorded.disagreement(
        case,
        cut(seed, "cpu:0-3"),
        devices="cpu:0-3",
        workers=UnevenThreads.seeded(workers, case["id"]),
    )


@pytest.mark.parametrize("case", sampled([*CASES[2:], *CASES[:2]], 60))
def test_a_session_on_two_workers_agrees(case: dict[str, Any]) -> None:
    assert not on_workers(case, 2)


@pytest.mark.slow
@pytest.mark.parametrize("case", in_sweep(CASES))
def test_a_session_on_four_workers_agrees(case: dict[str, Any]) -> None:
    assert not on_workers(case, 4)
