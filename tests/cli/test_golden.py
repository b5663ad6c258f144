"""`record` writes inputs and outputs of a model, with which `diff MODEL golden.npz` compares it."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph


@pytest.fixture
def model(tmp_path: Path, fixtures: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(fixtures / "saved_model", "model")
    return Path("model")


def changed(golden: str, **arrays: Any) -> str:
    """A copy of an archive with other arrays."""
    entries = dict(np.load(golden))
    entries.update({name.replace("__", "/"): value for name, value in arrays.items()})
    np.savez("changed.npz", **entries)
    return "changed.npz"


def test_a_model_agrees_with_what_was_recorded_of_it(model: Path, command: Any) -> None:
    done = command("record", model, "-o", "golden.npz", "--cases", "3")
    assert (done.code, done.out) == (0, "")
    assert "recorded 3 cases in golden.npz" in done.err
    assert "inputs x; outputs label, y" in done.err
    arrays = np.load("golden.npz")
    assert {name.partition("/")[2] for name in arrays if name[0] != "@"} == {
        "in/x", "out/y", "out/label"
    }  # fmt: skip
    assert not np.array_equal(arrays["0/in/x"], arrays["1/in/x"])
    same = command("diff", model, "golden.npz")
    assert (same.code, same.out) == (0, "no differences: 2 fetches agree in 3 cases\n")
    before = Path("golden.npz").read_bytes()
    command("record", model, "-o", "golden.npz", "--cases", "3")
    assert Path("golden.npz").read_bytes() == before


def test_an_output_that_differs_is_reported_with_its_case(model: Path, command: Any) -> None:
    command("record", model, "-o", "golden.npz", "--fetch", "y")
    y = np.load("golden.npz")["2/out/y"]
    other = changed("golden.npz", **{"2__out__y": y + 1})
    done = command("diff", model, other)
    assert done.code == 1
    assert done.lines[0] == "golden outputs  A is changed.npz, B is model"
    assert done.lines[1].startswith(f"y: {y.size} of {y.size} elements differ")
    assert done.lines[-1].startswith(
        "found in case 3; to run it: cfgraph run model --fetch=y --feed"
    )
    repeated = command(*shlex.split(done.lines[-1].partition("cfgraph ")[2]), "--out", "y=@y.npy")
    assert repeated.code == 0, repeated.err
    assert np.array_equal(np.load("y.npy"), y)
    assert command("diff", model, other, "--atol", "2").code == 0
    line = command("diff", model, other, "--format", "github").out
    assert line.startswith("::error file=model,title=CFG804::y: ")
    result = command("diff", model, other, "--json").json
    assert result["summary"] == {"fetches": 1, "cases": 3, "differences": 1}


def test_other_weights_are_a_difference(model: Path, command: Any) -> None:
    command("record", model, "-o", "golden.npz", "--fetch", "y")
    state = cfgraph.restore(model)
    for _, variable in state.variables():
        if variable.value is not None and np.asarray(variable.value).dtype == np.float32:
            variable.value = np.asarray(variable.value) + 1
    Path("other").mkdir()
    cfgraph.save_variables(state, "other/variables")
    done = command("diff", model, "golden.npz", "--variables", "other/variables")
    assert (done.code, done.lines[1].startswith("y: ")) == (1, True), done.err
    line = shlex.split(done.lines[-1].partition("cfgraph ")[2])
    assert command(*line, "--out", "y=@y.npy").code == 0
    assert not np.allclose(np.load("y.npy"), np.load("golden.npz")["0/out/y"])


def test_a_derived_graph_is_compared_by_the_names_of_the_signature(
    model: Path, command: Any
) -> None:
    command("record", model, "-o", "golden.npz", "--fetch", "y")
    assert command("freeze", model, "-o", "frozen.pb").code == 0
    done = command("diff", "frozen.pb", "golden.npz")
    paired = "note: output paired by type and shape: y is StatefulPartitionedCall:1 in B"
    assert (done.code, done.lines[1]) == (0, paired), done.err
    done = command("diff", "frozen.pb", "golden.npz", "--variables", model)
    assert (done.code, done.out) == (0, "no differences: 1 fetch agrees in 4 cases\n"), done.err
    assert command("grad", model, "--ys", "y", "-o", "gradients/").code == 0
    assert command("diff", "gradients", "golden.npz").code == 0


def test_a_recorded_output_is_compared_with_the_counterpart_that_is_named(
    model: Path, command: Any
) -> None:
    assert command("record", model, "-o", "golden.npz").code == 0
    for name, other, port in (("y", "label", 0), ("label", "y", 1)):
        done = command("diff", model, "golden.npz", "--fetch", f"{name}={other}")
        assert (done.code, done.lines[1].partition(":")[0]) == (1, name), done.out
        assert f"cfgraph run model --fetch=StatefulPartitionedCall:{port} " in done.lines[-1]
        assert command("diff", model, "golden.npz", "--fetch", f"{name}={name}").code == 0
    done = command("diff", model, "golden.npz", "--fetch", "other=y")
    assert (done.code, "the output 'other' is not recorded" in done.err) == (2, True)


def test_recorded_names_that_a_model_lacks_are_paired_by_type_and_shape(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "{x} = Placeholder() {{dtype=float32, shape=[?,2]}}\n{y} = {op}({x})\n"
    Path("a.graph").write_text(text.format(x="x", y="y", op="Neg"))
    # `x` is the end of a name, and not the input
    Path("b.graph").write_text(text.format(x="inputs", y="layer/x", op="Neg"))
    Path("c.graph").write_text(text.format(x="inputs", y="layer/x", op="Abs"))
    integers = text.format(x="inputs", y="layer/x", op="Abs").replace("float32", "int32")
    Path("d.graph").write_text(integers)
    assert command("record", "a.graph", "-o", "golden.npz").code == 0
    done = command("diff", "b.graph", "golden.npz")
    assert (done.code, done.lines) == (
        0,
        [
            "note: input paired by type and shape: x is inputs in B",
            "note: output paired by type and shape: y is layer/x in B",
            "no differences: 1 fetch agrees in 4 cases",
        ],
    )
    done = command("diff", "c.graph", "golden.npz")
    assert done.code == 1
    line = shlex.split(done.lines[-1].partition("cfgraph ")[2])
    assert command(*line, "--out", "layer/x=@y.npy").code == 0
    done = command("diff", "d.graph", "golden.npz")
    lines = [
        "error: the model has no input 'x:0', which is recorded",
        "  hint: its inputs: inputs:0",
    ]
    assert (done.code, done.err.splitlines()) == (2, lines)


def test_an_array_that_no_tensor_can_be_has_no_counterpart(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.graph").write_text("x = Placeholder() {dtype=float32, shape=[2]}\ny = Neg(x)\n")
    value = np.ones(2, np.float32)
    for name in ("in/input", "out/output"):
        arrays = {"0/in/x": value, "0/out/y": value, f"0/{name}": value.astype(np.longdouble)}
        np.savez("golden.npz", **arrays)
        done = command("diff", "a.graph", "golden.npz")
        kind = name.rpartition("/")[2]
        assert (done.code, f"the model has no {kind} '{kind}'" in done.err) == (2, True), done.err


def test_an_error_lists_the_outputs_of_the_model_alone(model: Path, command: Any) -> None:
    arrays = np.zeros((1, 2), np.float32), np.zeros(1, np.int8)
    np.savez("golden.npz", **{"0/in/x": arrays[0], "0/out/y:1": arrays[0], "0/out/y:0": arrays[1]})
    done = command("diff", model, "golden.npz")
    assert (done.code, done.err.splitlines()[1:]) == (
        2,
        ["  hint: its outputs: label, y; --fetch y:0=OUTPUT compares another one"],
    )


@pytest.mark.parametrize(
    ("y", "feeds", "cases"),
    [
        ("Neg(x)", ["--feed", "x=[1]"], 1),
        ("Neg(x)", [], 3),
        ("RandomStandardNormal(x) {dtype=float32}", ["--feed", "x=[2]"], 3),
    ],
)
def test_cases_in_which_nothing_is_random_are_recorded_once(
    y: str, feeds: list[str], cases: int, model: Path, command: Any
) -> None:
    Path("x.graph").write_text(f"x = Placeholder() {{dtype=int32, shape=[1]}}\ny = {y}\n")
    done = command("record", "x.graph", *feeds, "--cases", "3", "-o", "golden.npz")
    assert done.code == 0, done.err
    assert {name[0] for name in np.load("golden.npz")} == {"@", *"012"[:cases]}
    assert ("all cases are equal: one is recorded" in done.err) is (cases == 1)
    assert command("diff", "x.graph", "golden.npz").code == 0


def test_a_dead_output_is_recorded_as_dead(command: Any, tmp_path: Path) -> None:
    graph = tmp_path / "branch.graph"
    graph.write_text(
        "x = Placeholder() {dtype=float32, shape=[]}\n"
        "p = Placeholder() {dtype=bool, shape=[]}\n"
        "switch = Switch(x, p)\n"
        "double = AddV2(switch:1, switch:1)\n"
        "single = Neg(switch:0)\n"
    )
    golden = tmp_path / "golden.npz"
    fetches = ["--fetch", "double", "--fetch", "single"]
    assert command("record", graph, *fetches, "--feed", "p=true", "-o", golden).code == 0
    assert "0/dead/single:0" in np.load(golden)
    assert command("diff", graph, golden).code == 0
    graph.write_text(graph.read_text().replace("Neg(switch:0)", "Neg(switch:1)"))
    done = command("diff", graph, golden)
    assert (done.code, "single:0: dead in A, live in B" in done.out) == (1, True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("record model -o golden.txt", "golden outputs are an .npz file"),
        ("record model -o x.npz --fetch nosuch", "nosuch"),
        ("diff model golden.npz --feed x=[[1,2]]", "--feed has no use with golden outputs"),
        ("diff model golden.npz --by structure", "--by has no use with golden outputs"),
        ("diff model golden.npz --fetch label", "the output 'label' is not recorded"),
        ("diff other.graph golden.npz", "the model has no output 'y', which golden.npz has"),
        ("record variable.graph -o x.npz", "the variable has no value\n  at node 'v'"),
        ("diff model none.npz", "the archive has no cases"),
        ("diff model feeds.npz", "'x' is neither an input nor an output of a case"),
        ("diff more.graph y.npz", "no value of the input 'z:0' is recorded"),
    ],
)
def test_what_cannot_be_compared_is_an_error(
    line: str, message: str, model: Path, command: Any
) -> None:
    assert command("record", model, "-o", "golden.npz", "--fetch", "y").code == 0
    Path("other.graph").write_text("x = Placeholder() {dtype=float32, shape=[2]}\nz = Neg(x)\n")
    Path("more.graph").write_text(
        "x = Placeholder() {dtype=float32, shape=[2]}\n"
        "z = Placeholder() {dtype=float32, shape=[2]}\ny = AddV2(x, z)\n"
    )
    Path("variable.graph").write_text(
        "v = VarHandleOp() {dtype=float32, shape=[]}\ny = ReadVariableOp(v) {dtype=float32}\n"
    )
    np.savez("none.npz")
    np.savez("feeds.npz", x=np.zeros(2))
    np.savez("y.npz", **{"0/in/x:0": np.zeros(2, "f"), "0/out/y:0": np.zeros(2, "f")})
    done = command(*line.split())
    assert done.code in (2, 3)
    assert message in done.err
    assert not Path("x.npz").exists()


def test_strings_are_recorded(command: Any, tmp_path: Path) -> None:
    graph = tmp_path / "text.graph"
    graph.write_text("x = Placeholder() {dtype=string, shape=[2]}\ny = StringUpper(x)\n")
    golden = tmp_path / "golden.npz"
    assert command("record", graph, "-o", golden).code == 0
    assert command("diff", graph, golden).code == 0
    graph.write_text(graph.read_text().replace("StringUpper", "StringLower"))
    assert command("diff", graph, golden).code == 1


WORDS = {b"", b"a", b"0", b"two words", "\u00dcn\u00efcode".encode()}
TEXT_MODEL = r"""
x = Placeholder() {dtype=string, shape=[64]}
table = HashTableV2() {key_dtype=string, value_dtype=int64}
keys = Const() {dtype=string, value=string[3]:["cat", "zero\x00", "\x00"]}
values = Const() {dtype=int64, value=int64[3]:[1, 2, 3]}
init = LookupTableImportV2(table, keys, values)
unknown = Const() {dtype=int64, value=int64[]:-1}
y = LookupTableFindV2(table, x, unknown)
prefix = Placeholder() {dtype=string, shape=[]}
saved = Const() {dtype=string, value=string[1]:["w/.ATTRIBUTES/VARIABLE_VALUE"]}
slices = Const() {dtype=string, value=string[1]:[""]}
save = SaveV2(prefix, saved, slices, unknown) {dtypes=(int64)}
"""


@pytest.mark.parametrize(
    ("options", "key"), [("text.graph --fetch y", b"cat"), ("tables --size words=64", b"b")]
)
def test_recorded_texts_are_storable_and_what_the_outputs_need(
    options: str, key: bytes, model: Path, command: Any, fixtures: Path
) -> None:
    Path("text.graph").write_text(TEXT_MODEL)
    shutil.copytree(fixtures / "saved_model_tables", "tables")
    done = command("record", *options.split(), "--cases", "4", "-o", "golden.npz")
    assert done.code == 0, done.err
    arrays = np.load("golden.npz")
    inputs = [arrays[entry] for entry in arrays if "/in/" in entry]
    assert {text for array in inputs for text in array.flat} == WORDS | {key}
    assert command("diff", options.split(maxsplit=1)[0], "golden.npz").code == 0
