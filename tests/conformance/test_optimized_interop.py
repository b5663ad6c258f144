"""TensorFlow computes the recorded values from optimized graphs."""

from __future__ import annotations

from typing import Any

import pytest

import cfgraph
from tests.conformance import recorded
from tests.passes.tf_sessions import feeds_of, session_of

pytestmark = [pytest.mark.interop, pytest.mark.slow]

pytest.importorskip("tensorflow", reason="needs the extra `interop`")


def is_single_run(case: dict[str, Any]) -> bool:
    """True for a session of one run that succeeds."""
    excluded = case["kind"] != "session" or {"host", "random"} & {*case["tags"]}
    return not excluded and len(case["runs"]) == 1 and not case["runs"][0].get("error")


CASES = [pytest.param(case, id=case["id"]) for case in recorded.cases() if is_single_run(case)]


@pytest.mark.parametrize("case", CASES[::3])
def test_tensorflow_agrees_on_the_optimized_graph(case: dict[str, Any]) -> None:
    (run,) = case["runs"]
    graph, names = recorded.graph(run["graph"]), list(run["fetches"])
    try:
        with session_of(graph) as session:
            session.run(names, feeds_of(run))
    except Exception as error:
        pytest.skip(f"TensorFlow does not run the recorded graph here: {str(error)[:80]}")
    cfgraph.optimize(graph, fetches=names, feeds=run["feeds"])
    with session_of(graph) as session:
        values = dict(zip(names, session.run(names, feeds_of(run)), strict=True))
    for name, key in (run.get("expected") or {}).items():
        assert not recorded.compare(values[name], recorded.array(key)), name
