"""The miscompilation of the second seed, and a rule that is stricter than necessary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.build.builder import Builder
from cfgraph.ir.graph import Graph

VALUE = np.array([1, 2], np.float32)


def mismatch() -> Graph:
    """Build a graph in which B is always live and C when p is true; S reads only B."""
    b = Builder()
    p, v = b.placeholder("p", "bool", []), b.placeholder("v", "float32", [2])
    taken = b.Switch(v, p)[1]
    live = b.Exp(v, name="B")
    b.AddV2(live, taken, name="C")
    b.Neg(live, name="S")
    return b.graph


def sides() -> Graph:
    """Build a graph in which C reads inputs of different liveness, and D reads C."""
    b = Builder()
    p, v = b.placeholder("p", "bool", []), b.placeholder("v", "float32", [2])
    total = b.AddV2(b.Identity(v), b.Switch(v, p)[1], name="C")
    b.Exp(total, name="D")
    return b.graph


def run(graph: Graph, name: str, p: bool) -> Any:
    (value,) = cfgraph.Session(graph).run([name], {"p:0": p, "v:0": VALUE}, allow_dead=True)
    return value


def clusters(graph: Graph, mode: str) -> list[set[str]]:
    return [set(cluster.nodes) for cluster in cfgraph.cluster(graph, deadness=mode).clusters]


def test_without_deadness_analysis_a_live_tensor_becomes_dead() -> None:
    graph = mismatch()
    assert any({"B", "C"} <= nodes for nodes in clusters(graph, "off"))
    assert run(mismatch(), "S:0", False) == pytest.approx(-np.exp(VALUE))
    assert run(graph, "S:0", False) is None


def test_with_deadness_analysis_liveness_is_unchanged() -> None:
    graph = mismatch()
    assert not any({"B", "C"} <= nodes for nodes in clusters(graph, "exact"))
    for p in (False, True):
        np.testing.assert_allclose(run(graph, "S:0", p), -np.exp(VALUE), rtol=1e-6)
    assert run(graph, "C:0", False) is None


def test_the_rule_of_the_seed_clusters_less_than_exact_deadness() -> None:
    assert clusters(sides(), "inputs") == []
    graph = sides()
    assert {"C", "D"} in clusters(graph, "exact")
    for p in (False, True):
        assert np.array_equal(run(graph, "D:0", p), run(sides(), "D:0", p))
