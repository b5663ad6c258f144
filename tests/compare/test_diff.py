"""Two graphs compared node by node: by name, and by structure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.compare.diff import diff
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph

GRAPHS = sorted(
    path.name for path in (Path(__file__).parents[2] / "fixtures" / "graphs").glob("*.pb")
)


@pytest.fixture
def counter(fixtures: Path) -> Graph:
    return cfgraph.load(fixtures / "graphs" / "counter.pb")


def parts(found: Any) -> dict[str, list[str]]:
    """What changed about which node."""
    return {item.before.name: [c.part for c in item.changes] for item in found.nodes.changed}


def renamed(graph: Graph) -> Graph:
    copy = copy_graph(graph)
    for place, node in enumerate(list(copy)):
        copy.rename(node, f"n{place}")
    return copy


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("by", ["name", "structure"])
def test_a_graph_does_not_differ_from_itself(name: str, by: str, fixtures: Path) -> None:
    path = fixtures / "graphs" / name
    assert not diff(cfgraph.load(path), cfgraph.load(path), by=by)


@pytest.mark.parametrize("name", GRAPHS)
def test_other_names_do_not_count_by_structure(name: str, fixtures: Path) -> None:
    graph = cfgraph.load(fixtures / "graphs" / name)
    found = diff(graph, renamed(graph), by="structure", ignore=["notes"])
    assert not found
    assert len(found.nodes.renamed) == len(graph)
    assert diff(graph, renamed(graph)).nodes.removed


def test_what_changed_is_named(counter: Graph) -> None:
    other = copy_graph(counter)
    less, add = other["while/Less"], other["while/add"]
    other.set_input(less, 0, other["while/Identity"].output())
    other.set_device(add, "/device:GPU:0")
    other.add_control(other["count"], add)
    other.set_attr(other["while/Enter"], "parallel_iterations", 3)
    other.set_attr(add, "_note", b"new")
    assert parts(diff(counter, other)) == {
        "while/Less": ["input 0"],
        "while/add": ["device", "attr _note"],
        "count": ["control"],
        "while/Enter": ["attr parallel_iterations"],
    }
    found = diff(counter, other, ignore=["devices", "notes"])
    assert "while/add" not in parts(found)


def test_nodes_are_added_and_removed(counter: Graph) -> None:
    other = copy_graph(counter)
    other.add("Identity", other["count"].output(), name="again")
    found = diff(counter, other)
    assert [node.name for node in found.nodes.added] == ["again"]
    assert [node.name for node in diff(other, counter).nodes.removed] == ["again"]


def test_an_absent_attribute_is_its_default(counter: Graph) -> None:
    other = copy_graph(counter)
    enter = other["while/Enter"]
    assert enter.attrs["is_constant"] is False
    del enter.attrs["is_constant"]
    assert not diff(counter, other)
    other["while/Less/Enter"].attrs.pop("is_constant")
    assert parts(diff(counter, other)) == {"while/Less/Enter": ["attr is_constant"]}


def test_the_order_of_nodes_and_controls_counts_unless_it_is_ignored(counter: Graph) -> None:
    other = copy_graph(counter)
    other.nodes = dict(reversed(other.nodes.items()))
    assert diff(counter, other).nodes.reordered
    assert not diff(counter, other, ignore=["order"])


def test_functions_are_compared_by_name(fixtures: Path) -> None:
    path = fixtures / "graphs" / "cond_functional.pb"
    graph = cfgraph.load(path)
    text = cfgraph.dumps(graph, "graph").decode()
    other = cfgraph.loads(text.replace("= Square(", "= Neg(").encode())
    (changed,) = diff(graph, other).functions_changed
    assert [c.part for item in changed.nodes.changed for c in item.changes] == ["op"]
    del other.functions[changed.name]
    assert diff(graph, other).functions_removed == (changed.name,)
    assert diff(other, graph).functions_added == (changed.name,)


BODY = """
a = Const() {dtype=float32, value=float32[]:1}

function f(x: float32, y: float32) -> (left: float32, right: float32) {
  one = Neg(x) {T=float32}
  two = Neg(y) {T=float32}
  both = Sub(one:y:0, y) {T=float32}
  last = NoOp(^both)
  return left = both:z:0
  return right = two:y:0
  control_return done = last
}
"""
OTHER_NAMES = (("one", "first"), ("two", "one"), ("first", "two"), ("both", "b"), ("last", "l"))


def in_other_names(text: str) -> str:
    """With other names of the nodes in the function, two of them exchanged."""
    for old, new in OTHER_NAMES:
        text = re.sub(rf"\b{old}\b", new, text)
    return text


@pytest.mark.parametrize("twin", ["x", "y"])
def test_other_names_in_functions_do_not_count_by_structure(twin: str) -> None:
    text = BODY.replace("Neg(y)", f"Neg({twin})")
    a, b = (cfgraph.loads(text.encode()) for text in (text, in_other_names(text)))
    assert diff(a, b)
    assert not diff(a, b, by="structure")


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("Sub(one:y:0, y)", "Sub(y, one:y:0)", ["input 0", "input 1"]),
        ("right = two:y:0", "right = both:z:0", ["return right"]),
        ("done = last", "done = both", ["control return done"]),
        ("both = Sub(", "both = Mul(", ["op"]),
    ],
)
def test_what_changed_in_a_function_is_found_among_other_names(
    old: str, new: str, changed: list[str]
) -> None:
    text = in_other_names(BODY.replace(old, new))
    a, b = cfgraph.loads(BODY.encode()), cfgraph.loads(text.encode())
    (found,) = diff(a, b, by="structure").functions_changed
    inside = [change.part for item in found.nodes.changed for change in item.changes]
    assert inside + [change.part for change in found.changes] == changed


def test_one_changed_node_is_found_among_nodes_of_other_names(counter: Graph) -> None:
    other = renamed(counter)
    place = list(counter.nodes).index("while/Less")
    text = cfgraph.dumps(other, "graph").decode().replace("= Less(", "= Greater(")
    found = diff(counter, cfgraph.loads(text.encode()), by="structure", ignore=["notes"])
    assert not found.nodes.added
    assert not found.nodes.removed
    (changed,) = found.nodes.changed
    assert (changed.before.name, changed.after.name) == ("while/Less", f"n{place}")


def test_twins_are_distinguished_by_their_consumers() -> None:
    text = "".join(
        f"a{i} = Const() {{dtype=float32, value=float32[]:1}}\nb{i} = Neg(a{i})\n" for i in range(9)
    )
    order = [3, 8, 0, 1, 7, 2, 6, 5, 4]
    other = "".join(f"y{i} = Neg(x{8 - i})\n" for i in order) + "".join(
        f"x{i} = Const() {{dtype=float32, value=float32[]:1}}\n" for i in order
    )
    a, b = cfgraph.loads(text.encode()), cfgraph.loads(other.encode())
    assert not diff(a, b, by="structure")


@pytest.mark.parametrize("options", [{"by": "luck"}, {"ignore": ["colour"]}])
def test_other_words_are_refused(counter: Graph, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        diff(counter, counter, **options)


@pytest.mark.parametrize("by", ["name", "structure"])
def test_attributes_are_compared_by_type_and_bit_by_bit(by: str) -> None:
    values = ["1", "true", "1.0", "0.0", "-0.0", "nan", "(1.0, 0.0)", "(1.0, -0.0)", "(1.5, nan)"]
    values += ["@f{k=1}", "@f{k=true}", '""', "@f{k=nan}"]
    made = [cfgraph.loads(f"x = Foo() {{k={value}}}\n".encode()) for value in values]
    again = [cfgraph.loads(f"x = Foo() {{k={value}}}\n".encode()) for value in values]
    for place, a in enumerate(made):
        alike = [other for other, b in enumerate(again) if not diff(a, b, by=by)]
        assert alike == [place]


SIGNED = """
a = Const() {dtype=int32, value=int32[]:1}

function f(x: ARGUMENT) -> (y: int32) {
  attr k: DECLARED
  i = Identity(x) {T=int32}
  return y = i:output:0
}
"""


@pytest.mark.parametrize(
    ("argument", "declared", "part"),
    [
        ("int32", "int = 2", "attr declared k"),
        ("int32", "string", "attr declared k"),
        ("int32", "int >= 0 = 1", "attr declared k"),
        ("Ref(int32)", "int = 1", "inputs"),
        ("int32 {_arg=2}", "int = 1", "input x attr _arg"),
    ],
)
def test_signatures_of_functions_are_compared_whole(
    argument: str, declared: str, part: str
) -> None:
    a, b = (
        cfgraph.loads(SIGNED.replace("ARGUMENT", one).replace("DECLARED", other).encode())
        for one, other in (("int32", "int = 1"), (argument, declared))
    )
    (found,) = diff(a, b).functions_changed
    assert [change.part for change in found.changes] == [part]
    assert bool(diff(a, b, ignore=["notes"])) is ("_arg" not in argument)
