"""What becomes functional of recorded graphs, and what a fetch of one then needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import CfgraphError
from cfgraph.ir.dtypes import NUMERIC_KINDS
from cfgraph.ir.graph import Graph
from cfgraph.ir.role import Role
from cfgraph.ir.traversal import ancestors
from cfgraph.ops.opdef.op import role_of
from cfgraph.runtime.engine.step import State
from tests.conformance import recorded
from tests.passes.functional_structure import structure
from tests.sampled import in_sweep, sampled

CASES = [case for case in recorded.cases() if "host" not in case["tags"]]
SESSIONS, GRADIENTS = map(recorded.parameters, ("session", "gradient"))
FUNCTIONAL = [pytest.param(case, id=case["id"]) for case in CASES if recorded.is_functional(case)]
# what an inlined function does not need is not lowered, or needed by nothing once it is, so that
# fewer conditionals and loops come back
PARTLY_LOWERED = (
    "testWhileCondGradMultiDevice",
    "testGradientFromInsideFunction",
    "testNestedResourceAccess",
)
# an optimized loop that keeps its form, too, but is in more regions
MORE_REGIONS = {"testNestedWhileCondWhileGrad": 2}
# graphs of which each result was fetched by itself: several cases have one
ALONE: set[str] = set()


def has_primitives(graph: Graph) -> bool:
    return any(role_of(node) in (Role.SWITCH, Role.MERGE, Role.ENTER) for node in graph)


def fetch_names(run: dict[str, Any]) -> list[str]:
    """The fetches of a run, with targets as `functionalize` takes them."""
    return [name if ":" in name else f"^{name}" for name in run["fetches"]]


def values_alone(graph: Graph, names: list[str], feeds: dict[str, Any]) -> dict[str, Any]:
    """The value of each tensor that a run can fetch by itself, while no variable has a value."""
    values = {}
    for name in names:
        present = {feed: value for feed, value in feeds.items() if feed.partition(":")[0] in graph}
        try:
            with cfgraph.Session(graph, state=State(), soft_placement=True) as session:
                (values[name],) = session.run([name], present, timeout=60)
        except CfgraphError:
            continue
    return values


@pytest.mark.slow
@pytest.mark.parametrize("case", in_sweep([*SESSIONS, *GRADIENTS]))
def test_a_result_needs_nothing_else_once_a_graph_is_functionalized_without_fetches(
    case: dict[str, Any],
) -> None:
    for run in case.get("runs") or [case]:
        if run.get("error") or run["graph"] in ALONE:
            continue
        ALONE.add(run["graph"])
        graph = recorded.graph(run["graph"])
        feeds = {name: recorded.array(key) for name, key in run["feeds"].items()}
        ends = [node for node in graph if not node.uses]
        outputs = [tensor for n in ends for tensor in n.outputs]
        names = [each.name for each in outputs if each.dtype and each.dtype.kind in NUMERIC_KINDS]
        expected = values_alone(graph, names, feeds)
        cfgraph.functionalize(graph)
        remaining = [name for name in expected if name.partition(":")[0] in graph]
        values = values_alone(graph, remaining, feeds)
        assert [name for name in remaining if name not in values] == []
        is_random = "random" in case["tags"]
        pairs = ((name, value, np.asarray(expected[name])) for name, value in values.items())
        assert [n for n, a, b in pairs if recorded.compare(a, b, shapes_only=is_random)] == []


@pytest.mark.slow
@pytest.mark.parametrize("case", in_sweep(SESSIONS))
def test_a_graph_that_was_optimized_has_no_more_regions_in_lowered_form(
    case: dict[str, Any],
) -> None:
    for run in [run for run in case["runs"] if not run.get("error")]:
        names, rejected = fetch_names(run), []
        for is_first in (False, True):
            graph = recorded.graph(run["graph"])
            cfgraph.lower(graph)
            if is_first:
                cfgraph.optimize(graph, fetches=names, feeds=[*run["feeds"]])
            rejected.append(len(cfgraph.functionalize(graph, names).rejected))
        more = next((n for name, n in MORE_REGIONS.items() if name in case["id"]), 0)
        assert rejected[1] <= rejected[0] + more


@pytest.mark.parametrize("case", sampled(FUNCTIONAL, 12))
def test_lowered_nodes_become_the_functional_nodes_that_they_were(case: dict[str, Any]) -> None:
    runs = case.get("runs") or [{"graph": case["graph"], "fetches": case["ys"]}]
    for run in runs:
        if run.get("error"):
            continue
        graph = recorded.graph(run["graph"])
        needed = set(ancestors(graph, [graph[name.partition(":")[0]] for name in run["fetches"]]))
        graph.remove(*[node for node in graph if node not in needed])
        if has_primitives(graph):
            continue
        before = structure(graph, run["fetches"])
        cfgraph.lower(graph)
        report = cfgraph.functionalize(graph, fetch_names(run))
        after = structure(graph, run["fetches"])
        assert not report.rejected
        assert not has_primitives(graph)
        if any(name in case["id"] for name in PARTLY_LOWERED):
            assert len(repr(after)) <= len(repr(before))
        else:
            assert after == before
