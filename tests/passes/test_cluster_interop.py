"""TensorFlow compiles clusters, and functionalized loops and conditionals, to the same values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from tests.passes.tf_sessions import session_of

pytestmark = [pytest.mark.interop, pytest.mark.slow]

pytest.importorskip("tensorflow", reason="needs the extra `interop`")


def lstm() -> dict[str, Any]:
    """Return the feeds of an LSTM."""
    draw = np.random.default_rng(0)
    return {
        "W:0": draw.normal(size=(512, 1024)).astype(np.float32) / 20,
        "x:0": draw.normal(size=(5, 32, 256)).astype(np.float32),
    }


CASES = {
    "counter": (["count:0"], dict[str, Any]),
    "nested": (["sum:0"], dict[str, Any]),
    "while_functional": (["out:0"], lambda: {"n:0": np.int32(10)}),
    "cond_functional": (
        ["out:0"],
        lambda: {"x:0": np.float32(1), "y:0": np.float32(2), "z:0": np.float32(3)},
    ),
    "lstm": (["loss:0"], lstm),
    "lstm_grad": (["loss:0", "dW:0"], lstm),
}


@pytest.mark.parametrize(
    ("name", "regions"), [*((name, True) for name in CASES), ("lstm", False), ("lstm_grad", False)]
)
def test_tensorflow_runs_clusters(fixtures: Path, name: str, regions: bool) -> None:
    fetches, feeds = CASES[name]
    graph = cfgraph.load(fixtures / "graphs" / f"{name}.pb")
    with session_of(graph) as session:
        plain = session.run(fetches, feeds())
    report = cfgraph.cluster(graph, regions=regions)
    assert all(region.replacement is not None for region in report.regions)
    assert any(node.op in ("Merge", "Switch", "Enter") for node in graph) is not regions
    with session_of(graph) as session:
        values = session.run(fetches, feeds())
    for actual, expected in zip(values, plain, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
