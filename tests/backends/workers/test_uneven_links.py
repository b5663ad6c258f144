"""Values do not depend on when messages arrive, nor in which pieces."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import cfgraph
from tests.backends.workers.uneven_links import UnevenThreads
from tests.conformance import recorded
from tests.conformance.agree.ways import cut
from tests.sampled import sampled

_WORKERS = 3
_SEEDS = 50  # of a placement and an engine


def _chosen() -> list[dict[str, Any]]:
    """The cases with most nodes among those that are one run with loops or conditionals."""
    cases = [case.values[0] for case in recorded.parameters("session")]
    fitting = [
        case
        for case in cases
        if len(case["runs"]) == 1
        and {"Switch", "Merge"} <= set(case["ops"])
        and not {"random", "error"} & set(case["tags"])
        and not case["runs"][0].get("error")
        and not any("Variable" in op or "VarHandle" in op for op in case["ops"])
    ]
    fitting.sort(key=lambda case: (len(case["ops"]), case["id"]), reverse=True)
    return fitting[:20]


def _parts() -> list[Any]:
    """20 cases, 5 placements, and both engines, with 50 seeds of the links each."""
    return [
        pytest.param(case, placement, engine, id=f"{case['id']}-{placement}-{engine}")
        for placement in range(5)
        for case in _chosen()
        for engine in ("compiled", "tokens")
    ]


@pytest.mark.parametrize(("case", "placement", "engine"), sampled(_parts(), 67))
def test_values_do_not_depend_on_the_links(
    case: dict[str, Any], placement: int, engine: str
) -> None:
    (run,) = case["runs"]
    tensors, feeds, targets = recorded.run_arguments(run)
    draws = tuple(random.Random(worker) for worker in range(_WORKERS))
    graph = cut(placement, "cpu:0-3")(recorded.graph(run["graph"]))
    workers = UnevenThreads(_WORKERS, draws=draws)
    with cfgraph.Session(graph, devices="cpu:0-3", workers=workers, engine=engine) as session:
        for seed in range(_SEEDS):
            for worker, draw in enumerate(draws):
                draw.seed(f"{case['id']} {placement} {engine} {seed} {worker}")
            values = session.run(tensors, feeds, targets, timeout=60)
            have = dict(zip(tensors, values, strict=True))
            for name, key in run["expected"].items():
                difference = recorded.compare(np.asarray(have[name]), recorded.array(key))
                assert not difference, (seed, name, difference)


def test_twenty_cases_are_chosen() -> None:
    assert len(_chosen()) == 20
    assert len(_parts()) * _SEEDS == 10_000
