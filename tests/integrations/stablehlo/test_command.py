"""`show` and `explain` of graphs that call StableHLO modules."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

import cfgraph
from cfgraph.cli.json_output import schema
from cfgraph.console.graph_files import read_graph
from cfgraph.console.picture.pages import page_model
from cfgraph.console.views.selection import GraphView, nodes_to_show
from cfgraph.integrations.stablehlo.module_process import module_bodies
from tests.command_fixtures import Command
from tests.integrations.stablehlo.programs import recorded
from tests.integrations.stablehlo.test_calls import artifact, nested_cases

pytest.importorskip("jax", reason="needs the extra xla")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SavedModel with a loop and a conditional inside a loop."""
    folder = tmp_path_factory.mktemp("stablehlo")
    recorded(folder)
    return folder / "nested_loops"


@pytest.fixture(scope="module")
def lowered(model: Path) -> Path:
    """The same graph with the module outside of functions."""
    graph, path = cfgraph.load(model), model.parent / "lowered.graph"
    cfgraph.lower(graph)
    cfgraph.save(graph, path)
    return path


PARTS = [
    ("main", "function", "(float32[3]) -> (float32[3])"),
    ("main/while", "while", "int32[], int32[], float32[3]"),
    ("closed_call", "function", "(int32[], float32[3]) -> (int32[], float32[3])"),
    ("closed_call/while", "while", "float32[3]"),
    ("closed_call/while/body/case", "case", "float32[3]"),
]
NODE = "StatefulPartitionedCall/StatefulPartitionedCall/XlaCallModule"


def test_show_lists_functions_loops_and_conditionals(command: Command, model: Path) -> None:
    done = command("show", model, "--modules", "--json")
    jsonschema.validate(done.json, schema("show"), jsonschema.Draft202012Validator)
    (module,) = done.json["result"]["modules"]
    assert re.fullmatch(r"__inference_call_\d+/XlaCallModule", module["node"])
    assert [(part["name"], part["kind"], part["types"]) for part in module["parts"]] == PARTS
    text = command("show", model, "--modules").out
    assert all(re.search(rf"^  {re.escape(part[0])} .*{part[1]}", text, re.M) for part in PARTS)


def test_a_summary_does_not_read_modules(command: Command, model: Path) -> None:
    done = command("show", model, "--json")
    jsonschema.validate(done.json, schema("show"), jsonschema.Draft202012Validator)
    (module,) = done.json["result"]["modules"]
    assert module["parts"] == []
    assert module["reason"].endswith("not read; --modules reads it")
    text = command("show", model).out
    assert module["reason"] in text
    assert "cfgraph run" in text
    assert "cfgraph grad" not in text, "jax2tf prevents gradients"


def test_explain_prints_the_module_up_to_a_limit(command: Command, lowered: Path) -> None:
    short = command("explain", lowered, NODE).out
    full = command("explain", lowered, NODE, "--full").out
    assert "func.func public @main(%arg0: tensor<3xf32>)" in short
    hidden = int(re.findall(r"… and (\d+) more lines; --full prints them", short)[0])
    assert len(full.splitlines()) == len(short.splitlines()) - 1 + hidden
    done = command("explain", lowered, NODE, "--json")
    jsonschema.validate(done.json, schema("explain"), jsonschema.Draft202012Validator)
    module = done.json["result"]["node"]["module"]
    assert module["lines"] == 40 + hidden
    assert len(module["text"].splitlines()) == 40


def test_explain_knows_modules_in_functions(command: Command, model: Path) -> None:
    shown = command("show", model, "--modules", "--json")
    (module,) = shown.json["result"]["modules"]
    done = command("explain", model, module["node"], "--json")
    jsonschema.validate(done.json, schema("explain"), jsonschema.Draft202012Validator)
    assert done.json["result"]["module"]["parts"] == module["parts"]


@pytest.mark.parametrize("kind", ["model", "lowered"])
def test_a_page_draws_the_bodies(kind: str, request: pytest.FixtureRequest) -> None:
    source = read_graph(str(request.getfixturevalue(kind)), quiet=True)
    whole = GraphView(source.graph)
    model = page_model(source, whole, nodes_to_show(whole, ()))
    labels = [group.get("label", "") for group in model["groups"]]
    for suffix in ("/main", "/main/while/cond", "/closed_call/while/body/case/branch1"):
        assert any(label.endswith(suffix) for label in labels), suffix
    (adding, *_) = [node for node in model["nodes"] if node["op"] == "add"]
    assert adding["out"] == ["int32[]"]
    assert (model["findings"], model["notes"]) == ([], [])
    modules = [node for node in source.graph if node.op == "XlaCallModule"]
    assert all("module_main" not in node.attrs for node in modules)


def test_without_jax_show_and_explain_say_what_they_need(
    command: Command, lowered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    module_bodies.cache_clear()
    shown = command("show", lowered, "--modules", "--json")
    (module,) = shown.json["result"]["modules"]
    assert module["parts"] == []
    assert module["reason"].startswith("jax is not installed; pip install")
    assert "jax is not installed" in command("explain", lowered, NODE).out
    done = command("run", lowered, "--fetch", NODE, "--feed", "serving_default_x0=[1,2,3]")
    assert done.code == 4
    assert "jax is not installed" in done.err


def test_a_process_that_opens_no_module_loads_no_keeper(lowered: Path) -> None:
    script = """
import sys
from cfgraph.cli import command_line as cli
import cfgraph
graph = sys.argv[1]
assert cli.run(["show", graph]) == cli.run(["check", graph]) == 0
cfgraph.Session(cfgraph.loads(b"c = Const() {dtype=int32, value=int32[]:1}", "graph")).run("c:0")
loaded = [name for name in sys.modules if "processes" in name or ".stablehlo." in name]
assert [name for name in loaded if name.startswith("cfgraph.")] == [], loaded
"""
    subprocess.run([sys.executable, "-c", script, str(lowered)], check=True, capture_output=True)


def test_a_damaged_module_is_named(command: Command, lowered: Path, tmp_path: Path) -> None:
    graph = cfgraph.load(lowered)
    graph[NODE].attrs["module"] = b"ML\xefR\x00"
    cfgraph.save(graph, tmp_path / "damaged.pb")
    done = command("show", tmp_path / "damaged.pb", "--modules", "--json")
    (module,) = done.json["result"]["modules"]
    assert "not a portable artifact of StableHLO" in module["reason"]


def test_a_module_that_nests_too_deeply_is_named(
    command: Command, lowered: Path, tmp_path: Path
) -> None:
    graph = cfgraph.load(lowered)
    graph[NODE].attrs["module"] = artifact(nested_cases(1000))
    cfgraph.save(graph, tmp_path / "deep.pb")
    reason = "the module has more than 64 levels of regions"
    for done in (
        command("show", tmp_path / "deep.pb", "--modules"),
        command("explain", tmp_path / "deep.pb", NODE),
    ):
        assert (done.code, reason in done.out) == (0, True)
    feed = "serving_default_x0=[1,2,3]"
    done = command("run", tmp_path / "deep.pb", "--fetch", NODE, "--feed", feed)
    assert done.code == 5
    assert done.err.startswith(f"error[CFG705]: {reason}")
