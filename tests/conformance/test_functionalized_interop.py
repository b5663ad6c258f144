"""TensorFlow runs functionalized graphs, and computes what it recorded for the lowered ones."""

from __future__ import annotations

from typing import Any

import pytest

import cfgraph
from cfgraph.ir.graph import Graph
from tests.conformance import recorded
from tests.conformance.test_functionalized import has_primitives
from tests.passes.tf_sessions import feeds_of, session_of

pytestmark = [pytest.mark.interop, pytest.mark.slow]

pytest.importorskip("tensorflow", reason="needs the extra `interop`")

CASES = recorded.parameters(
    "session", lambda case: not any(run.get("error") for run in case["runs"])
)


def disagreement(case: dict[str, Any], graph: Graph) -> str:
    """The first difference of the runs of a case, all on one graph; empty if there is none."""
    with session_of(graph) as session:
        for run in case["runs"]:
            if any(name.partition(":")[0] not in graph for name in run["fetches"]):
                continue
            values = dict(
                zip(run["fetches"], session.run(run["fetches"], feeds_of(run)), strict=True)
            )
            for name, key in (run.get("expected") or {}).items():
                random = "random" in case["tags"]
                failure = recorded.compare(
                    values[name], recorded.array(key), shapes_only=random, loosen=10
                )
                if failure:
                    return f"{name}: {failure}"
    return ""


@pytest.mark.parametrize("case", CASES)
def test_tensorflow_computes_the_recorded_values(case: dict[str, Any]) -> None:
    graph = recorded.graph(case["runs"][-1]["graph"])
    if not has_primitives(graph):
        pytest.skip("the graph holds no primitives")
    names = [name for run in case["runs"] for name in run["fetches"]]
    names = [name for name in names if name.partition(":")[0] in graph]
    cfgraph.functionalize(graph, [name if ":" in name else f"^{name}" for name in names])
    failure = disagreement(case, graph)
    assert not failure, failure
