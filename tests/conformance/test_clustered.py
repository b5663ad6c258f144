"""A clustered graph needs for each fetch what it needed before."""

from __future__ import annotations

from typing import Any

import pytest

import cfgraph
from cfgraph.analysis.effects import EffectAnalysis
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph
from cfgraph.ir.traversal import ancestors
from cfgraph.ops.opdef.op import lookup
from tests.conformance import recorded
from tests.conformance.agree.ways import Way
from tests.conformance.recorded_ways import difference
from tests.sampled import sampled


def test_a_fetch_of_a_loop_reads_no_variable_of_its_body() -> None:
    name = "rnn_cell_test_v1/RawRNNTest.testEmitDifferentStructureThanCellOutput/0"
    (case,) = [case for case in recorded.cases() if case["id"] == name]
    assert not difference(case, Way.parse("cluster*=2 compiled"))


def required(graph: Graph, members: dict[str, tuple[str, ...]], before: Graph) -> dict[str, Any]:
    """The variables, tables, checks, and effects that each node needs; clusters are opened."""
    effects, own = EffectAnalysis(), dict[str, set[Any]]()
    for node in before:
        op = lookup(node.op)
        lasting = {access.name for access in effects.accesses([node]) if access.origin is None}
        is_stack = op is not None and op.placement.swap_role
        own[node.name] = set() if is_stack else lasting
        if op is not None and op.effects.stateful and not node.output_count:
            own[node.name].add(node.name)
    found = {}
    for node in graph:
        names = [item.name for item in ancestors(graph, [node])]
        opened = {inner for name in names for inner in members.get(name, (name,))}
        found[node.name] = set().union(*(own.get(name, ()) for name in opened))
    return found


GRAPHS = [
    pytest.param(case["runs"][-1]["graph"], id=case["id"])
    for case in recorded.cases()
    if case["kind"] == "session" and {"ReadVariableOp", "VariableV2", "Assert"} & {*case["ops"]}
]


@pytest.mark.parametrize("name", sampled(GRAPHS, 12))
def test_no_fetch_needs_more_variables_and_effects_of_a_clustered_graph(name: str) -> None:
    graph = recorded.graph(name)
    cfgraph.lower(graph)
    before = required(graph, {}, graph)
    original = copy_graph(graph)
    report = cfgraph.cluster(graph)
    members = {cluster.name: cluster.nodes for cluster in report.clusters}
    after = required(graph, members, original)
    outputs = [node.name for node in original if not node.uses or node.name in report.outside]
    assert {name: before[name] for name in outputs} == {name: after[name] for name in outputs}
