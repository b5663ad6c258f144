"""Recorded sessions have the same values and errors under both engines, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest

from cfgraph.runtime.engine.step import State
from tests.conformance import recorded
from tests.runtime.compiled.agreement import Pair
from tests.sampled import sampled


def _cases() -> list[Any]:
    cases = [
        case
        for case in recorded.cases()
        if case["kind"] == "session" and "host" not in case["tags"]
    ]
    return [pytest.param(case, id=case["id"]) for case in cases]


@pytest.mark.parametrize("case", sampled(_cases(), 5))
def test_both_engines_agree(case: dict[str, Any]) -> None:
    states: dict[str, State] = {}
    for run in case["runs"]:
        feeds = {name: recorded.array(key) for name, key in run["feeds"].items()}
        tensors = [name for name in run["fetches"] if ":" in name]
        targets = [name for name in run["fetches"] if ":" not in name]
        name = run["graph"]
        pair = Pair(lambda name=name: recorded.graph(name), states, soft_placement=True)
        pair.run(tensors, feeds, targets, timeout=60)
