"""Checkpoints that are written here are read here, and by TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cfgraph
from cfgraph.errors import InvalidInput, Unsupported, UsageError
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.serde.checkpoint import Checkpoint, write_checkpoint
from cfgraph.runtime.engine.step import State

TENSORS: dict[str, Any] = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "scalar": np.int64(-7),
    "empty": np.zeros((0, 4), np.float64),
    "flag": np.bool_(True),
    "half/precision": np.array([1.5, -2], ml_dtypes.bfloat16),
    "complex": np.array([1 + 2j], np.complex64),
    "text": np.array([[b"a", b""], [b"long" * 100, b"\0"]], object),
    "größe": np.float64(2.5),
}


def written(folder: Path, tensors: dict[str, Any]) -> str:
    prefix = str(folder / "variables")
    with StagedFiles() as files:
        paths = write_checkpoint(files, prefix, tensors)
    assert all(Path(path).is_file() for path in paths)
    return prefix


def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    checkpoint = Checkpoint(written(tmp_path, TENSORS))
    assert sorted(checkpoint.entries) == sorted(TENSORS)
    for name, value in TENSORS.items():
        read = checkpoint.read(name)
        assert read.dtype == np.asarray(value).dtype
        assert read.shape == np.shape(value)
        assert read.tolist() == value.tolist()


@pytest.mark.parametrize("name", ["w", "text"])
def test_a_changed_byte_is_noticed(name: str, tmp_path: Path) -> None:
    prefix = written(tmp_path, {name: TENSORS[name]})
    shard = Path(f"{prefix}.data-00000-of-00001")
    data = bytearray(shard.read_bytes())
    data[-2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(InvalidInput, match=f"the checksum of '{name}' does not match") as caught:
        Checkpoint(prefix).read(name)
    assert caught.value.code == "CFG038"


def test_many_variables_take_several_blocks(tmp_path: Path) -> None:
    tensors = {f"layer_{number:05d}/{'kernel' * 5}": np.int32(number) for number in range(9000)}
    prefix = written(tmp_path, tensors)
    assert Path(f"{prefix}.index").stat().st_size > 1 << 18
    checkpoint = Checkpoint(prefix)
    assert {name: int(checkpoint.read(name)) for name in tensors} == tensors


@pytest.mark.interop
def test_tensorflow_reads_the_checkpoint(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow", reason="needs the extra `interop`")
    many = {f"v{number}/{'x' * 200}": np.float32(number) for number in range(2000)}
    reader = tf.train.load_checkpoint(written(tmp_path, {**TENSORS, **many}))
    for name, value in TENSORS.items():
        read = np.asarray(reader.get_tensor(name))
        assert read.shape == np.shape(value)
        assert read.tolist() == value.tolist()
    assert all(reader.get_tensor(name) == value for name, value in many.items())


def test_a_tensor_of_handles_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="'v' holds no numbers or strings"):
        written(tmp_path, {"v": np.array([object()], object)})
    assert not list(tmp_path.iterdir())


GRAPH = """
v = VarHandleOp() {dtype=float32, shape=[2], shared_name="v", container="c"}
start = Const() {dtype=float32, value=float32[2]:[1, 2]}
set = AssignVariableOp(v, start) {dtype=float32}
unset = VarHandleOp() {dtype=float32, shape=[2], shared_name="unset"}
never = Const() {dtype=bool, value=bool[]:false}
known = VarIsInitializedOp(unset)
read = ReadVariableOp(v) {dtype=float32}
twice = AddV2(read, read)
"""


def test_variables_are_saved_and_restored(tmp_path: Path) -> None:
    graph = cfgraph.loads(GRAPH.encode(), "graph")
    session = cfgraph.Session(graph)
    session.run(["known:0"], targets=["set"])
    paths = cfgraph.save_variables(session.state, tmp_path / "variables")
    assert [Path(path).name for path in paths] == [
        "variables.index",
        "variables.data-00000-of-00001",
    ]
    restored = cfgraph.restore(tmp_path, graph)
    (value,) = cfgraph.Session(graph, state=restored).run(["twice:0"])
    assert value.tolist() == [2, 4]


def test_a_name_in_two_containers_is_refused(tmp_path: Path) -> None:
    text = GRAPH.replace('shared_name="unset"', 'shared_name="v"')
    session = cfgraph.Session(cfgraph.loads(text.encode(), "graph"))
    session.run(["known:0"], targets=["set"])
    assert len(dict(session.state.variables())) == 2
    with pytest.raises(UsageError, match="two containers have a variable 'v'"):
        cfgraph.save_variables(session.state, tmp_path / "variables")


def test_a_state_without_variables_is_saved(tmp_path: Path) -> None:
    paths = cfgraph.save_variables(State(), tmp_path / "none")
    assert Checkpoint(str(tmp_path / "none")).entries == {}
    assert len(paths) == 2
