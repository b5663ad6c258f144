"""Errors for arguments that are not a graph or not fetches."""

from __future__ import annotations

from typing import Any

import pytest

import cfgraph
from cfgraph.errors import UsageError
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Graph
from cfgraph.runtime.session import Session


def test_what_is_no_graph_and_what_is_no_list_of_fetches_is_said() -> None:
    with pytest.raises(UsageError, match=r"expected a Graph, got 'g\.pb'"):
        Session("g.pb")  # type: ignore[arg-type]
    graph = Graph()
    graph.add("Placeholder", name="x", dtype=dtypes.float32)
    with pytest.raises(UsageError, match=r"fetches is a mapping") as caught:
        Session(graph).run({"value": "x:0"}, {"x": 1})
    assert caught.value.hint == "fetches=['x:0']"


def test_text_in_place_of_bytes_is_an_error() -> None:
    with pytest.raises(UsageError, match="expected bytes") as caught:
        cfgraph.loads("x = NoOp()")  # type: ignore[arg-type]
    assert caught.value.hint == "pass text.encode()"


@pytest.mark.parametrize(
    ("fetches", "feeds", "targets"),
    [
        (lambda x: x, {}, ()),
        (lambda x: [x], {}, ()),
        (lambda x: ["x"], lambda x: {x: 1}, ()),
        (lambda x: [], {}, lambda x: [x]),
    ],
)
@pytest.mark.parametrize("part", ["node", "tensor", "builder"])
def test_a_tensor_in_place_of_its_name_is_an_error(
    fetches: Any, feeds: Any, targets: Any, part: str
) -> None:
    b = cfgraph.Builder()
    tensor = b.placeholder("x", "float32", [])
    x = {"node": b.graph["x"], "tensor": b.graph.tensor("x"), "builder": tensor}[part]
    feeds, targets = (item(x) if callable(item) else item for item in (feeds, targets))
    with pytest.raises(UsageError, match=r"a name is expected, as a string, got \w+") as caught:
        Session(b.graph).run(fetches(x), feeds, targets)
    assert caught.value.hint in {"use 'x'", "use 'x:0'"}


@pytest.mark.parametrize(
    "call",
    [
        cfgraph.lower,
        cfgraph.partition,
        cfgraph.cluster,
        cfgraph.check,
        cfgraph.dumps,
        lambda graph: cfgraph.gradients(graph, "y", "x"),
        lambda graph: cfgraph.place(graph, devices="cpu:0"),
        lambda graph: cfgraph.diff(graph, graph),
    ],
)
def test_the_name_of_a_file_in_the_place_of_a_graph_is_said(call: Any) -> None:
    with pytest.raises(UsageError, match=r"expected a Graph, got 'g\.pb'") as caught:
        call("g.pb")
    assert caught.value.hint == "cfgraph.load(path) reads one from a file"
