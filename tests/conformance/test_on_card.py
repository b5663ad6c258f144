"""Recorded sessions and gradients agree with nodes at random on a CPU and on gpus of one card."""

from __future__ import annotations

from typing import Any

import pytest

from cfgraph.backends.gpu.context import GpuContext
from tests.backends.gpu.stand_in import library
from tests.conformance import recorded
from tests.conformance import recorded_gradients as gradients
from tests.conformance.test_partitioned import CASES, GPUS, cut
from tests.sampled import sampled

GRADIENTS = recorded.parameters("gradient")


def agree(case: dict[str, Any], **options: Any) -> None:
    seed = sum(case["id"].encode())
    failure = recorded.disagreement(case, cut(seed, GPUS), **options)
    assert not failure, failure


def agree_in_gradients(case: dict[str, Any], **options: Any) -> None:
    seed = sum(case["id"].encode())
    assert not gradients.disagreement(case, cut(seed, GPUS), **options)


@pytest.mark.parametrize("case", sampled(CASES[2::4], 6))
def test_a_session_on_a_stand_in_card_agrees(case: dict[str, Any]) -> None:
    agree(case, gpu=GpuContext(library))


@pytest.mark.parametrize("case", sampled(GRADIENTS[3::4], 9))
def test_a_gradient_on_a_stand_in_card_agrees(case: dict[str, Any]) -> None:
    agree_in_gradients(case, gpu=GpuContext(library))


@pytest.mark.card
@pytest.mark.parametrize("case", sampled(CASES, 40))
def test_a_session_on_a_card_agrees(case: dict[str, Any], real_card: GpuContext) -> None:
    agree(case, gpu=real_card)


@pytest.mark.card
@pytest.mark.parametrize("case", sampled(GRADIENTS, 40))
def test_a_gradient_on_a_card_agrees(case: dict[str, Any], real_card: GpuContext) -> None:
    agree_in_gradients(case, gpu=real_card)
