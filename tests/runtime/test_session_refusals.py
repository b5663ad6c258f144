"""What a session is given that it cannot take is said in words, not by an error from within."""

from __future__ import annotations

import pytest

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.errors import UsageError
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Graph
from cfgraph.runtime.session import Session


def test_what_is_no_graph_and_what_is_no_list_of_fetches_is_said() -> None:
    with pytest.raises(UsageError, match=r"a session runs a Graph, not 'g\.pb'"):
        Session("g.pb")  # type: ignore[arg-type]
    graph = Graph()
    graph.add("Placeholder", name="x", dtype=dtypes.float32)
    with pytest.raises(UsageError, match=r"this is a mapping") as caught:
        Session(graph).run({"value": "x:0"}, {"x": 1})
    assert caught.value.hint == "fetches=['x:0']"
