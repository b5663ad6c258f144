"""Liveness in runs of recorded graphs."""

from __future__ import annotations

from typing import Any

import pytest

from cfgraph.analysis.deadness.deadness import deadness
from tests.analysis.deadness_oracle import faults, seen_in
from tests.analysis.executor_run import disagreements
from tests.conformance import recorded
from tests.conformance.observed_runs import observed_runs
from tests.sampled import sampled

_COMPARED = 24  # predicates of a frame

_CASES = recorded.parameters("session")


@pytest.mark.parametrize("case", sampled(_CASES, 18))
def test_the_driver_has_the_tokens_of_the_executor_and_deadness_agrees(
    case: dict[str, Any],
) -> None:
    for observed in observed_runs(case):
        assert not disagreements(observed)
        found = deadness(observed.graph, observed.plan.nodes, observed.plan.feeds.values())
        seen = seen_in(observed.graph, found.frames, [observed.simulated])
        assert not faults(seen, found, _COMPARED)
