"""Every recorded session comes out as TensorFlow's runtime had it, in either form."""

from __future__ import annotations

from typing import Any

import pytest

from cfgraph.ir.graph import Graph
from cfgraph.passes.lower.lower import lower
from tests.conformance import recorded
from tests.sampled import sampled

FUNCTIONAL = recorded.parameters("session", recorded.is_functional)
PRIMITIVE = recorded.parameters("session", lambda case: not recorded.is_functional(case))


def _lowered(graph: Graph) -> Graph:
    lower(graph)
    return graph


@pytest.mark.parametrize("case", PRIMITIVE)
def test_a_session_in_primitive_form_agrees(case: dict[str, Any]) -> None:
    failure = recorded.disagreement(case)
    assert not failure, failure


@pytest.mark.parametrize("case", FUNCTIONAL)
def test_a_session_in_functional_form_agrees(case: dict[str, Any]) -> None:
    failure = recorded.disagreement(case)
    assert not failure, failure


@pytest.mark.parametrize("case", sampled(FUNCTIONAL, 9))
def test_a_session_agrees_after_lowering_its_whole_graph(case: dict[str, Any]) -> None:
    failure = recorded.disagreement(case, _lowered)
    assert not failure, failure


@pytest.mark.parametrize("case", sampled(PRIMITIVE + FUNCTIONAL, 18))
def test_a_session_agrees_under_a_random_schedule(case: dict[str, Any]) -> None:
    seed = sum(case["id"].encode())
    failure = recorded.disagreement(case, schedule="random", schedule_seed=seed)
    assert not failure, failure
