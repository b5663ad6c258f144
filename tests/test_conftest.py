"""Tests that need a GPU are not passed over when they are what was asked for."""

from __future__ import annotations

import pytest

from cfgraph.runtime.devices import card
from tests.conftest import asks_for_gpu, found_card, is_chosen


@pytest.mark.parametrize("expression", ["gpu", "gpu and not slow", "slow or gpu"])
def test_some_runs_ask_for_a_gpu(expression: str) -> None:
    assert asks_for_gpu(expression)


@pytest.mark.parametrize("expression", ["", "slow", "not gpu", "not slow and not gpu", "gpus"])
def test_most_runs_do_not(expression: str) -> None:
    assert not asks_for_gpu(expression)


@pytest.mark.parametrize(
    ("expression", "outcome"), [("gpu", pytest.fail.Exception), ("", pytest.skip.Exception)]
)
def test_a_run_that_asks_for_a_gpu_and_finds_none_fails(
    expression: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(card, "present", lambda: False)
    monkeypatch.setattr(card, "card", card.card.__wrapped__)
    with pytest.raises(outcome, match="CUDA_VISIBLE_DEVICES is empty"):
        found_card(expression)


def test_one_of_three_tests_is_about_a_third_of_them() -> None:
    names = [f"tests/test_a.py::test_b[{number}]" for number in range(300)]
    assert all(is_chosen(name, 1) for name in names)
    chosen = [name for name in names if is_chosen(name, 3)]
    assert 80 < len(chosen) < 120
    assert chosen == [name for name in reversed(names) if is_chosen(name, 3)][::-1]
