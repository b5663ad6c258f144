"""Operands that a picture folds, shapes in function bodies, and the box of what is not needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cfgraph.console.picture.bodies import RestOfGraph
from cfgraph.console.picture.model import picture_model
from cfgraph.console.views.selection import GraphView, NodeSelection, function_bodies
from cfgraph.ir.graph import Graph
from cfgraph.ir.text.parser import parse_graph
from tests.cli.test_picture_files import model_of_page
from tests.cli.test_picture_model import by_name, enclosing_boxes


def model(graph: Graph, **more: Any) -> dict[str, Any]:
    view = GraphView(graph)
    return picture_model("a graph", NodeSelection(view, list(graph)), function_bodies(view), **more)


def folded(reported: dict[str, Any]) -> set[str]:
    return {node["name"] for node in reported["nodes"] if node.get("folded")}


WEIGHTS = """
x = Placeholder() {dtype=float32, shape=[?,2]}
w = VarHandleOp() {dtype=float32, shape=[2,3], shared_name="w"}
read = ReadVariableOp(w) {dtype=float32}
y = MatMul(x, read) {T=float32}
scale = Const() {dtype=float32, value=float32[]:2.0}
z = Mul(y, scale) {T=float32}
lonely = Const() {dtype=float32, value=float32[]:3.0}
"""


def test_constants_weights_and_reads_are_folded_into_their_readers() -> None:
    reported = model(parse_graph(WEIGHTS))
    assert folded(reported) == {"w", "read", "scale"}
    nodes = by_name(reported)
    assert nodes["read"]["out"] == ["float32[2,3]"]
    assert nodes["w"]["group"] == nodes["y"]["group"]
    assert reported["ops"]["MatMul"]["inputs"] == ["a", "b"]


def test_operands_of_control_flow_are_drawn() -> None:
    graph = parse_graph(
        "p = Placeholder() {dtype=bool, shape=[]}\n"
        "c = Const() {dtype=float32, value=float32[]:1.0}\n"
        "s = Switch(c, p) {T=float32}\n"
        "d = Const() {dtype=float32, value=float32[]:1.0}\n"
        "t = Neg(d) {T=float32}\nu = Merge(s, d) {T=float32, N=2}\n"
    )
    assert folded(model(graph)) == set()


CALLS = """
x = Placeholder() {dtype=float32, shape=[?,4]}
w = VarHandleOp() {dtype=float32, shape=[4,3], shared_name="w"}
a = F(x, w)
b = Neg(a) {T=float32}

function F(v: float32, r: resource) -> (o: float32) {
  k = ReadVariableOp(r) {dtype=float32}
  m = MatMul(v, k:value:0) {T=float32}
  return o = m:product:0
}
"""


def test_shapes_reach_bodies_and_come_back() -> None:
    nodes = by_name(model(parse_graph(CALLS)))
    assert nodes["F/v"]["out"] == ["float32[?,4]"]
    assert nodes["F/k"]["out"] == ["float32[4,3]"]
    assert nodes["F/m"]["out"] == ["float32[?,3]"]
    assert nodes["b"]["out"] == ["float32[?,3]"]


def test_calls_of_different_shapes_leave_sizes_unknown() -> None:
    other = (
        "x5 = Placeholder() {dtype=float32, shape=[5,4]}\nb5 = F(x5, w)\nc = Neg(b5) {T=float32}\n"
    )
    text = CALLS.replace("b = Neg(a)", f"{other}b = Neg(a)").replace("[?,4]", "[2,4]")
    graph = parse_graph(text)
    nodes = by_name(model(graph))
    assert nodes["F/v"]["out"] == ["float32[?,4]"]
    assert nodes["c"]["out"] == ["float32[?,3]"]


def test_an_open_call_is_drawn_as_its_body_between_its_neighbors() -> None:
    nodes = model(parse_graph(CALLS))["nodes"]

    def source(number: int, port: int) -> str:
        """The node at which a page begins an edge once no call is drawn as one node."""
        node = nodes[number]
        if "body" in node:
            return source(*node["body"]["results"][port])
        if "argument" in node:
            call, place = node["argument"]
            return source(*nodes[call]["in"][place])
        return str(node["name"])

    edges = {
        (source(*edge), node["name"])
        for node in nodes
        if "body" not in node
        for edge in node.get("in", [])
    }
    assert edges == {("x", "F/m"), ("w", "F/k"), ("F/k", "F/m"), ("F/m", "b")}


def test_the_rest_of_the_graph_is_in_one_box() -> None:
    graph = parse_graph(WEIGHTS)
    reported = model(graph, rest=RestOfGraph("saving", frozenset({graph["lonely"]})))
    assert enclosing_boxes(reported, by_name(reported)["lonely"]) == ["rest saving", "graph"]


def test_a_saved_model_shows_the_default_signature(
    command: Any, fixtures: Path, tmp_path: Path
) -> None:
    page = tmp_path / "model.html"
    assert command("show", fixtures / "saved_model", "--html", page).code == 0
    reported = model_of_page(page)
    nodes = by_name(reported)
    save = next(node for name, node in nodes.items() if "traced_save" in name)
    assert "rest not needed by serving_default" in enclosing_boxes(reported, save)
    serve = next(node for name, node in nodes.items() if name.startswith("__inference_serve_"))
    assert not any(box.startswith("rest") for box in enclosing_boxes(reported, serve))


def test_what_a_message_brings_to_an_output_is_needed(
    command: Any, lstm: Path, tmp_path: Path
) -> None:
    page, lowered, parts = tmp_path / "page.html", tmp_path / "lowered.pb", tmp_path / "parts.pb"
    command("lower", lstm, "-o", lowered)
    command("partition", lowered, "--devices", "cpu:0,gpu:0", "--seed", "1", "-o", parts)
    assert command("show", parts, "--html", page).code == 0
    reported = model_of_page(page)
    nodes = by_name(reported)
    for name, is_rest in (("StatefulPartitionedCall_1", False), ("saver_filename", True)):
        boxes = enclosing_boxes(reported, nodes[name])
        assert any(box.startswith("rest") for box in boxes) == is_rest
