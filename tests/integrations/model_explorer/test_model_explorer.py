"""Files for Model Explorer: graphs, and data per node, checked by its released package."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.console.views.selection import GraphView
from cfgraph.integrations.model_explorer.graph_json import graph_collection
from cfgraph.integrations.model_explorer.identifiers import graph_members
from cfgraph.integrations.model_explorer.node_data import node_data
from tests.cli.chromium import Chromium, program

HAS_PACKAGE = find_spec("model_explorer") is not None
needs_package = pytest.mark.skipif(
    not HAS_PACKAGE, reason="the package ai-edge-model-explorer is not installed"
)
# of the package's own dependencies
quiet = pytest.mark.filterwarnings("ignore")
LOOP = "/while/while_context"
GRAPHS = ("counter", "nested", "cond_functional", "while_functional", "eight_devices")
CONDITIONAL = """
p = Placeholder() {dtype=bool, shape=[]}
x = Placeholder() {dtype=float32, shape=[]}
s = Switch(x, p)
a/neg = Neg(s:1)
m = Merge(s:0, a/neg)
y = Identity(m, ^a/neg)
"""
INVALID = """
x = Placeholder() {dtype=float32, shape=[]}
e = Enter(x) {frame_name="f"}
y = Add(e, x)
"""


def collection(graph: cfgraph.Graph) -> dict[str, Any]:
    return graph_collection(GraphView(graph), "folder/model.pb")


def graph_of(fixtures: Path, name: str) -> cfgraph.Graph:
    return cfgraph.load(fixtures / "graphs" / f"{name}.pb")


def overlays(graph: dict[str, Any]) -> dict[str, set[tuple[str, str]]]:
    """The edges of each overlay."""
    data = graph.get("tasksData", {}).get("edgeOverlaysDataListLeftPane", [])
    return {
        overlay["name"]: {(edge["sourceNodeId"], edge["targetNodeId"]) for edge in overlay["edges"]}
        for item in data
        for overlay in item["overlays"]
    }


@pytest.mark.smallest
def test_a_loop_is_a_graph_of_its_own_with_its_critical_cycle(fixtures: Path) -> None:
    written = collection(graph_of(fixtures, "counter"))
    main, loop = written["graphs"]
    assert (written["label"], main["id"], loop["id"]) == ("model.pb", "main", LOOP)
    by_name = {node["attrs"][0]["value"]: node for node in main["nodes"]}
    assert [node["id"] for node in main["nodes"]] == [str(index) for index in range(15)]
    merge, enter = by_name["while/Merge"], by_name["while/Enter"]
    assert (merge["label"], merge["namespace"]) == ("Merge", "while")
    assert enter["subgraphIds"] == [LOOP]
    assert by_name["count"]["label"] == "count (Identity)"
    sources = [edge["sourceNodeId"] for edge in merge["incomingEdges"]]
    assert sources == [enter["id"], by_name["while/NextIteration"]["id"]]
    assert {node["id"] for node in loop["nodes"]} < {node["id"] for node in main["nodes"]}
    ((name, cycle),) = overlays(main).items()
    assert name.startswith(f"{LOOP}: ")
    assert (by_name["while/NextIteration"]["id"], merge["id"]) in cycle


def test_bodies_of_functions_are_graphs_of_their_callers(fixtures: Path) -> None:
    graphs = {
        graph["id"]: graph for graph in collection(graph_of(fixtures, "while_functional"))["graphs"]
    }
    caller = next(node for node in graphs["main"]["nodes"] if node["subgraphIds"])
    assert (
        set(caller["subgraphIds"]) == {"while_body_591", "while_cond_590"} == {*graphs} - {"main"}
    )
    first, *_, last = graphs["while_body_591"]["nodes"]
    assert (first["label"], last["label"]) == ("GraphInputs", "GraphOutputs")
    assert len(last["incomingEdges"]) == len(first["outputsMetadata"]) == 4


def test_paths_that_may_be_dead_are_an_overlay() -> None:
    main = collection(cfgraph.loads(CONDITIONAL.encode()))["graphs"][0]
    assert overlays(main) == {"live under a condition": {("3", "4"), ("3", "5")}}
    control = main["nodes"][5]["incomingEdges"][1]
    assert control == {
        "sourceNodeId": "3",
        "sourceNodeOutputId": "control",
        "targetNodeInputId": "control",
    }


def test_messages_are_an_overlay(fixtures: Path) -> None:
    graph = graph_of(fixtures, "counter")
    cfgraph.place(graph, devices=["cpu:0", "cpu:1"], rules=["while/add=cpu:1"])
    cfgraph.partition(graph)
    main = collection(graph)["graphs"][0]
    ops = {node["id"]: node["attrs"][1]["value"] for node in main["nodes"]}
    messages = overlays(main)["Send to Recv"]
    assert {(ops[source], ops[target]) for source, target in messages} == {("_Send", "_Recv")}


def test_a_graph_with_errors_is_written_without_overlays() -> None:
    graph = cfgraph.loads(INVALID.encode())
    (main, _) = collection(graph)["graphs"]
    assert (len(main["nodes"]), overlays(main)) == (3, {})


def test_data_of_lowered_nodes_count_for_the_node_in_the_file(fixtures: Path) -> None:
    members = graph_members(graph_of(fixtures, "while_functional"))
    data = node_data(members, {"while/body/add": 2, "while": 1, "elsewhere/x": 9}, "n")
    assert data["main"]["results"] == {members["main"]["while"]: {"value": 3}}


@pytest.fixture
def results(command: Any, tmp_path: Path) -> Any:
    """Run a command with --node-data; returns the data by graph, with names of nodes."""

    def run(*args: Any, kind: str = "", graph: Path) -> Any:
        path = tmp_path / "data.json"
        done = command(*args, "--node-data", f"{kind}{path}")
        assert done.code in (0, 1), done.err
        assert f"wrote {path}" in done.err
        ids = graph_members(cfgraph.load(graph))
        return {
            id: {
                name: data["results"][index]["value"]
                for name, index in ids[id].items()
                if index in data["results"]
            }
            for id, data in json.loads(path.read_text()).items()
        }

    return run


def test_commands_write_data_per_node(results: Any, fixtures: Path, tmp_path: Path) -> None:
    file = fixtures / "graphs" / "counter.pb"
    run = ("run", file, "--feed", "n=5")
    data = results(*run, kind="iterations=", graph=file)
    assert (data["main"]["while/Merge"], data["main"]["count"]) == (6, 1)
    assert data[LOOP]["while/NextIteration"] == 5
    assert all(time >= 0 for time in results(*run, graph=file)["main"].values())
    assert set(results(*run, kind="device=", graph=file)["main"].values()) == {"cpu:0"}
    data = results("explain", file, graph=file)
    assert (data["main"]["n"], data["main"]["while/Merge"]) == ("always", "live:while/Merge")
    data = results("explain", file, LOOP, graph=file)
    assert {"while/Merge", "while/NextIteration"} <= {*data["main"]} < {*data[LOOP], "count"}
    data = results("cluster", file, "--explain", "--min-size", "1", graph=file)
    assert any(value.startswith("cluster") for value in data["main"].values())
    assert any(value.startswith("none: ") for value in data["main"].values())
    other = tmp_path / "other.graph"
    text = cfgraph.dumps(cfgraph.load(file), "graph").decode()
    other.write_text(text.replace("AddV2", "Sub"))
    data = results("diff", file, other, graph=file)
    assert data["main"] == {"while/add": "changed"}
    feeds = ("--run", "--feed", "n=3", "--max-iterations", "9")
    data = results("diff", file, other, *feeds, graph=file)
    assert data[LOOP] == {"while/add": "first difference"}


def test_wrong_requests_for_data_are_usage_errors(
    command: Any, fixtures: Path, tmp_path: Path
) -> None:
    file = fixtures / "graphs" / "counter.pb"
    trace = ("--trace-out", tmp_path / "trace.json")
    done = command("run", file, "--feed", "n=1", "--node-data", "power=x.json", *trace)
    assert not [*tmp_path.iterdir()]
    assert (done.code, "unknown kind of node data 'power'" in done.err) == (2, True)
    assert "time, iterations, device" in done.err
    done = command("explain", file, "--json", "--node-data", "x.json")
    assert (done.code, done.json["error"]["hint"]) == (2, "remove --json")


def test_documents_name_the_written_files(command: Any, fixtures: Path, tmp_path: Path) -> None:
    file, path = fixtures / "graphs" / "counter.pb", tmp_path / "x.json"
    for args in (
        ("run", file, "--node-data", path),
        ("explain", file, LOOP, "--node-data", path),
        ("cluster", file, "--explain", "--node-data", path),
        ("diff", file, file, "--node-data", path),
    ):
        kinds = {item["kind"]: item["path"] for item in command(*args, "--json").json["artifacts"]}
        assert kinds == {"node_data": str(path)}, args
    done = command("show", file, "--model-explorer", path, "--json")
    assert [item["kind"] for item in done.json["artifacts"]] == ["model_explorer"]


@needs_package
@quiet
@pytest.mark.parametrize("name", GRAPHS)
def test_identifiers_are_those_of_the_view_of_a_graphdef(fixtures: Path, name: str) -> None:
    adapter = pytest.importorskip("ai_edge_model_explorer_adapter")
    path = str(fixtures / "graphs" / f"{name}.pb")
    text = adapter.ConvertGraphDefDirectlyToJson(adapter.VisualizeConfig(), path)
    theirs = {
        graph["id"]: graph["nodes"] for item in json.loads(text) for graph in item["subgraphs"]
    }
    ours = {graph["id"]: graph["nodes"] for graph in collection(cfgraph.load(path))["graphs"]}
    for id, nodes in theirs.items():
        ops = {node["id"]: node["label"] for node in nodes}
        labels = {node["id"]: node["label"] for node in ours[id]}
        assert ops.keys() == labels.keys()
        assert all(ops[key] in text for key, text in labels.items())


@needs_package
@quiet
def test_the_extension_is_loaded_and_runs(fixtures: Path) -> None:
    from model_explorer.extension_manager import ExtensionManager

    manager = ExtensionManager(["cfgraph.model_explorer"])
    manager.load_extensions()
    ids = {item["id"] for item in manager.get_extensions_metadata()}
    assert {"cfgraph", "cfgraph_liveness", "cfgraph_critical_cycles", "builtin_graphdef"} <= ids
    path = str(fixtures / "graphs" / "counter.pb")
    request = {"cmdId": "convert", "modelPath": path, "settings": {}, "extensionId": "cfgraph"}
    graphs = manager.run_cmd(request)["graphs"]
    assert [graph["id"] for graph in graphs] == ["main", LOOP]
    for provider, value in (("cfgraph_liveness", "always"), ("cfgraph_critical_cycles", None)):
        request = {"cmdId": "run", "modelPath": path, "graphId": "main", "configValues": {}}
        answer = manager.run_cmd({**request, "extensionId": provider})
        assert not answer["error"]
        values = [item["value"] for item in answer["result"]["results"].values()]
        assert value in values or min(values) > 0
    missing = {**request, "modelPath": "no such file", "extensionId": "cfgraph_liveness"}
    assert "no such file" in manager.run_cmd(missing)["error"]


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server of Model Explorer on this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ("--no_open_in_browser", "--skip_health_check", "--host", "127.0.0.1")
    process = subprocess.Popen(
        [sys.executable, "-m", "model_explorer", *options, "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        lines = iter(process.stdout.readline, "")
        assert any("Press Ctrl+C" in line for line in lines)
        urllib.request.urlopen(f"http://127.0.0.1:{port}/check_health").close()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.slow
@needs_package
@pytest.mark.skipif(program() is None, reason="no Chromium is installed")
def test_model_explorer_shows_both_views_with_data(
    command: Any, fixtures: Path, tmp_path: Path, server: str
) -> None:
    file, graph, data = fixtures / "graphs" / "counter.pb", tmp_path / "g.json", tmp_path / "d.json"
    assert command("show", file, "--model-explorer", graph).code == 0
    assert command("run", file, "--feed", "n=20", "--node-data", f"iterations={data}").code == 0
    browser = Chromium(tmp_path, draws_3d=True)
    try:
        for model, adapter in ((graph, "builtin_json"), (file, "builtin_graphdef")):
            source = {"url": str(model), "adapterId": adapter}
            models = {"models": [source], "nodeData": [str(data)]}
            query = urllib.parse.quote(json.dumps({**models, "nodeDataTargets": [""]}))
            drawn = "document.body?.innerText.includes('iterations') || null"
            browser.open(f"{server}/?data={query}", drawn=drawn)
            text = browser.value("document.body.innerText")
            assert "Max\t21" in text, model
    finally:
        browser.close()
