"""`convert-check` names what a converter refuses, and what mends it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph

EXPORT = (
    "model.export(FOLDER, input_signature="
    '[tf.TensorSpec([1, 6, 4], tf.float32, name="keras_tensor")])'
)
MERGE_OF_THREE = """
x = Placeholder() {dtype=float32, shape=[]}
p = Placeholder() {dtype=bool, shape=[]}
q = Placeholder() {dtype=bool, shape=[]}
s = Switch(x, p)
t = Switch(s, q)
a = Neg(s:1)
b = Exp(t)
c = Sqrt(t:1)
m = Merge(a, b, c) {N=3, T=float32}
y = Identity(m)
"""
ASSERTION = """
x = Placeholder() {dtype=float32, shape=[2]}
p = Placeholder() {dtype=bool, shape=[]}
check = Assert(p, x) {T=(float32)}
y = Neg(x, ^check)
"""
STATE = """
x = Placeholder() {dtype=float32, shape=[2]}
w = VarHandleOp() {dtype=float32, shape=[2], shared_name="w"}
read = ReadVariableOp(w) {dtype=float32}
y = Mul(x, read)
"""
TABLE = """
x = Placeholder() {dtype=float32, shape=[1]}
word = Placeholder() {dtype=string, shape=[1]}
known = Const() {dtype=string, value=string[1]:["b"]}
table = HashTableV2() {key_dtype=string, value_dtype=float32, shared_name="t"}
keys = Const() {dtype=string, value=string[2]:["a", "b"]}
values = Const() {dtype=float32, value=float32[2]:[1, 2]}
init = LookupTableImportV2(table, keys, values) {Tin=string, Tout=float32}
unknown = Const() {dtype=float32, value=float32[]:-1}
id = LookupTableFindV2(table, LOOKUP, unknown) {Tin=string, Tout=float32}
y = Mul(x, id)
"""
UNUSUAL = """
x = Placeholder() {dtype=float32, shape=[2]}
d = Digamma(x)
y = MyOp(d)
"""


def written(folder: Path, text: str) -> Path:
    (folder / "model.graph").write_text(text)
    return folder / "model.graph"


@pytest.fixture
def checked(command: Any, tmp_path: Path) -> Any:
    """The document of a check of a graph's text or of a file."""

    def check(model: str | Path, target: str, *options: str) -> dict[str, Any]:
        path = written(tmp_path, model) if isinstance(model, str) else model
        done = command("convert-check", path, "--for", target, "--no-run", "--json", *options)
        document: dict[str, Any] = json.loads(done.out)
        assert done.code == document["exit_code"] == (document["summary"]["refused"] > 0)
        return document

    return check


@pytest.mark.smallest
@pytest.mark.parametrize("target", ["lite", "onnx"])
def test_a_merge_of_three_is_refused_until_it_is_functionalized(
    target: str, checked: Any, command: Any, tmp_path: Path
) -> None:
    document = checked(MERGE_OF_THREE, target)
    first, *others = document["result"]["nodes"]
    assert (first["node"], first["verdict"], first["reason"]) == (
        *("m", "refused", "a Merge of 3 inputs"),
    )
    assert {item["verdict"] for item in others} == {"risky"}
    (mending,) = document["result"]["commands"]
    assert mending["remaining"] == []
    words = mending["command"].split()
    assert words[:2] == ["cfgraph", "functionalize"]
    assert command(*words[1:-1], tmp_path / "functional.pb").code == 0
    assert checked(tmp_path / "functional.pb", target)["result"]["nodes"] == []


def test_what_control_edges_alone_need_is_dropped_by_converters(checked: Any) -> None:
    assert checked(ASSERTION, "onnx")["summary"] == {"refused": 0, "risky": 0, "unknown": 0}


def test_variables_of_a_graph_file_have_to_be_frozen(
    checked: Any, fixtures: Path, tmp_path: Path
) -> None:
    document = checked(STATE, "lite", "--fetch", "y")
    assert {item["mended_by"] for item in document["result"]["nodes"]} == {"freeze"}
    (mending,) = document["result"]["commands"]
    assert "cfgraph freeze" in mending["command"]
    assert mending["command"].count("--fetch=y:0") == 1
    assert mending["remaining"] is None
    assert document["result"]["verdict"] == "unknown"
    case = tmp_path / "case.npz"
    np.savez(case, **{"@variable::w": np.ones(2, np.float32)})
    document = checked(STATE, "lite", "--fetch", "y", "--feeds", str(case))
    assert document["result"]["commands"][0]["remaining"] == []
    assert document["result"]["verdict"] == "converts after commands"
    assert checked(fixtures / "saved_model", "lite")["summary"]["refused"] == 0


def test_ops_are_refused_by_the_list_of_the_converter(checked: Any) -> None:
    result = checked(UNUSUAL, "onnx")["result"]
    assert result["verdict"] == "does not convert"
    assert "no command mends 2 refused nodes: Digamma, MyOp" in result["reason"]
    assert result["reason"].endswith("--inputs T --outputs T -o part.pb")
    nodes = result["nodes"]
    assert [(item["op"], item["verdict"], item["reason"]) for item in nodes] == [
        ("Digamma", "refused", "the converter has no such op"),
        ("MyOp", "refused", "an op that is not TensorFlow's"),
    ]


def test_lists_of_dynamic_elements_are_refused_by_lite(
    checked: Any, fixtures: Path, tmp_path: Path
) -> None:
    shutil.unpack_archive(fixtures / "verdicts" / "lstm.zip", tmp_path)
    result = checked(tmp_path / "lstm", "lite")["result"]
    assert EXPORT in result["reason"]
    nodes = result["nodes"]
    assert {(item["op"], item["reason"]) for item in nodes} == {
        ("TensorListReserve", "a list whose elements have no static shape")
    }
    assert all(item["node"].startswith("__inference___call__") for item in nodes)
    assert checked(tmp_path / "lstm", "onnx")["result"]["nodes"] == []


def test_a_static_value_is_no_obstacle(checked: Any) -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float32", [2])
    b.Mul(x, b.Digamma([1.0, 2.0]), name="y")
    assert checked(cfgraph.dumps(b.graph, "graph").decode(), "onnx")["result"]["nodes"] == []


def test_the_text_has_one_row_per_reason(command: Any, tmp_path: Path) -> None:
    path = written(tmp_path, MERGE_OF_THREE)
    done = command("convert-check", path, "--for", "lite", "--no-run")
    assert done.code == 1
    assert [line.split()[:2] for line in done.lines[2:4]] == [["refused", "1"], ["risky", "2"]]
    text = "verdict: converts after commands; by the list of ops alone: the converter was not run"
    assert "  nothing is refused then" in done.lines
    assert done.lines[-4] == text
    assert done.lines[-1].startswith("  python -m tensorflow.lite.python.tflite_convert")
    assert "--graph_def_file functional.pb --input_arrays x,p,q --output_arrays y" in done.lines[-1]
    full = command("convert-check", path, "--for", "lite", "--no-run", "--full")
    assert len(full.lines) == len(done.lines) + 1
    assert command("convert-check", path, "--for", "coreml").code == 2


def test_a_text_file_is_converted_to_one_that_a_converter_reads(checked: Any) -> None:
    result = checked("x = Placeholder() {dtype=float32, shape=[2]}\ny = Neg(x)", "onnx")["result"]
    first, second = result["model_commands"]
    assert first.startswith("cfgraph convert ")
    assert first.endswith("-o model.pb")
    assert "--graphdef model.pb --inputs x:0 --outputs y:0" in second


@pytest.mark.parametrize(
    ("lookup", "verdict", "commands"),
    [("word", "does not convert", 0), ("known", "converts after commands", 1)],
)
def test_constants_in_place_of_tables_are_proposed_where_they_mend(
    lookup: str, verdict: str, commands: int, checked: Any
) -> None:
    result = checked(TABLE.replace("LOOKUP", lookup), "onnx", "--fetch", "y")["result"]
    assert {item["op"] for item in result["nodes"]} == {"HashTableV2", "LookupTableFindV2"}
    assert all("freeze --constant-tables" in item["reason"] for item in result["nodes"])
    assert result["verdict"] == verdict
    assert len(result["commands"]) == commands
    for item in result["commands"]:
        assert "--constant-tables" in item["command"]
        assert item["remaining"] == []
