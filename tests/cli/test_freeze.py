"""`cfgraph freeze`: reports, verification, and errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.ops.opdef.op import function_calls, role_of

TRAINING = """
x = Placeholder() {dtype=float32, shape=[]}
is_training = PlaceholderWithDefault(yes) {dtype=bool, shape=[]}
yes = Const() {dtype=bool, value=bool[]:true}
w = VarHandleOp() {dtype=float32, shape=[], shared_name="w"}
steps = VarHandleOp() {dtype=float32, shape=[], shared_name="steps"}
one = Const() {dtype=float32, value=float32[]:1}
count = AssignAddVariableOp(steps, one) {dtype=float32}
read = ReadVariableOp(w) {dtype=float32}
product = Mul(x, read)
switch = Switch(product, is_training)
dropped = Neg(switch:1)
merged = Merge(switch:0, dropped)
y = Identity(merged)
counted = Identity(merged, ^count)
"""

REFERENCE = """
x = Placeholder() {dtype=float32, shape=[]}
v = VariableV2() {dtype=float32, shape=[]}
two = Const() {dtype=float32, value=float32[]:2}
init = Assign(v, two)
read = Identity(v)
y = Mul(x, read)
"""


@pytest.fixture
def training(tmp_path: Path) -> Path:
    path = tmp_path / "training.graph"
    path.write_text(TRAINING)
    state = cfgraph.Session(cfgraph.loads(TRAINING.encode())).state
    builder = cfgraph.loads(
        TRAINING.encode()
        + b"set = AssignVariableOp(w, two) {dtype=float32}\n"
        + b"two = Const() {dtype=float32, value=float32[]:2}\n"
        + b"zero = AssignVariableOp(steps, one) {dtype=float32}\n"
    )
    session = cfgraph.Session(builder, state=state)
    session.run(targets=["set", "zero"])
    cfgraph.save_variables(session.state, tmp_path / "weights")
    return path


def test_a_training_graph_ends_without_branches(command: Any, training: Path) -> None:
    folder = training.parent
    line = ("freeze", training, "--variables", folder / "weights", "--set", "is_training=false")
    done = command(*line, "--fetch", "y", "--verify", "-o", folder / "o.pb")
    assert done.code == 0, done.err
    assert "1 variable, 4 B: constant now" in done.err
    assert "constants in place of inputs: is_training:0" in done.err
    assert "merged  Merge   Identity" in done.err
    frozen = cfgraph.load(folder / "o.pb")
    assert {node.op for node in frozen} == {"Placeholder", "Const", "Mul", "Identity"}
    assert cfgraph.Session(frozen).run(["y"], {"x": 4.0}) == [8.0]


def test_a_variable_that_stays_is_explained(command: Any, training: Path) -> None:
    line = ("freeze", training, "--variables", training.parent / "weights")
    done = command(*line, "--fetch", "counted", "--json", "-o", training.parent / "o.pb")
    assert done.code == 0, done.err
    by_name = {item["name"]: item for item in done.json["result"]["variables"]}
    assert by_name["steps"]["node"] == "count"
    assert by_name["steps"]["reason"] == "assigned by count (AssignAddVariableOp)"
    assert by_name["w"]["constant"]
    kept = command(*line, "--fetch", "y", "--keep-variables", "w", "--to", "graph").err
    assert "kept on request" in kept
    warned = command(*line, "--fetch", "y", "--keep-variables", "u", "--to", "graph").err
    assert "warning: no output needs a variable named u" in warned


def test_a_case_has_the_values_of_variables(command: Any, training: Path) -> None:
    case, out = training.parent / "case.npz", training.parent / "o.pb"
    line = ("freeze", training, "--set", "is_training=false", "--fetch", "y", "--verify", "-o", out)
    np.savez(case, **{"@variable::w": np.float32(3)})
    done = command(*line, "--feeds", case)
    assert done.code == 0, done.err
    assert cfgraph.Session(cfgraph.load(out)).run(["y"], {"x": 4.0}) == [12.0]
    np.savez(case, **{"@variable::other": np.float32(3)})
    assert "no values of the variables w" in command(*line, "--feeds", case).err


@pytest.mark.parametrize("options", ["", "--init init", "--init init --verify"])
def test_the_hint_for_missing_values_writes_those_of_an_initializer(
    command: Any, options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("g.graph").write_text(REFERENCE)
    line = ("freeze", "g.graph", "--fetch", "y", "-o", "frozen.pb")
    done = command(*line, *options.split())
    assert done.code == 2
    words = re.search(r"cfgraph (run GRAPH \S+ INIT \S+ ck)", done.err)
    assert words, done.err
    save = words[1].replace("GRAPH", "g.graph").replace("INIT", "init")
    assert command(*save.split()).code == 0
    assert command(*line, "--variables", "ck").code == 0
    assert cfgraph.Session(cfgraph.load("frozen.pb")).run(["y"], {"x": 4.0}) == [8.0]


def test_missing_values_and_outputs_are_usage_errors(command: Any, training: Path) -> None:
    done = command("freeze", training, "--fetch", "y", "-o", "-")
    assert (done.code, "no values of the variables w" in done.err) == (2, True)
    assert "--variables PATH" in done.err
    line = ("freeze", training, "--fetch", "y", "-o", "-")
    for path in (training.parent / "missing", training):
        done = command(*line, "--variables", path)
        assert done.code in (2, 3)
        assert path.name in done.err
        assert "no values of the variables" not in done.err
    done = command("freeze", training, "-o", "-")
    assert (done.code, "--fetch NAME" in done.err) == (2, True)
    line = ("freeze", training, "--fetch", "y", "--variables", training.parent / "weights")
    done = command(*line, "--set", "is_training=[1]", "-o", "-")
    assert done.code == 2


def test_a_pipeline_freezes(command: Any, training: Path) -> None:
    passes = f"freeze{{fetch=y set=is_training=false variables={training.parent / 'weights'}}}"
    done = command("pipeline", training, "-p", passes, "--to", "graph")
    assert done.code == 0, done.err
    assert "Switch" not in done.out


@pytest.mark.parametrize("signature", [None, "scale"])
def test_saved_models_agree_on_their_signature(
    command: Any, fixtures: Path, tmp_path: Path, signature: str | None
) -> None:
    name = "saved_model" if signature is None else "saved_model_tables"
    line = ["freeze", fixtures / name, "--verify", "-o", tmp_path / "o.pb"]
    done = command(*line, *(["--signature", signature] if signature else []))
    assert done.code == 0, done.err
    frozen = cfgraph.load(tmp_path / "o.pb")
    assert not {"VarHandleOp", "ReadVariableOp"} & frozen.ops
    assert f"x is {signature or 'serving_default'}_x:0" in done.err


def test_tables_stay_with_their_initializers(command: Any, fixtures: Path, tmp_path: Path) -> None:
    line = ("freeze", fixtures / "saved_model_tables", "--feed", 'serving_default_words=["b"]')
    done = command(*line, "--verify", "-o", tmp_path / "o.pb")
    assert done.code == 0, done.err
    assert "table hash_table is empty until its initializer runs" in done.err
    named = "--constant-tables makes constants of tables that are filled once: hash_table, hash_t"
    assert named in done.err
    # the path of the vocabulary is no variable of the model
    assert "still variables" not in done.out + done.err
    frozen = cfgraph.load(tmp_path / "o.pb")
    session = cfgraph.Session(frozen, allow_io=True)
    vocabulary = str(fixtures / "saved_model_tables" / "assets" / "vocab.txt")
    targets = [node.name for node in frozen if node.op in TABLE_WRITERS]
    assert len(targets) == len(TABLE_WRITERS)
    session.run(targets=targets, feeds={"asset_path_initializer": vocabulary})
    words = np.array(["b", "y", "?"], object)
    outputs = ["StatefulPartitionedCall_1:0", "StatefulPartitionedCall_1:1"]
    found = session.run(outputs, {"serving_default_words": words})
    assert [value.tolist() for value in found] == [[2, -1, -1], [-1, 1, -1]]
    assert not any(role_of(node) or function_calls(node.op).kind for node in frozen)


def test_a_file_of_words_becomes_a_constant(command: Any, fixtures: Path, tmp_path: Path) -> None:
    line = ("freeze", fixtures / "saved_model_tables", "--feed", 'serving_default_words=["y"]')
    done = command(*line, "--constant-tables", "--verify", "-o", tmp_path / "o.pb")
    assert done.code == 0, done.err
    assert "constants in place of tables: hash_table (2 rows), hash_table_1 (3 rows)" in done.err
    frozen = cfgraph.load(tmp_path / "o.pb")
    assert not {op for op in frozen.ops if "Table" in op}
    outputs = ["StatefulPartitionedCall_1:0", "StatefulPartitionedCall_1:1"]
    words = np.array(["b", "y", "?"], object)
    found = cfgraph.Session(frozen).run(outputs, {"serving_default_words": words})
    assert [value.tolist() for value in found] == [[2, -1, -1], [-1, 1, -1]]


TABLE_WRITERS = {"LookupTableImportV2", "InitializeTableFromTextFileV2"}


def test_the_command_extracts_with_the_values_of_a_run(
    command: Any, fixtures: Path, tmp_path: Path
) -> None:
    folder = fixtures / "frozen_training"
    line = ("extract", folder / "resources.pb", "--outputs", "y", "--feed", "is_training=false")
    feed = f"x=@{folder / 'values.npz'}[x]"
    done = command(*line, "--feed", feed, "-o", tmp_path / "y.graph")
    assert done.code == 0, done.err
    (y,) = cfgraph.Session(cfgraph.load(tmp_path / "y.graph")).run(["y"])
    np.testing.assert_allclose(y, np.load(folder / "values.npz")["resources"], rtol=1e-6)


def test_the_result_is_verified_against_the_run_of_the_file(
    command: Any, fixtures: Path, tmp_path: Path
) -> None:
    folder = fixtures / "frozen_training"
    line = ("freeze", folder / "functional_loop.pb", "--fetch", "y", "--set", "is_training=false")
    done = command(*line, "--verify", "-o", tmp_path / "y.pb")
    assert done.code == 0, done.err
    assert "no differences" in done.err


def test_the_command_drops_updates_that_a_fetch_waits_for(command: Any, training: Path) -> None:
    folder = training.parent
    line = ("freeze", training, "--variables", folder / "weights", "--fetch", "counted")
    warned = command(*line, "--set", "is_training=false", "-o", folder / "kept.pb")
    assert "--drop-updates drops what outputs wait for, but do not read: count" in warned.err
    done = command(*line, "--set", "is_training=false", "--drop-updates", "--verify", "-o", "-")
    assert "dropped updates of variables, which no output reads in the same run: count" in done.err
    assert done.code == 0, done.err
    step = f"freeze{{variables={folder / 'weights'} fetch=counted drop-updates}}"
    each = ("--verify-each", "--variables", folder / "weights", "-o", folder / "frozen.pb")
    done = command("pipeline", training, "-p", step, *each)
    assert done.code == 0, done.err
