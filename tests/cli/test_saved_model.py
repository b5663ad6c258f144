"""A SavedModel runs with its saved variables."""

from __future__ import annotations

import gzip
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

import cfgraph
from cfgraph.errors import ExecutionError, InvalidInput, UsageError
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.serde.checkpoint import Checkpoint, write_checkpoint
from cfgraph.proto import graph_pb2, saved_model_pb2

FEED = ["--feed", "serving_default_x=[[1, 2]]"]
# computed by TensorFlow
Y = "StatefulPartitionedCall:1=[[1.8203125, 5.5546875]]"
INIT = """
node { name: "zero" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "value"
  value { tensor { dtype: DT_FLOAT tensor_shape { dim { size: 2 } } float_val: 0 } } } }
node { name: "init" op: "AssignVariableOp" input: "same" input: "zero"
  attr { key: "dtype" value { type: DT_FLOAT } } }
"""
LABEL = 'StatefulPartitionedCall:0="cat!"'


@pytest.fixture
def saved(fixtures: Path) -> Path:
    return fixtures / "saved_model"


@pytest.fixture
def broken(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "broken"))


@pytest.mark.parametrize("name", ["", "saved_model.pb"])
def test_a_run_begins_with_the_variables(command: Any, saved: Path, name: str) -> None:
    done = command("run", saved / name, *FEED, "--expect", Y, "--expect", LABEL)
    assert done.code == 0
    assert f"restored 4 variables from {saved}/variables/variables" in done.err


def test_what_nothing_is_named_to_fetch_saves_nothing(command: Any, saved: Path) -> None:
    done = command("run", saved, *FEED)
    assert done.code == 0
    assert "StatefulPartitionedCall:1" in done.out
    assert "StatefulPartitionedCall_1" not in done.out


def test_the_form_of_the_file_does_not_matter(command: Any, broken: Path) -> None:
    file = broken / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    (broken / "saved_model.pb.gz").write_bytes(gzip.compress(file.read_bytes()))
    (broken / "saved_model.pbtxt").write_text(text_format.MessageToString(model))
    for name in ("saved_model.pb.gz", "saved_model.pbtxt"):
        done = command("run", broken / name, *FEED, "--expect", Y)
        assert (done.code, "restored 4 variables" in done.err) == (0, True), name


@pytest.mark.parametrize("field", ["restore_op_name", "filename_tensor_name"])
def test_a_saver_that_names_nothing_of_the_graph_is_refused(
    command: Any, broken: Path, field: str
) -> None:
    file = broken / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    setattr(model.meta_graphs[0].saver_def, field, "elsewhere")
    file.write_bytes(model.SerializeToString())
    done = command("run", broken, *FEED)
    assert (done.code, "restores variables by 'elsewhere'" in done.err) == (3, True)


def test_what_to_type_next_runs(command: Any, saved: Path) -> None:
    done = command("show", saved)
    assert done.code == 0
    assert "a run restores the variables" in done.err
    assert "saver_filename" not in done.lines[-1]


def test_variables_that_are_restored_are_not_initialized(
    command: Any, broken: Path, tmp_path: Path
) -> None:
    file = broken / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    nodes = model.meta_graphs[0].graph_def
    nodes.MergeFrom(text_format.Parse(INIT, graph_pb2.GraphDef()))
    file.write_bytes(model.SerializeToString())
    assert "--init" not in command("show", broken).lines[-1]
    cfgraph.save(cfgraph.load(broken), tmp_path / "alone.pb")
    assert "--init init" in command("show", tmp_path / "alone.pb").lines[-1]


def test_what_was_made_of_the_graph_restores_them_by_the_same_node(
    command: Any, saved: Path, tmp_path: Path
) -> None:
    lowered = tmp_path / "lowered.pb"
    assert command("lower", saved, "-o", lowered).code == 0
    prefix = f'saver_filename="{saved}/variables/variables"'
    first = ["--init", "StatefulPartitionedCall_2", "--feed", prefix]
    assert command("run", lowered, *FEED, *first, "--expect", Y).code == 4
    assert command("run", lowered, *FEED, *first, "--expect", Y, "--allow-io").code == 0
    assert command("run", lowered, *FEED, "--expect", Y).code == 5


def test_a_session_takes_the_variables_as_its_state(saved: Path) -> None:
    graph, state = cfgraph.load(saved), cfgraph.restore(saved)
    cfgraph.lower(graph)
    (slope,) = cfgraph.gradients(graph, "StatefulPartitionedCall:1", "same")
    assert slope is not None
    session = cfgraph.Session(graph, state=state)
    y, by_bias = session.run(["StatefulPartitionedCall:1", slope], {"serving_default_x": [[1, 2]]})
    np.testing.assert_allclose(y, [[1.8203125, 5.5546875]])
    w = np.array([[0.5, -0.25], [0.125, 1.0]])
    np.testing.assert_allclose(by_bias, (np.eye(2) + w + w @ w).sum(axis=1))


def test_bytes_that_are_not_there_are_said_to_be_lacking(command: Any, broken: Path) -> None:
    shard = broken / "variables" / "variables.data-00000-of-00001"
    shard.write_bytes(shard.read_bytes()[:20])
    done = command("run", broken, *FEED)
    assert (done.code, "CFG038" in done.err) == (5, True)
    shard.unlink()
    done = command("run", broken, *FEED)
    assert (done.code, "variables.data-00000-of-00001" in done.err) == (5, True)


def test_a_graph_without_its_variables_says_so(command: Any, broken: Path) -> None:
    shutil.rmtree(broken / "variables")
    done = command("show", broken)
    assert (done.code, "the SavedModel contains no variable values" in done.err) == (0, True)
    assert command("run", broken, *FEED).code == 5
    with pytest.raises(UsageError, match="no variables"):
        cfgraph.restore(broken)
    with pytest.raises(InvalidInput, match="no such file"):
        cfgraph.restore(broken / "nothing")


def test_what_saves_and_restores_is_not_compared(command: Any, saved: Path, tmp_path: Path) -> None:
    lowered = tmp_path / "lowered.pb"
    prefix = f'saver_filename="{saved}/variables/variables"'
    first = ["--init", "StatefulPartitionedCall_2", "--feed", prefix]
    done = command("lower", saved, "--verify", *first, "-o", lowered)
    assert (done.code, "6 fetches agree" in done.err) == (0, True)
    assert "saver_filename" not in command("show", lowered).lines[-1]


def test_a_run_that_is_explained_begins_with_the_variables_too(command: Any, saved: Path) -> None:
    done = command("explain", saved, "StatefulPartitionedCall", *FEED)
    assert (done.code, "ran once" in done.out) == (0, True)
    done = command("explain", saved, "steps/Read/ReadVariableOp", "--run")
    assert (done.code, "restored 1 variable from" in done.err) == (0, True)


@pytest.mark.parametrize(
    ("slices", "types"),
    [(2, "(float32)"), (1, "(float32, float32)"), (2, "(float32, float32, int32)")],
)
def test_names_slices_and_types_of_what_is_restored_are_as_many(
    saved: Path, slices: int, types: str
) -> None:
    value = "/.ATTRIBUTES/VARIABLE_VALUE"
    graph = cfgraph.loads(
        f"""
prefix = Const() {{dtype=string, value=string[]:"{saved}/variables/variables"}}
names = Const() {{dtype=string, value=string[2]:["w{value}","b{value}"]}}
slices = Const() {{dtype=string, value=string[{slices}]:[{",".join(['""'] * slices)}]}}
r = RestoreV2(prefix, names, slices) {{dtypes={types}}}
""".encode()
    )
    with pytest.raises(ExecutionError, match=f"2 names, {slices} slices"):
        cfgraph.Session(graph).run(["r"])


def _short(folder: Path) -> None:
    """Truncate the file at the last bytes of the label."""
    shard = folder / "variables" / "variables.data-00000-of-00001"
    data = shard.read_bytes()
    shard.write_bytes(data[: data.index(b"cat") + 2])


def test_what_a_fetch_does_not_need_is_not_restored(command: Any, broken: Path) -> None:
    _short(broken)
    done = command("run", broken, "--fetch", "same_1/Read/ReadVariableOp")
    assert (done.code, "restored 1 variable from" in done.err) == (0, True)
    assert "-0.25" in done.out
    assert command("run", broken, "--fetch", "label/Read/ReadVariableOp").code == 5
    done = command("run", broken, "--target", "NoOp")
    assert (done.code, "restored" in done.err) == (0, False)


def test_what_was_made_of_a_saved_model_is_compared_with_its_variables(
    command: Any, broken: Path, tmp_path: Path
) -> None:
    y, made = "StatefulPartitionedCall:1", tmp_path / "made.pb"
    for line in (
        ("lower", broken, "--verify"),
        ("cluster", broken, "--verify"),
        ("partition", broken, "--devices", "cpu:0,cpu:1", "--verify"),
        ("grad", broken, "--ys", y, "--verify", "--check"),
    ):
        done = command(*line, "-o", made)
        assert (done.code, "note: restored 4 variables" in done.err) == (0, True), line
    # where the variables cannot be read, the comparison cannot be made
    _short(broken)
    assert command("lower", broken, "--verify", "-o", tmp_path / "none.pb").code == 5


def test_graphs_are_compared_each_with_the_variables_next_to_it(
    command: Any, saved: Path, broken: Path, tmp_path: Path
) -> None:
    lowered = tmp_path / "lowered.pb"
    assert command("lower", saved, "-o", lowered).code == 0
    for pair in ((saved, lowered), (lowered, saved), (saved, broken)):
        assert command("diff", "--run", *pair).code == 0, pair
    prefix = str(broken / "variables" / "variables")
    checkpoint = Checkpoint(prefix)
    tensors = {name: checkpoint.read(name) for name in checkpoint.entries}
    changed = {name: x + 1 if x.dtype.kind == "f" else x for name, x in tensors.items()}
    with StagedFiles() as files:
        write_checkpoint(files, prefix, changed)
    done = command("diff", "--run", saved, broken)
    assert done.code == 1
    assert "StatefulPartitionedCall:1: 4 of 4 elements differ" in done.out
    assert command("diff", "--run", lowered, broken, "--variables", broken).code == 0


@pytest.mark.parametrize("place", ["", "saved_model.pb", "variables", "variables/variables.index"])
def test_variables_travel_next_to_a_pipe(command: Any, saved: Path, place: str) -> None:
    lowered = command("lower", saved).data
    done = command("run", "-", *FEED, "--variables", saved / place, "--expect", Y, stdin=lowered)
    assert (done.code, "restored 4 variables" in done.err) == (0, True)
    done = command("run", "-", *FEED, stdin=lowered)
    assert (done.code, "--variables PATH" in done.err) == (5, True)


NAMED = """
w = VarHandleOp() {dtype=float32, shape=[2,2], shared_name="w/.ATTRIBUTES/VARIABLE_VALUE"}
value = ReadVariableOp(w) {dtype=float32}
"""


def test_a_checkpoint_has_variables_by_their_names(
    command: Any, saved: Path, tmp_path: Path
) -> None:
    for suffix in (".index", ".data-00000-of-00001"):
        shutil.copy(saved / "variables" / f"variables{suffix}", tmp_path / f"step-7{suffix}")
    prefix, want = tmp_path / "step-7", "value=[[0.5, -0.25], [0.125, 1.0]]"
    for text, code, expected in (
        (NAMED, 0, f"restored 1 variable from {prefix}"),
        (NAMED.replace("w/.", "u/."), 2, "required variables: u/.ATTRIBUTES"),
        (
            NAMED.replace("[2,2]", "[2,3]"),
            3,
            "float32[2, 2] in the checkpoint, expected float32[2,3]",
        ),
        (
            NAMED.replace("float32", "float64"),
            3,
            "is float32[2, 2] in the checkpoint, expected float64",
        ),
    ):
        line = ("run", "-", "--variables", prefix, "--expect", want)
        done = command(*line, stdin=text.encode())
        assert (done.code, expected in done.err) == (code, True), done.err
    graph = cfgraph.loads(NAMED.encode())
    (value,) = cfgraph.Session(graph, state=cfgraph.restore(prefix, graph)).run("value")
    assert value[1, 0] == 0.125


@pytest.mark.parametrize(
    ("graph", "place", "code", "expected"),
    [
        (NAMED, "nowhere", 3, "no such file"),
        (NAMED, "assets", 2, "found neither a SavedModel with variables nor a checkpoint"),
        (NAMED, "model.zip", 2, "hint: unpack the archive, and name the folder"),
        ("one = Const() {dtype=int32, value=int32[]:1}", "", 2, "remove --variables"),
    ],
)
def test_variables_that_nobody_can_use_are_refused(
    command: Any, broken: Path, graph: str, place: str, code: int, expected: str
) -> None:
    (broken / "assets").mkdir()
    with zipfile.ZipFile(broken / "model.zip", "w") as archive:
        archive.writestr("saved_model.pb", b"")
    done = command("run", "-", "--variables", broken / place, stdin=graph.encode())
    assert (done.code, expected in done.err) == (code, True), done.err


def test_the_folder_of_the_variables_is_no_graph(command: Any, saved: Path) -> None:
    done = command("show", saved / "variables")
    assert (done.code, f"the parent folder, {saved}?" in done.err) == (3, True)
