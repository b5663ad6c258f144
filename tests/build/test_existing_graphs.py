"""A Builder adds to a graph that exists."""

from __future__ import annotations

from pathlib import Path

import pytest

import cfgraph
from cfgraph.errors import UsageError


@pytest.fixture
def graph(fixtures: Path) -> cfgraph.Graph:
    return cfgraph.load(fixtures / "graphs" / "counter.pb")


def test_nodes_and_outputs_of_a_graph_are_tensors(graph: cfgraph.Graph) -> None:
    versions, b = graph.versions, cfgraph.Builder(graph)
    count = graph["count"]
    y = b.tensor(count) * 3 + b.Neg(count.output())
    packed = b.Pack([count, y], name="packed")
    assert b.graph is graph
    assert graph.versions == versions
    values = cfgraph.Session(graph).run([y.name, packed.name], {"n": 4})
    assert [value.tolist() for value in values] == [8, [4, 8]]


def test_a_constant_in_a_loop_waits_for_a_node_of_the_loop(graph: cfgraph.Graph) -> None:
    b, step = cfgraph.Builder(graph), graph["while/add"]
    with b.control(step):
        wider = b.AddV2(step, 1)
    graph.replace_uses(step, wider.output, except_=[wider.output.node])
    assert cfgraph.check(graph).findings == ()
    assert cfgraph.Session(graph).run(["count"], {"n": 5}) == [6]


def test_new_functions_have_names_of_their_own(fixtures: Path) -> None:
    graph = cfgraph.load(fixtures / "graphs" / "cond_functional.pb")
    for _ in range(2):
        b = cfgraph.Builder(graph)
        out = b.tensor(graph["out"])
        chosen = b.cond(b.Sum(out, []) > 0.0, lambda out=out: out, lambda out=out: -out)
    assert len(graph.functions) == 6
    x, y, z = 1.0, 2.0, 3.0
    outs = cfgraph.Session(graph).run(["out", chosen.name], {"x": x, "y": y, "z": z})
    assert outs[0] == outs[1]


def test_nodes_of_another_graph_are_refused(graph: cfgraph.Graph) -> None:
    other = cfgraph.loads(cfgraph.dumps(graph))
    with pytest.raises(UsageError, match="'count' is not in the graph of this Builder"):
        cfgraph.Builder(graph).Neg(other["count"])
