"""Every recorded gradient comes out as TensorFlow had it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance import recorded
from tests.conformance import recorded_gradients as gradients

# What does not agree, with the reason. A case that begins to agree must leave this list.
KNOWN: dict[str, str] = {
    "gradients_test_v1/FunctionGradientsTest.testFunctionGradientsWithGradFunc/grad12": "soon",
    "gradients_test_v2/FunctionGradientsTest.testFunctionGradientsWithGradFunc/grad11": "soon",
}


def _cases(*, host: bool) -> list[Any]:
    return [
        pytest.param(case, id=case["id"])
        for case in recorded.cases()
        if case["kind"] == "gradient" and ("host" in case["tags"]) is host
    ]


def _hold(case: dict[str, Any], told: str) -> None:
    if case["id"] in KNOWN:
        assert told, f"{case['id']} agrees now: take it from the list"
    else:
        assert not told


@pytest.mark.parametrize("case", _cases(host=False))
def test_a_gradient_agrees(case: dict[str, Any]) -> None:
    _hold(case, gradients.disagreement(case))


@pytest.mark.parametrize("case", _cases(host=False))
def test_a_gradient_agrees_under_a_random_schedule(case: dict[str, Any]) -> None:
    seed = sum(case["id"].encode())
    _hold(case, gradients.disagreement(case, schedule="random", schedule_seed=seed))


@pytest.mark.parametrize("case", _cases(host=True))
def test_what_only_a_program_could_differentiate_is_refused(case: dict[str, Any]) -> None:
    told = gradients.disagreement(case)
    assert not told or told.startswith("Unsupported")


def test_at_least_98_percent_agree() -> None:
    count = len(_cases(host=False))
    assert len(KNOWN) <= 0.02 * count, f"{count - len(KNOWN)} of {count} agree"
