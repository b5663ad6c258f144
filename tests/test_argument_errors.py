"""Errors for arguments that are not a graph or not fetches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import cfgraph
from cfgraph.errors import UsageError
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Graph
from cfgraph.runtime.engine.step import State
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
    with pytest.raises(UsageError, match="the graph is a NoneType, expected bytes"):
        cfgraph.loads(None)  # type: ignore[arg-type]


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


NAMED: dict[str, Callable[[Graph, Any], object]] = {
    "tensor": lambda graph, name: graph.tensor(name),
    "node": lambda graph, name: graph[name],
    "ys": lambda graph, name: cfgraph.gradients(graph, name, "x"),
    "xs": lambda graph, name: cfgraph.gradients(graph, "y", name),
    "list of xs": lambda graph, name: cfgraph.gradients(graph, "y", [name]),
    "stop_gradients": lambda graph, name: cfgraph.gradients(graph, "y", "x", stop_gradients=name),
    "check": cfgraph.check,
    "list of check": lambda graph, name: cfgraph.check(graph, [name]),
    "extract": lambda graph, name: cfgraph.extract(graph, outputs=name),
    "optimize": lambda graph, name: cfgraph.optimize(graph, fetches=[name]),
    "cluster": lambda graph, name: cfgraph.cluster(graph, fetches=name),
    "targets": lambda graph, name: Session(graph).run((), {}, name),
    "place": lambda graph, name: cfgraph.place(graph, devices=name),
}


def _named_graph() -> cfgraph.Builder:
    b = cfgraph.Builder()
    b.Square(b.placeholder("x", "float32", []), name="y")
    return b


@pytest.mark.parametrize("call", NAMED.values(), ids=NAMED)
@pytest.mark.parametrize("part", ["node", "tensor", "number", "bytes"])
def test_what_is_no_name_is_an_error(call: Any, part: str) -> None:
    graph = _named_graph().graph
    name = {"node": graph["y"], "tensor": graph.tensor("y"), "number": 3, "bytes": b"y"}[part]
    with pytest.raises(UsageError, match=r"a name is expected, as a string, got \w+") as caught:
        call(graph, name)
    expected = {"node": "use 'y'", "tensor": "use 'y:0'"}.get(part)
    assert caught.value.hint == expected


def test_one_name_stands_for_a_list_of_one() -> None:
    graph = _named_graph().graph
    assert not cfgraph.check(graph, "y").findings
    assert Session(graph).run([], {"x": 1}, "y") == []
    cfgraph.optimize(graph, fetches="y")
    assert "y" in graph


@pytest.mark.parametrize("path", [b"g.pb", None, 3])
@pytest.mark.parametrize(
    "call",
    [
        cfgraph.load,
        cfgraph.restore,
        cfgraph.read_costs,
        lambda path: cfgraph.save(Graph(), path),
        lambda path: cfgraph.save_variables(State(), path),
    ],
)
def test_what_is_no_path_is_an_error(call: Any, path: Any) -> None:
    with pytest.raises(UsageError, match="a path is expected, as a string, got") as caught:
        call(path)
    is_data = call is cfgraph.load and isinstance(path, bytes)
    assert caught.value.hint == ("cfgraph.loads reads a graph from bytes" if is_data else None)


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("costs", "costs.toml", "cfgraph.read_costs(path) reads one from a file"),
        ("memory", "gpu:0=1GiB", "write the bytes of each device, such as memory="),
        ("memory", {"cpu:0": "1GiB"}, "write the bytes of each device, such as memory="),
        ("workers", 2, "workers=cfgraph.Processes(2), or a cfgraph.Ray"),
        ("state", "model/variables", "state=cfgraph.restore(path, graph)"),
        ("state", Session(Graph()), "use session.state"),
    ],
)
def test_the_text_of_an_option_in_place_of_an_object_is_an_error(
    option: str, value: Any, hint: str
) -> None:
    with pytest.raises(UsageError, match=f"{option} is .*, expected") as caught:
        Session(Graph(), **{option: value})
    assert (caught.value.hint or "").startswith(hint)


def test_a_session_describes_itself() -> None:
    b = cfgraph.Builder()
    b.variable([1.0], name="v")
    b.initializer("init")
    session = Session(b.graph, devices="cpu:0-1", engine="tokens", costs=cfgraph.CostModel())
    assert repr(session) == "<Session of 4 nodes on cpu:0, cpu:1, engine tokens, virtual clock>"
    plain = Session(b.graph)
    plain.run(targets="init")
    assert repr(plain) == "<Session of 4 nodes on cpu:0, engine auto, 1 variable>"
    assert repr(plain.state) == "<State of 1 resource>"


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


def test_a_builder_in_the_place_of_a_graph_is_said() -> None:
    b = cfgraph.Builder()
    message = "expected a Graph, got <Builder of <Graph of 0 nodes, 0 ops, 0 functions>>"
    with pytest.raises(UsageError, match=message) as caught:
        Session(b)  # type: ignore[arg-type]
    assert caught.value.hint == "use its attribute `graph`"


@pytest.mark.parametrize(
    ("options", "step", "message"),
    [
        ({"rules": 3}, {}, "rules is 3, expected placement rules"),
        ({"rules": {"x": 3}}, {}, "3 is not a device"),
        ({"cache": "folder"}, {}, "cache is 'folder', expected True, False, or a CodeCache"),
        ({"memory": {"gpu:1": None}}, {}, "the run has no device gpu:1"),
        ({}, {"feeds": 3}, "feeds is 3, expected a mapping"),
        ({}, {"trace": "t.json"}, "trace is 't.json', expected True or an observer"),
        ({}, {"max_iterations": 1.5}, "max_iterations must be a whole number, got 1.5"),
        ({}, {"timeout": "1s"}, "timeout must be a number of seconds, got '1s'"),
    ],
)
def test_an_option_of_a_session_of_another_type_is_an_error(
    options: dict[str, Any], step: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Session(_named_graph().graph, **options).run("y", **{"feeds": {"x": 1.0}, **step})


def test_a_report_that_no_engine_added_is_an_error() -> None:
    session = Session(_named_graph().graph)
    with pytest.raises(UsageError, match="no run has ended"):
        session.report("gpu")
    session.run("y", {"x": 1.0})
    with pytest.raises(UsageError, match="the run has no report 'nope'"):
        session.report("nope")


def test_a_run_of_nothing_names_what_it_could_fetch() -> None:
    with pytest.raises(UsageError, match="nothing to fetch or to run") as caught:
        Session(_named_graph().graph).run()
    assert caught.value.hint == "name a fetch or a target; nothing reads y"
