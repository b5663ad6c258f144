"""Every recorded session comes out as TensorFlow's runtime had it, in either form."""

from __future__ import annotations

from typing import Any

import pytest

from cfgraph.ir.graph import Graph
from cfgraph.passes.lower.lower import lower
from tests.conformance import recorded
from tests.sampled import sampled

# What does not agree, with the reason. A case that begins to agree must leave this list.
KNOWN: dict[str, str] = {}


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


def _hold(case: dict[str, Any], told: str) -> None:
    if case["id"] in KNOWN:
        assert told, f"{case['id']} agrees now: take it from the list"
    else:
        assert not told


def _lowered(graph: Graph) -> Graph:
    lower(graph)
    return graph


@pytest.mark.parametrize("case", _by_id(_cases(functional=False)))
def test_a_session_in_primitive_form_agrees(case: dict[str, Any]) -> None:
    _hold(case, recorded.disagreement(case))


@pytest.mark.parametrize("case", _by_id(_cases(functional=True)))
def test_a_session_in_functional_form_agrees(case: dict[str, Any]) -> None:
    _hold(case, recorded.disagreement(case))


@pytest.mark.parametrize("case", sampled(_by_id(_cases(functional=True)), 3))
def test_a_session_agrees_after_lowering_its_whole_graph(case: dict[str, Any]) -> None:
    _hold(case, recorded.disagreement(case, _lowered))


@pytest.mark.parametrize(
    "case", sampled(_by_id(_cases(functional=False) + _cases(functional=True)), 3)
)
def test_a_session_agrees_under_a_random_schedule(case: dict[str, Any]) -> None:
    seed = sum(case["id"].encode())
    _hold(case, recorded.disagreement(case, schedule="random", schedule_seed=seed))


@pytest.mark.parametrize("functional", [False, True])
def test_at_least_98_percent_agree(functional: bool) -> None:
    cases = {case["id"] for case in _cases(functional=functional)}
    known = cases & KNOWN.keys()
    assert len(known) <= 0.02 * len(cases), f"{len(cases) - len(known)} of {len(cases)} agree"


def test_all_that_is_known_to_disagree_is_recorded() -> None:
    assert {case["id"] for case in recorded.cases()} >= KNOWN.keys()
