"""Every recorded session comes out as TensorFlow's runtime had it, in either form."""

from __future__ import annotations

from typing import Any

import pytest

from cfgraph.ir.graph import Graph
from cfgraph.passes.lower.lower import lower
from tests.conformance import recorded
from tests.sampled import sampled


def _cases(*, functional: bool) -> list[dict[str, Any]]:
    return [
        case
        for case in recorded.cases()
        if case["kind"] == "session"
        and "host" not in case["tags"]
        and recorded.is_functional(case) is functional
    ]


def _by_id(cases: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in cases]


def _lowered(graph: Graph) -> Graph:
    lower(graph)
    return graph


@pytest.mark.parametrize("case", _by_id(_cases(functional=False)))
def test_a_session_in_primitive_form_agrees(case: dict[str, Any]) -> None:
    failure = recorded.disagreement(case)
    assert not failure, failure


@pytest.mark.parametrize("case", _by_id(_cases(functional=True)))
def test_a_session_in_functional_form_agrees(case: dict[str, Any]) -> None:
    failure = recorded.disagreement(case)
    assert not failure, failure


@pytest.mark.parametrize("case", sampled(_by_id(_cases(functional=True)), 6))
def test_a_session_agrees_after_lowering_its_whole_graph(case: dict[str, Any]) -> None:
    failure = recorded.disagreement(case, _lowered)
    assert not failure, failure


@pytest.mark.parametrize(
    "case", sampled(_by_id(_cases(functional=False) + _cases(functional=True)), 12)
)
def test_a_session_agrees_under_a_random_schedule(case: dict[str, Any]) -> None:
    seed = sum(case["id"].encode())
    failure = recorded.disagreement(case, schedule="random", schedule_seed=seed)
    assert not failure, failure
