"""Model of a page: nodes, boxes, edges, functions, findings; and its assets."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.console.picture.model import SCRIPTS, page_bytes, picture_model, script_json
from cfgraph.console.views.selection import GraphView, NodeSelection, nodes_to_show
from cfgraph.ir.graph import Graph
from cfgraph.ir.text.parser import parse_graph

ASSETS = Path(sys.modules[page_bytes.__module__].__file__ or "").parent / "assets"


def model(graph: Graph, **more: Any) -> dict[str, Any]:
    view = GraphView(graph)
    bodies = nodes_to_show(view, ["function:*"]) if graph.functions else []
    return picture_model("a graph", NodeSelection(view, list(graph)), bodies, **more)


def by_name(reported: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {node["name"]: node for node in reported["nodes"]}


def enclosing_boxes(reported: dict[str, Any], node: dict[str, Any]) -> list[str]:
    """The boxes around a node, innermost first."""
    found, place = [], node["group"]
    while place is not None:
        box = reported["groups"][place]
        found.append(f"{box['kind']} {box.get('label', '')}".strip())
        place = box.get("parent")
    return found


def test_a_node_is_reported_with_types_and_sources(graphs: Path) -> None:
    reported = model(cfgraph.load(graphs / "counter.pb"))
    nodes = by_name(reported)
    add = nodes["while/add"]
    assert [reported["nodes"][node]["name"] for node, _ in add["in"]] == [
        "while/Identity",
        "while/add/y",
    ]
    assert add["out"] == ["int32[]"]
    assert add["frame"] == "/while/while_context"
    assert reported["whens"][add["when"]][:2] == ["sometimes", "live:while/Merge & while/Less"]
    assert nodes["while/add/y"]["attrs"]["value"] == "int32[] 1"
    assert reported["ops"]["Merge"]["role"] == "merge"
    assert enclosing_boxes(reported, add) == ["frame while/while_context", "scope while", "graph"]


def test_a_message_links_its_ends(command: Any, graphs: Path, tmp_path: Path) -> None:
    path = tmp_path / "two.pb"
    command("partition", graphs / "counter.pb", "--devices", "cpu:0,gpu:0",
            "--place", "while/add=gpu:0", "-o", path)  # fmt: skip
    reported = model(cfgraph.load(path))
    ops = {tuple(reported["nodes"][end]["op"] for end in link) for link in reported["links"]}
    assert ops == {("_Send", "_Recv")}
    devices = {enclosing_boxes(reported, node)[-2] for node in reported["nodes"]}
    assert devices == {"device cpu:0", "device gpu:0 (simulated)"}


def test_the_body_of_a_function_is_where_it_is_called(graphs: Path) -> None:
    reported = model(cfgraph.load(graphs / "while_functional.pb"))
    nodes = by_name(reported)
    assert enclosing_boxes(reported, nodes["while"])[0] == "call while"
    body = nodes["while_body_591/placeholder"]
    assert enclosing_boxes(reported, body) == ["function while_body_591", "call while", "graph"]


def test_functions_that_are_called_twice_are_next_to_the_graph() -> None:
    graph = parse_graph(
        "x = Placeholder() {dtype=float32, shape=[]}\na = F(x)\nb = F(x)\n"
        "\nfunction F(v: float32) -> (w: float32) {\n  n = Neg(v)\n  return w = n:y:0\n}\n"
    )
    reported = model(graph)
    assert enclosing_boxes(reported, by_name(reported)["F/n"]) == [
        "function F",
        "library functions",
        "graph",
    ]


def test_a_function_that_calls_itself_is_drawn_once() -> None:
    graph = parse_graph(
        "x = Placeholder() {dtype=float32, shape=[]}\na = F(x)\n"
        "\nfunction F(v: float32) -> (w: float32) {\n  n = F(v)\n  return w = n:w:0\n}\n"
    )
    reported = model(graph)
    assert sum(node["name"] == "F/n" for node in reported["nodes"]) == 1


def test_a_cluster_is_a_box_of_what_it_runs(command: Any, graphs: Path, tmp_path: Path) -> None:
    path = tmp_path / "clustered.pb"
    command("cluster", graphs / "lstm.pb", "-o", path)
    reported = model(cfgraph.load(path))
    nodes = by_name(reported)
    launches = [node for node in reported["nodes"] if node["op"] == "XlaLaunch"]
    assert launches
    for launch in launches:
        assert enclosing_boxes(reported, launch)[0] == f"cluster {launch['name']}"
    assert "cluster cluster_1" in enclosing_boxes(reported, nodes["cluster_1/lstm/MatMul"])


def test_findings_are_reported_with_what_their_code_means(fixtures: Path) -> None:
    graph = cfgraph.load(fixtures / "errors" / "CFG109_cycle.graph")
    reported = model(graph)
    (finding, *_) = reported["findings"]
    assert finding["code"] == "CFG109"
    assert finding["title"]
    assert reported["notes"] == [] or "is unknown" in reported["notes"][0]


def test_a_node_outside_of_the_picture_is_a_name(graphs: Path) -> None:
    view = GraphView(cfgraph.load(graphs / "counter.pb"))
    (some,) = nodes_to_show(view, ["while/add"])
    (node,) = picture_model("part", some)["nodes"]
    assert node["in"] == ["while/Identity:0", "while/add/y:0"]


def test_all_nodes_are_on_the_device_that_a_run_had(graphs: Path) -> None:
    reported = model(cfgraph.load(graphs / "eight_devices.pb"), only="cpu:0")
    assert {node["device"] for node in reported["nodes"]} == {"cpu:0"}
    assert not any(box["kind"] == "device" for box in reported["groups"])


def test_no_text_ends_the_script_that_it_stands_in() -> None:
    text = script_json({"attr": "</script><!-- <b>\u2028 \ud800"})
    assert "<" not in text
    assert text.isascii()
    assert json.loads(text)["attr"].startswith("</script>")


def test_one_graph_makes_one_page(graphs: Path) -> None:
    first, second = (page_bytes(model(cfgraph.load(graphs / "lstm_grad.pb"))) for _ in range(2))
    assert first == second


def test_what_a_page_is_made_of_names_no_place_in_the_network() -> None:
    ours = [ASSETS / "page.html", ASSETS / "page.css", *(ASSETS / f"{name}.js" for name in SCRIPTS)]
    for file in ours:
        addresses = re.findall(r"https?://[^\s\"')]+", file.read_text())
        assert set(addresses) <= {"http://www.w3.org/2000/svg"}, file.name
    assert "default-src 'none'" in (ASSETS / "page.html").read_text()


def test_every_script_is_in_the_page() -> None:
    assert {file.stem for file in ASSETS.glob("*.js")} == {*SCRIPTS, "viz-global"}


def test_viz_is_as_it_was_published() -> None:
    expected = re.findall(r"^ {4}([0-9a-f]{64})  (\S+)$", (ASSETS / "VIZ.md").read_text(), re.M)
    assert [name for _, name in expected] == ["viz-global.js"]
    for digest, name in expected:
        assert hashlib.sha256((ASSETS / name).read_bytes()).hexdigest() == digest


def test_the_notice_names_the_versions_that_viz_reports(root: Path) -> None:
    text = (ASSETS / "viz-global.js").read_text()
    found = re.search(r'graphvizVersion="([\d.]+)"', text), re.search(r"Viz\.js ([\d.]+)", text)
    graphviz, viz = (item[1] for item in found if item)
    for file in (root / "NOTICE", ASSETS / "VIZ.md"):
        expected = file.read_text()
        assert f"Graphviz {graphviz}" in expected
        assert viz in expected
        assert "Public License 2.0" in expected


@pytest.mark.parametrize("name", ["lstm_grad", "eight_devices", "cond_functional"])
def test_every_box_but_the_outermost_comes_after_the_one_enclosing_it(
    name: str, graphs: Path
) -> None:
    reported = model(cfgraph.load(graphs / f"{name}.pb"))
    assert "parent" not in reported["groups"][0]
    for place, box in enumerate(reported["groups"][1:], 1):
        assert 0 <= box["parent"] < place
