"""Two graphs compared node by node: by name, and by structure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.comparison.diff import diff
from cfgraph.errors import UsageError
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.library import copy_graph

GRAPHS = sorted(
    path.name for path in (Path(__file__).parents[2] / "fixtures" / "graphs").glob("*.pb")
)


@pytest.fixture
def counter(fixtures: Path) -> Graph:
    return cfgraph.load(fixtures / "graphs" / "counter.pb")


def parts(delta: Any) -> dict[str, list[str]]:
    """Return the changed parts by node name."""
    return {item.before.name: [c.part for c in item.changes] for item in delta.nodes.changed}


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
def test_names_are_ignored_by_structure(name: str, fixtures: Path) -> None:
    graph = cfgraph.load(fixtures / "graphs" / name)
    delta = diff(graph, renamed(graph), by="structure", ignore=["notes"])
    assert not delta
    assert len(delta.nodes.renamed) == len(graph)
    assert diff(graph, renamed(graph)).nodes.removed


def test_changes_are_reported_by_part(counter: Graph) -> None:
    changed_graph = copy_graph(counter)
    less, add = changed_graph["while/Less"], changed_graph["while/add"]
    changed_graph.set_input(less, 0, changed_graph["while/Identity"].output())
    changed_graph.set_device(add, "/device:GPU:0")
    changed_graph.add_control(changed_graph["count"], add)
    changed_graph.set_attr(changed_graph["while/Enter"], "parallel_iterations", 3)
    changed_graph.set_attr(add, "_note", b"new")
    assert parts(diff(counter, changed_graph)) == {
        "while/Less": ["input 0"],
        "while/add": ["device", "attr _note"],
        "count": ["control"],
        "while/Enter": ["attr parallel_iterations"],
    }
    delta = diff(counter, changed_graph, ignore=["devices", "notes"])
    assert "while/add" not in parts(delta)


def test_nodes_are_added_and_removed(counter: Graph) -> None:
    changed_graph = copy_graph(counter)
    changed_graph.add("Identity", changed_graph["count"].output(), name="again")
    delta = diff(counter, changed_graph)
    assert [node.name for node in delta.nodes.added] == ["again"]
    assert [node.name for node in diff(changed_graph, counter).nodes.removed] == ["again"]


def test_an_absent_attribute_is_its_default(counter: Graph) -> None:
    changed_graph = copy_graph(counter)
    enter = changed_graph["while/Enter"]
    assert enter.attrs["is_constant"] is False
    _remove_attr(enter, "is_constant")
    assert not diff(counter, changed_graph)
    _remove_attr(changed_graph["while/Less/Enter"], "is_constant")
    assert parts(diff(counter, changed_graph)) == {"while/Less/Enter": ["attr is_constant"]}


def _remove_attr(node: Node, key: str) -> None:
    node.attrs = {name: value for name, value in node.attrs.items() if name != key}


def test_the_order_of_nodes_and_controls_counts_unless_it_is_ignored(counter: Graph) -> None:
    changed_graph = copy_graph(counter)
    changed_graph.nodes = dict(reversed(changed_graph.nodes.items()))
    assert diff(counter, changed_graph).nodes.reordered
    assert not diff(counter, changed_graph, ignore=["order"])


def test_functions_are_compared_by_name(fixtures: Path) -> None:
    path = fixtures / "graphs" / "cond_functional.pb"
    graph = cfgraph.load(path)
    text = cfgraph.dumps(graph, "graph").decode()
    changed_graph = cfgraph.loads(text.replace("= Square(", "= Neg(").encode())
    (changed,) = diff(graph, changed_graph).functions_changed
    assert [c.part for item in changed.nodes.changed for c in item.changes] == ["op"]
    del changed_graph.functions[changed.name]
    assert diff(graph, changed_graph).functions_removed == (changed.name,)
    assert diff(changed_graph, graph).functions_added == (changed.name,)


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
    """Rename the nodes of the function and exchange two of them."""
    for old, new in OTHER_NAMES:
        text = re.sub(rf"\b{old}\b", new, text)
    return text


@pytest.mark.parametrize("twin", ["x", "y"])
def test_names_in_functions_are_ignored_by_structure(twin: str) -> None:
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
def test_a_change_in_a_renamed_function_body_is_found(
    old: str, new: str, changed: list[str]
) -> None:
    text = in_other_names(BODY.replace(old, new))
    a, b = cfgraph.loads(BODY.encode()), cfgraph.loads(text.encode())
    (delta,) = diff(a, b, by="structure").functions_changed
    inside = [change.part for item in delta.nodes.changed for change in item.changes]
    assert inside + [change.part for change in delta.changes] == changed


def test_one_changed_node_is_found_among_renamed_nodes(counter: Graph) -> None:
    changed_graph = renamed(counter)
    place = list(counter.nodes).index("while/Less")
    text = cfgraph.dumps(changed_graph, "graph").decode().replace("= Less(", "= Greater(")
    delta = diff(counter, cfgraph.loads(text.encode()), by="structure", ignore=["notes"])
    assert not delta.nodes.added
    assert not delta.nodes.removed
    (changed,) = delta.nodes.changed
    assert (changed.before.name, changed.after.name) == ("while/Less", f"n{place}")


def test_twins_are_distinguished_by_their_consumers() -> None:
    text = "".join(
        f"a{i} = Const() {{dtype=float32, value=float32[]:1}}\nb{i} = Neg(a{i})\n" for i in range(9)
    )
    order = [3, 8, 0, 1, 7, 2, 6, 5, 4]
    shuffled = "".join(f"y{i} = Neg(x{8 - i})\n" for i in order) + "".join(
        f"x{i} = Const() {{dtype=float32, value=float32[]:1}}\n" for i in order
    )
    a, b = cfgraph.loads(text.encode()), cfgraph.loads(shuffled.encode())
    assert not diff(a, b, by="structure")


@pytest.mark.parametrize("options", [{"by": "luck"}, {"ignore": ["colour"]}])
def test_unknown_options_are_rejected(counter: Graph, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        diff(counter, counter, **options)


@pytest.mark.parametrize("by", ["name", "structure"])
def test_attributes_are_compared_by_type_and_bit_by_bit(by: str) -> None:
    values = ["1", "true", "1.0", "0.0", "-0.0", "nan", "(1.0, 0.0)", "(1.0, -0.0)", "(1.5, nan)"]
    values += ["@f{k=1}", "@f{k=true}", '""', "@f{k=nan}"]
    graphs = [cfgraph.loads(f"x = Foo() {{k={value}}}\n".encode()) for value in values]
    again = [cfgraph.loads(f"x = Foo() {{k={value}}}\n".encode()) for value in values]
    for index, a in enumerate(graphs):
        equal = [number for number, b in enumerate(again) if not diff(a, b, by=by)]
        assert equal == [index]


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
def test_all_of_a_signature_is_compared(argument: str, declared: str, part: str) -> None:
    a, b = (
        cfgraph.loads(SIGNED.replace("ARGUMENT", dtype).replace("DECLARED", declaration).encode())
        for dtype, declaration in (("int32", "int = 1"), (argument, declared))
    )
    (delta,) = diff(a, b).functions_changed
    assert [change.part for change in delta.changes] == [part]
    assert bool(diff(a, b, ignore=["notes"])) is ("_arg" not in argument)


def test_unknown_fields_of_a_graph_and_its_nodes_are_compared(fixtures: Path) -> None:
    path = fixtures / "robustness" / "unknown_field_of_graph.pb"
    a = cfgraph.load(path)
    b = cfgraph.loads(cfgraph.dumps(a, "pbtxt"))
    assert [(c.part, c.before, c.after) for c in cfgraph.diff(a, b).changes] == [
        ("other fields", "CKoT", None)
    ]
    assert not cfgraph.diff(a, b, ignore=["notes"])
    graph = cfgraph.loads(b"\n\x0b\n\x01x\x12\x04NoOp\x50\x01")
    (changed,) = cfgraph.diff(graph, cfgraph.loads(b"\n\x09\n\x01x\x12\x04NoOp")).nodes.changed
    assert [change.part for change in changed.changes] == ["other fields"]
