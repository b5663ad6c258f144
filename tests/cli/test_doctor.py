"""`cfgraph doctor`, `cfgraph devices`, and bundles for bug reports without constants."""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import cfgraph
from cfgraph.cli.json_output import schema
from cfgraph.console.installation.bug_report import strip_constants
from cfgraph.ir.attrs import EncodedAttr, Func, TensorValue
from cfgraph.proto.attr_value_pb2 import AttrValue
from tests.sampled import sampled

SECRET = 1234.5678


def test_it_reports_the_installation(command: Any) -> None:
    done = command("doctor")
    assert done.code == 0
    for part in ("cfgraph 0.", "numpy ", "extras", "cpu ", "cache", "configuration"):
        assert part in done.out
    result = command("doctor", "--json").json["result"]
    packages = {item["package"]: item["version"] for item in result["packages"]}
    assert packages["numpy"] == np.__version__
    assert result["cache"]["entries"] == 0  # the tests have no cache


def test_an_invalid_configuration_of_any_command_is_a_fault(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cfgraph.toml").write_text("[run]\nengin = 3\n")
    done = command("doctor", "--json")
    assert (done.code, done.json["status"]) == (1, "findings")
    (fault,) = done.json["findings"]
    assert "unknown key 'engin' in [run]" in fault["message"]
    assert "error: unknown key 'engin'" in command("doctor").out


def test_devices_say_what_runs_them(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = {
        item["device"]: item for item in command("devices", "--json").json["result"]["devices"]
    }
    assert devices["cpu"]["real"]
    assert devices["cpu"]["memory"] > 1 << 20
    assert devices["gpu"]["real"] or "no real GPU" in devices["gpu"]["detail"]
    assert "cpu" in command("devices").out


def test_the_version_is_a_document_too(command: Any) -> None:
    found = command("--version", "--json").json
    assert found["result"]["cfgraph"] == cfgraph.__version__
    jsonschema.Draft202012Validator(schema("version")).validate(found)
    assert command("--version").out == f"cfgraph {cfgraph.__version__}\n"
    assert command("--json", "devices").code == 2


@pytest.fixture
def secret_graph(tmp_path: Path) -> Path:
    """A graph with a secret in a constant, in a function, and in a string."""
    b = cfgraph.Builder()
    x = b.placeholder("x", shape=[2])
    weights = b.const(np.array([SECRET, SECRET], np.float32), name="w")
    b.const(np.array([b"topsecret"], object), name="text")
    b.const(np.arange(1000, dtype=np.int32), name="ids")
    b.const(np.array([2, 1], np.int32), name="shape")
    b.cond(
        b.placeholder("p", "bool", []),
        lambda: b.Mul(x, b.const(np.array([SECRET, 1], np.float32))),
        lambda: b.Add(x, weights),
        name="y",
    )
    path = tmp_path / "g.pb"
    cfgraph.save(b.graph, path)
    return path


def test_constants_are_stripped_in_functions_too(secret_graph: Path) -> None:
    secret = np.float32(SECRET).tobytes()
    assert secret in secret_graph.read_bytes()
    graph = cfgraph.load(secret_graph)
    assert graph.functions
    strip_constants(graph)
    data = cfgraph.dumps(graph)
    assert secret not in data
    assert b"topsecret" not in data
    values = {node.name: node.attrs["value"] for node in graph if node.op == "Const"}
    assert all(isinstance(value, TensorValue) for value in values.values())
    assert not values["ids"].array.any()
    assert values["shape"].array.tolist() == [2, 1]
    assert values["w"].array.shape == (2,)


def test_a_bundle_has_the_graph_the_messages_and_a_trace(
    command: Any, secret_graph: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "bug.zip"
    line = ("run", secret_graph, "--feed", "x=[1,2]", "--feed", "p=false")
    done = command("doctor", "--bundle", bundle, "--json", "--", *line)
    assert done.code == 0
    with zipfile.ZipFile(bundle) as archive:
        names = archive.namelist()
        members = {name: archive.read(name) for name in names}
    assert names == done.json["result"]["bundle"]
    assert all(np.float32(SECRET).tobytes() not in data for data in members.values())
    assert b"1234" not in members["trace.jsonl"]
    assert cfgraph.loads(members["graphs/g.pb"]).functions
    ended = json.loads(members["command.json"])
    assert ended["exit_code"] == 0
    assert ended["command"].startswith("cfgraph run ")
    assert json.loads(members["environment.json"])["result"]["versions"]


def test_a_failing_command_leaves_its_traceback(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "bug.zip"
    command("doctor", "--bundle", bundle, "-q", "--", "run", counter, "--fetch", "nosuch")
    with zipfile.ZipFile(bundle) as archive:
        assert b"Traceback" in archive.read("stderr.txt")
        assert json.loads(archive.read("command.json"))["exit_code"] == 2


def test_a_bundle_that_cannot_be_written_is_known_before_the_command_runs(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.pb"
    line = ("--bundle", tmp_path / "no" / "b.zip", "--", "lower", counter, "-o", out)
    assert command("doctor", *line).code == 2
    assert not out.exists()


def test_a_command_may_begin_with_the_program(command: Any, counter: Path, tmp_path: Path) -> None:
    line = ("--bundle", tmp_path / "b.zip", "--", "cfgraph", "show", counter, "--node", "nope")
    done = command("doctor", *line)
    assert (done.code, "the command exits with 2" in done.err) == (0, True)
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        assert json.loads(archive.read("command.json"))["command"].startswith("cfgraph show ")


def test_constants_stay_on_request(command: Any, secret_graph: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bug.zip"
    line = ("doctor", "--bundle", bundle, "--with-constants", "--", "show", secret_graph)
    assert command(*line).code == 0
    with zipfile.ZipFile(bundle) as archive:
        assert np.float32(SECRET).tobytes() in archive.read("graphs/g.pb")


def test_a_bundle_imports_nothing_from_the_current_folder(
    command: Any, counter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [item for item in sys.path if item])
    Path("cfgraph").mkdir()
    for name in ("numpy.py", "cfgraph/__init__.py", "cfgraph/__main__.py"):
        Path(name).write_text("open('executed', 'w')")
    assert command("doctor", "--bundle", "b.zip", "--", "show", counter).code == 0
    assert not Path("executed").exists()
    with zipfile.ZipFile("b.zip") as archive:
        assert json.loads(archive.read("command.json"))["exit_code"] == 0


@pytest.mark.parametrize(
    "name", sampled(["..\\..\\x.pb", "\udcff.pb", "a\x1b[31m\n.pb", "...pb", "ü.pb"], 2)
)
def test_members_have_names_that_every_archiver_accepts(
    name: str, command: Any, counter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(counter.read_bytes())
    Path("inner").mkdir()
    Path("inner", name).write_bytes(counter.read_bytes())
    line = ("doctor", "--bundle", "b.zip", "--", "diff", name, Path("inner", name))
    assert command(*line).code == 0
    with zipfile.ZipFile("b.zip") as archive:
        members = [item for item in archive.namelist() if item.startswith("graphs/")]
    assert len(set(members)) == 2
    assert all(re.fullmatch(r"graphs/[\w-][\w.-]*\.pb", item, re.ASCII) for item in members)


def test_the_end_of_a_long_trace_is_enough(
    command: Any, counter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cfgraph.console.installation.bug_report._MAX_TRACE", 1000)
    bundle = tmp_path / "b.zip"
    assert command("doctor", "--bundle", bundle, "--", "run", counter, "--feed", "n=9").code == 0
    with zipfile.ZipFile(bundle) as archive:
        lines = archive.read("trace.jsonl").splitlines()
    events = [json.loads(line) for line in lines]
    assert events[0]["schema"] == "cfgraph.trace/1"
    assert events[-1]["iter"] >= 8
    assert 1 < len(events) < 10


def test_only_the_run_command_is_traced(command: Any, counter: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "b.zip"
    for line in (("show", counter, "--node", "run"), ("lower", counter, "-o", "-")):
        assert command("doctor", "--bundle", bundle, "-q", "--", *line).code == 0
        with zipfile.ZipFile(bundle) as archive:
            assert b"no such option" not in archive.read("stderr.txt")
            assert "trace.jsonl" not in archive.namelist()


def test_a_bundle_replaces_no_file_of_its_command(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    path = tmp_path / "g.pb"
    path.write_bytes(counter.read_bytes())
    assert command("doctor", "--bundle", path, "--", "show", path).code == 2
    assert path.read_bytes() == counter.read_bytes()


def test_constants_in_any_attribute_are_stripped() -> None:
    secret = TensorValue(np.full(3, SECRET, np.float32))
    program = b"\0" * 2000 + np.float32(SECRET).tobytes()
    b = cfgraph.Builder()
    b.placeholder("x", shape=[2])
    node = b.graph["x"]
    for name, value in {
        "_call": Func("f", {"value": secret}),
        "_list": (Func("f", {"value": secret}),),
        "_module": program,
        "_encoded": EncodedAttr(AttrValue(tensor={"tensor_content": program}).SerializeToString()),
    }.items():
        b.graph.set_attr(node, name, value)
    assert np.float32(SECRET).tobytes() in cfgraph.dumps(b.graph)
    strip_constants(b.graph)
    assert np.float32(SECRET).tobytes() not in cfgraph.dumps(b.graph)


def test_a_repeated_element_takes_no_memory() -> None:
    b = cfgraph.Builder()
    b.Const(value=np.broadcast_to(np.float32(SECRET), (1 << 40,)), dtype="float32", name="w")
    strip_constants(b.graph)
    assert len(cfgraph.dumps(b.graph)) < 1000


@pytest.mark.parametrize(
    "line", ["doctor --with-constants", "doctor -- run g.pb", "doctor --bundle b.zip -- show -"]
)
def test_options_that_do_not_fit_are_usage_errors(line: str, command: Any) -> None:
    done = command(*line.split())
    assert (done.code, "hint: " in done.err) == (2, True)
