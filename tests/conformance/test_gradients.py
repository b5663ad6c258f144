"""Every recorded gradient comes out as TensorFlow had it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.backends.workers.uneven_links import UnevenThreads
from tests.conformance import recorded
from tests.conformance import recorded_gradients as gradients
from tests.conformance.test_partitioned import GPUS, cut
from tests.sampled import in_sweep, sampled

CASES = recorded.parameters("gradient")
HOST = [
    pytest.param(case, id=case["id"])
    for case in recorded.cases()
    if case["kind"] == "gradient" and "host" in case["tags"]
]


@pytest.mark.parametrize("case", sampled(CASES, 4))
def test_a_gradient_agrees(case: dict[str, Any]) -> None:
    assert not gradients.disagreement(case)


@pytest.mark.parametrize("case", sampled(CASES[1:], 9))
def test_a_gradient_agrees_under_a_random_schedule(case: dict[str, Any]) -> None:
    seed = sum(case["id"].encode())
    assert not gradients.disagreement(case, schedule="random", schedule_seed=seed)


@pytest.mark.parametrize("case", CASES[2::16])
def test_a_gradient_on_three_devices_agrees(case: dict[str, Any]) -> None:
    seed = sum(case["id"].encode())
    options = {"schedule": ("fifo", "random")[seed % 2], "schedule_seed": seed}
    assert not gradients.disagreement(case, cut(seed), **options)


@pytest.mark.parametrize("case", sampled(CASES[2:], 18))
def test_a_gradient_on_simulated_gpus_agrees(case: dict[str, Any]) -> None:
    seed = sum(case["id"].encode())
    assert not gradients.disagreement(case, cut(seed, GPUS), memory={})


@pytest.mark.parametrize("case", CASES[3::16])
def test_a_gradient_agrees_where_loops_run_again(case: dict[str, Any]) -> None:
    assert not gradients.disagreement(case, recompute=2)


@pytest.mark.parametrize("case", sampled(CASES, 18))
def test_a_gradient_that_is_clustered_agrees(case: dict[str, Any]) -> None:
    assert not gradients.disagreement(case, jit="numpy")


@pytest.mark.slow
@pytest.mark.parametrize("case", in_sweep(CASES))
def test_a_gradient_whose_loops_are_clusters_agrees(case: dict[str, Any]) -> None:
    assert not gradients.disagreement(case, jit="numpy", regions=True)


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("case", in_sweep(CASES))
def test_a_gradient_agrees_wherever_loops_save_their_state(
    case: dict[str, Any], every: int
) -> None:
    assert not gradients.disagreement(case, cut(every), recompute=every)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("case", in_sweep(CASES))
def test_a_gradient_agrees_wherever_its_nodes_are_and_whoever_goes_first(
    case: dict[str, Any], seed: int
) -> None:
    for schedule_seed in range(3):
        options = {"schedule": "random", "schedule_seed": schedule_seed}
        assert not gradients.disagreement(case, cut(seed), **options)


@pytest.mark.parametrize("case", HOST)
def test_what_only_a_program_could_differentiate_is_refused(case: dict[str, Any]) -> None:
    failure = gradients.disagreement(case)
    assert not failure or failure.startswith("Unsupported")


def on_workers(case: dict[str, Any], workers: int) -> str:
    """The difference on workers, whose links delay and split what they carry.

    Nothing for a handle that cannot leave its own.
    """
    seed = sum(case["id"].encode())
    options = {"devices": "cpu:0-3", "workers": UnevenThreads.seeded(workers, case["id"])}
    failure = gradients.disagreement(case, cut(seed, "cpu:0-3"), **options)
    return "" if "cannot leave its worker" in failure else failure


@pytest.mark.parametrize("case", sampled([*CASES[4:], *CASES[:4]], 90))
def test_a_gradient_on_two_workers_agrees(case: dict[str, Any]) -> None:
    assert not on_workers(case, 2)


@pytest.mark.slow
@pytest.mark.parametrize("case", in_sweep(CASES))
def test_a_gradient_on_four_workers_agrees(case: dict[str, Any]) -> None:
    assert not on_workers(case, 4)
