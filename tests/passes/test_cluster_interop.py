"""TensorFlow compiles clusters of cfgraph with its own XLA and computes the same values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import Unsupported
from tests.conformance import recorded
from tests.conformance.test_clustered import clustered
from tests.passes.tf_sessions import feeds_of, session_of

pytestmark = [pytest.mark.interop, pytest.mark.slow]

pytest.importorskip("tensorflow", reason="needs the extra `interop`")

CASES = recorded.parameters("session", lambda case: "random" not in case["tags"])


@pytest.mark.parametrize("case", CASES)
def test_tensorflow_computes_the_recorded_values_with_clusters(case: dict[str, Any]) -> None:
    run, *rest = case["runs"]
    if rest or run.get("error"):
        pytest.skip("runs that share variables need one graph; errors are not compared")
    graph = recorded.graph(run["graph"])
    try:
        clustered(case)(graph)
    except Unsupported as error:
        pytest.skip(error.message)
    if not any(node.op == "XlaLaunch" for node in graph):
        pytest.skip("there are no clusters in it")
    with session_of(graph) as session:
        values = session.run(run["fetches"], feeds_of(run))
    for name, actual in zip(run["fetches"], values, strict=True):
        if ":" in name:
            expected = recorded.array(run["expected"][name])
            assert not recorded.compare(actual, expected, loosen=10), name


@pytest.mark.parametrize("name", ["lstm", "lstm_grad"])
def test_tensorflow_runs_a_clustered_lstm(fixtures: Path, name: str) -> None:
    draw = np.random.default_rng(0)
    feeds = {
        "W:0": draw.normal(size=(512, 1024)).astype(np.float32) / 20,
        "x:0": draw.normal(size=(5, 32, 256)).astype(np.float32),
    }
    graph = cfgraph.load(fixtures / "graphs" / f"{name}.pb")
    fetches = ["loss:0", "dW:0"] if "dW" in graph else ["loss:0"]
    with session_of(graph) as session:
        plain = session.run(fetches, feeds)
    cfgraph.cluster(graph)
    with session_of(graph) as session:
        values = session.run(fetches, feeds)
    for actual, expected in zip(values, plain, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
