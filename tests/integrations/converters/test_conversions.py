"""`convert-check` runs a converter that is installed, and compares the values of its model."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.integrations.converters import convert_check
from cfgraph.integrations.tensorflow.processes import PROGRAM, ModePool
from tests.integrations.converters.test_convert_check import MERGE_OF_THREE

STAND_IN = replace(PROGRAM, module="tests.integrations.tensorflow.misbehaving_worker")


def require_converter(target: str) -> None:
    for module in convert_check.MODULES[target]:
        pytest.importorskip(module, reason="needs the extra `converters`")


@pytest.fixture
def converted(command: Any, tmp_path: Path) -> Any:
    """The exit code and the result of the check of a text, with a conversion."""

    def convert(text: str, target: str, *options: str) -> tuple[int, dict[str, Any]]:
        path = tmp_path / "model.graph"
        path.write_text(text)
        done = command("convert-check", path, "--for", target, "--json", *options)
        return done.code, json.loads(done.out)["result"]

    return convert


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A converter whose model returns 3, or that fails as the name of the fetch says."""
    pool = ModePool(STAND_IN, memory=1 << 30)
    monkeypatch.setattr(convert_check, "ModePool", lambda **_: pool)
    monkeypatch.setattr(convert_check, "find_spec", lambda _: True)


@pytest.mark.smallest
@pytest.mark.parametrize("target", ["lite", "onnx"])
@pytest.mark.parametrize(
    ("name", "code", "result", "text"),
    [
        ("fine", 0, "agrees", ""),
        ("differs", 1, "differs", "differs:0: the value differs: float32[] 4.0 in the run"),
        ("no_kernel", 1, "refused", "cannot run the graph"),
        ("abort", 1, "failed", "SIGABRT"),
    ],
)
def test_the_result_of_the_converter_decides(
    stand_in: None, converted: Any, target: str, name: str, code: int, result: str, text: str
) -> None:
    value = 4 if name == "differs" else 3
    graph = f"{name} = Const() {{dtype=float32, value=float32[]:{value}}}\n"
    exit_code, document = converted(graph, target)
    assert (exit_code, document["conversion"]["result"]) == (code, result)
    assert text in (document["conversion"]["message"] or "")
    compared = [f"{name}:0"] if result in ("agrees", "differs") else []
    assert document["conversion"]["fetches"] == compared
    assert document["conversion"].get("distance") == (0 if result == "agrees" else None)
    assert document["verdict"] == ("converts" if result == "agrees" else "does not convert")


def test_what_does_not_convert_is_tried_after_its_command(stand_in: None, converted: Any) -> None:
    code, document = converted(MERGE_OF_THREE.replace("y = ", "no_kernel = "), "lite")
    assert code == 1
    (mending,) = document["commands"]
    assert mending["remaining"] == []
    assert mending["conversion"]["result"] == "refused"


def test_without_the_converter_the_list_decides(
    monkeypatch: pytest.MonkeyPatch, converted: Any
) -> None:
    monkeypatch.setattr(convert_check, "find_spec", lambda _: None)
    code, document = converted(MERGE_OF_THREE, "onnx")
    assert code == 1
    assert document["conversion"]["result"] == "not compared"
    assert "tf2onnx and onnxruntime not installed" in document["conversion"]["message"]
    assert converted("x = Placeholder() {dtype=float32, shape=[]}\ny = Neg(x)", "onnx")[0] == 0


def test_variables_of_a_graph_file_are_not_compared(stand_in: None, converted: Any) -> None:
    text = 'w = VarHandleOp() {dtype=float32, shape=[], shared_name="w"}\n'
    code, document = converted(f"{text}y = ReadVariableOp(w) {{dtype=float32}}", "lite")
    assert code == 1
    assert document["conversion"]["result"] == "not compared"
    assert "is a variable" in document["conversion"]["message"]


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.parametrize("target", ["lite", "onnx"])
def test_a_merge_of_three_converts_after_it_is_functionalized(target: str, converted: Any) -> None:
    require_converter(target)
    feeds = ("--feed=x=2", "--feed=p=false", "--feed=q=true", "--run-timeout=600", "--cases=1")
    code, document = converted(f"versions producer=1\n{MERGE_OF_THREE}", target, *feeds)
    assert code == 1
    assert document["conversion"]["result"] == {"lite": "refused", "onnx": "differs"}[target]
    (mending,) = document["commands"]
    conversion = mending["conversion"]
    assert conversion.pop("distance") < 1e-5
    assert conversion == {"result": "agrees", "message": None, "fetches": ["y:0"]}
    assert document["verdict"] == "converts after commands"


def test_variables_of_a_saved_model_are_constants_of_its_conversion(
    stand_in: None, command: Any, fixtures: Path
) -> None:
    options = ("--for", "onnx", "--json", "--cases=1")
    done = command("convert-check", fixtures / "saved_model", *options)
    conversion = json.loads(done.out)["result"]["conversion"]
    assert conversion["result"] == "differs", "the stand-in returns 3"
    assert conversion["fetches"]
    assert json.loads(done.out)["result"]["model_commands"] == []


@pytest.mark.slow
@pytest.mark.interop
def test_a_saved_model_with_functions_converts_as_its_folder(
    command: Any, fixtures: Path, tmp_path: Path
) -> None:
    """A graph file is inlined by other rules, so the verdict on it is no verdict on the folder."""
    require_converter("onnx")
    shutil.unpack_archive(fixtures / "verdicts" / "lstm.zip", tmp_path)
    options = ("--for=onnx", "--json", "--cases=1", "--run-timeout=600")
    done = command("convert-check", tmp_path / "lstm", *options)
    result = json.loads(done.out)["result"]
    assert (done.code, result["verdict"], result["commands"]) == (0, "converts", [])
    (line,) = result["model_commands"]
    assert f"--saved-model {tmp_path / 'lstm'}" in line
    words = shlex.split(line)
    output = tmp_path / "model.onnx"
    subprocess.run([sys.executable, *words[1:-1], output], check=True, capture_output=True)
    assert "VarHandleOp" not in output.read_bytes().decode("latin-1")


@pytest.mark.slow
@pytest.mark.interop
def test_a_conditional_in_a_loop_converts_to_onnx(
    command: Any, fixtures: Path, tmp_path: Path
) -> None:
    require_converter("onnx")
    graph = fixtures / "converters" / "rnn_with_conditional.pb"
    functional = tmp_path / "functional.pb"
    words = ("--fetch", "logits", "--target", "converter", "-o", functional)
    assert command("functionalize", graph, *words).code == 0
    options = ("--feed", "len=[5,3]", "--cases=1", "--run-timeout=600")
    done = command("convert-check", functional, "--for", "onnx", "--fetch", "logits", *options)
    assert done.code == 0
    assert "the converted model agrees: logits:0" in done.out
    assert done.lines[-1] == "verdict: converts; its model computes the values of the graph"


@pytest.fixture
def nested_loops(fixtures: Path) -> cfgraph.Graph:
    """Two loops, whose body writes to an array that grows in a conditional."""
    return cfgraph.load(fixtures / "converters" / "growing_array_in_nested_loops.pb")


NESTED = ("--feed=m=[[1,-1,2],[-3,4,5]]", "--feed=n=4", "--feed=values=[1,2,8]")


def functional(command: Any, graph: Path, result: Path, *fetches: str) -> Any:
    options = [f"--fetch={name}" for name in fetches]
    return command("functionalize", graph, *options, "--target=converter", "--strict", "-o", result)


def test_an_array_that_grows_in_nested_loops_is_a_list(
    nested_loops: cfgraph.Graph, command: Any, tmp_path: Path
) -> None:
    cfgraph.save(nested_loops, tmp_path / "loops.pb")
    assert functional(command, tmp_path / "loops.pb", tmp_path / "f.pb", "out", "count").code == 0
    result = cfgraph.load(tmp_path / "f.pb")
    feeds = {"m": [[1.0, -1.0, 2.0], [-3.0, 4.0, 5.0]], "n": 4, "values": [1.0, 2.0, 8.0]}
    with cfgraph.Session(result) as session:
        out, count = session.run(["out", "count"], feeds)
    assert (out.tolist(), count) == ([1, 16, 8, 40], 4)
    assert b"TensorArrayV3" not in cfgraph.dumps(result)
    refused = command("convert-check", tmp_path / "f.pb", "--for=lite", "--fetch=out", "--no-run")
    assert "a list that grows" in refused.out


@pytest.mark.slow
@pytest.mark.interop
def test_an_array_of_fixed_size_in_nested_loops_converts_to_lite(
    nested_loops: cfgraph.Graph, command: Any, tmp_path: Path
) -> None:
    require_converter("lite")
    array = nested_loops["TensorArray"]
    nested_loops.set_attr(array, "dynamic_size", value=False)
    nested_loops.set_input(array, 0, nested_loops["n"].output())
    cfgraph.save(nested_loops, tmp_path / "loops.pb")
    assert functional(command, tmp_path / "loops.pb", tmp_path / "f.pb", "out", "count").code == 0
    options = ("--for=lite", "--fetch=out", "--fetch=count", "--cases=1", "--run-timeout=600")
    done = command("convert-check", tmp_path / "f.pb", *options, *NESTED)
    assert "the converted model agrees: out:0, count:0" in done.out


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.parametrize(
    ("target", "verdict"),
    [
        ("lite", "the converted model agrees: sums:0, doubles:0, steps:0"),
        # tf2onnx leaves out the rows that the loop does not write
        ("onnx", "the converted model differs: sums:0: the shape is [2,3], expected [4,3]"),
    ],
)
def test_rows_that_a_loop_with_a_break_does_not_write(
    target: str, verdict: str, command: Any, fixtures: Path, tmp_path: Path
) -> None:
    require_converter(target)
    graph = fixtures / "converters" / "two_arrays_and_a_break.pb"
    fetches = ("sums", "doubles", "steps")
    assert functional(command, graph, tmp_path / "f.pb", *fetches).code == 0
    feeds = ("--feed=x=[[1,2,3],[4,5,6],[7,8,9],[1,1,1]]", "--feed=limit=20")
    options = (f"--for={target}", "--cases=1", "--run-timeout=600")
    names = [f"--fetch={name}" for name in fetches]
    done = command("convert-check", tmp_path / "f.pb", *options, *feeds, *names)
    assert verdict in done.out
