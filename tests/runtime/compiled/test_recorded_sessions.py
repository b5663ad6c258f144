"""Recorded sessions have the same values and errors under both engines, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest

from cfgraph.runtime.engine.step import State
from tests.conformance import recorded
from tests.runtime.compiled.agreement import Pair
from tests.sampled import sampled


@pytest.mark.parametrize("case", sampled(recorded.parameters("session"), 10))
def test_both_engines_agree(case: dict[str, Any]) -> None:
    states: dict[str, State] = {}
    for run in case["runs"]:
        tensors, feeds, targets = recorded.run_arguments(run)
        name = run["graph"]
        pair = Pair(lambda name=name: recorded.graph(name), states, soft_placement=True)
        pair.run(tensors, feeds, targets, timeout=60)
