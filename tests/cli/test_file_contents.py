"""Large contents stay in the file: nothing is decoded that is only passed on."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import InvalidInput
from cfgraph.ir import file_io
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import float32, string
from cfgraph.ir.graph import Graph
from cfgraph.ir.serde import file_contents
from cfgraph.proto import graph_pb2
from tests.command_fixtures import Command

COUNT = 40
TWO_CALLS = b"""
x = PartitionedCall() {Tin=(), Tout=(float32), f=@weights}
y = PartitionedCall() {Tin=(), Tout=(float32), f=@weights}
z = Add(x, y) {T=float32}

function weights() -> (w: float32) {
  w = Const() {dtype=float32, value=float32[65536]:(0)}
  return w = w:output:0
}
"""


def constant(graph: Graph, value: object, name: str) -> None:
    array = np.asarray(value)
    dtype = string if array.dtype == object else float32
    graph.add("Const", name=name, value=TensorValue(array), dtype=dtype)


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A graph of constants of 4 KiB and of 16 bytes, whose file counts as large."""
    monkeypatch.setattr(file_contents, "_files", [])
    monkeypatch.setattr(file_contents, "_MAX_FILES", 8)
    monkeypatch.setattr(file_contents, "MIN_FILE_BYTES", 1 << 16)
    monkeypatch.setattr(file_contents, "MIN_CONTENT_BYTES", 1 << 10)
    monkeypatch.setattr(file_contents, "_MIN_RECORD_BYTES", 1 << 6)
    graph = Graph()
    for number in range(COUNT):
        constant(graph, np.arange(1024, dtype=np.float32) + number, f"large{number}")
        constant(graph, np.arange(4, dtype=np.float32), f"small{number}")
    graph.add("AddN", graph["large0"], graph["large1"], name="y")
    path = tmp_path / "large.pb"
    cfgraph.save(graph, path)
    return path


def open_files() -> list[file_contents.OpenFile]:
    return [file for reference in file_contents._files if (file := reference()) is not None]


def write_large_function(path: Path) -> None:
    proto: Any = graph_pb2.GraphDef.FromString(cfgraph.dumps(cfgraph.loads(TWO_CALLS, "graph")))
    tensor = proto.library.function[0].node_def[0].attr["value"].tensor
    tensor.ClearField("float_val")
    tensor.tensor_content = bytes(tensor.tensor_shape.dim[0].size * 4)
    path.write_bytes(proto.SerializeToString())


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The references that are decoded."""
    decoded: list[bytes] = []
    original = file_contents.content_of

    def count(data: bytes) -> bytes | bytearray:
        if file_contents._referenced(data):
            decoded.append(data)
        return original(data)

    monkeypatch.setattr("cfgraph.ir.serde.tensor.content_of", count)
    return decoded


@pytest.mark.parametrize("suffix", ["pb", "pbtxt", "graph", "pb.gz"])
def test_a_graph_is_written_with_its_contents(large: Path, suffix: str, tmp_path: Path) -> None:
    graph, copy = cfgraph.load(large), tmp_path / f"copy.{suffix}"
    assert len(open_files()) == 1
    cfgraph.save(graph, copy)
    assert cfgraph.dumps(graph) == large.read_bytes() == cfgraph.dumps(cfgraph.load(copy))


@pytest.mark.parametrize(
    "line",
    [
        "show {} --nodes",
        "check {}",
        "convert {} -o {}.out.pb",
        "lower {} -o {}.out.pb",
        "extract {} --outputs y -o {}.out.pb",
        "partition {} --devices cpu:0-1 --seed 1 -o {}.out.pb",
        "cluster {} -o {}.out.pb",
        "functionalize {} -o {}.out.pb",
        "diff {} {}",
    ],
)
def test_commands_decode_no_constant_that_they_pass_on(
    large: Path, reads: list[bytes], command: Command, line: str
) -> None:
    result = command(*line.replace("{}", str(large)).split())
    assert result.code == 0, result.err
    assert file_contents._files
    assert not reads


def test_a_run_decodes_what_it_needs(large: Path, reads: list[bytes]) -> None:
    [total] = cfgraph.Session(cfgraph.load(large)).run(["y:0"])
    np.testing.assert_array_equal(total, 2 * np.arange(1024, dtype=np.float32) + 1)
    assert len(reads) == 2


def test_equal_contents_are_equal(large: Path, tmp_path: Path, reads: list[bytes]) -> None:
    graph, copy = cfgraph.load(large), tmp_path / "copy.pb"
    copy.write_bytes(large.read_bytes())
    other = cfgraph.load(copy)
    assert len(open_files()) == 2
    assert graph["large1"].attrs["value"] == other["large1"].attrs["value"]
    assert graph["large1"].attrs["value"] != other["large2"].attrs["value"]
    assert not reads


def test_a_replaced_file_stays_readable_and_a_changed_one_is_an_error(large: Path) -> None:
    data, graph = large.read_bytes(), cfgraph.load(large)
    cfgraph.save(graph, large)
    os.replace(large, large.with_suffix(".moved"))
    assert cfgraph.dumps(graph) == data
    other = cfgraph.load(large.with_suffix(".moved"))
    large.with_suffix(".moved").write_bytes(data[:-1000])
    with pytest.raises(InvalidInput, match="has changed since it was loaded"):
        cfgraph.dumps(other)


def test_a_file_rewritten_with_its_times_is_read_again(large: Path) -> None:
    graph, before = cfgraph.load(large), large.stat()
    data = large.read_bytes().replace(b"small7", b"SMALL7")
    while large.stat().st_ctime_ns == before.st_ctime_ns:  # the clock of the file system is coarse
        with large.open("r+b") as file:
            file.write(data)
        os.utime(large, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "small7" in graph
    assert "SMALL7" in cfgraph.load(large)


def test_a_constant_that_is_left_in_its_file_stays_read_only(large: Path) -> None:
    array = cfgraph.load(large)["large1"].attrs["value"].array
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True


def test_a_graph_too_large_to_be_read_is_not_written(
    large: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_large_function(large)
    monkeypatch.setattr(file_io, "MAX_BYTES", large.stat().st_size * 3 // 2)
    before = sorted(large.parent.iterdir())
    result = command("lower", str(large), "-o", str(large.with_name("lowered.pb")))
    assert result.code == 3
    assert "cannot be written" in result.err
    assert sorted(large.parent.iterdir()) == before


@pytest.mark.parametrize("cut", [10, 5000, 100_000])
def test_a_truncated_file_is_reported(large: Path, cut: int) -> None:
    large.write_bytes(large.read_bytes()[:-cut])
    with pytest.raises(InvalidInput, match="the file is cut short"):
        cfgraph.load(large)


def test_few_files_are_open(large: Path, tmp_path: Path) -> None:
    graphs = []
    for number in range(file_contents._MAX_FILES + 2):
        copy = tmp_path / f"copy{number}.pb"
        copy.write_bytes(large.read_bytes())
        graphs.append(cfgraph.load(copy))
    assert [len(graph) for graph in graphs] == [2 * COUNT + 1] * len(graphs)
    assert len(open_files()) == file_contents._MAX_FILES


def test_a_file_is_closed_when_nothing_refers_to_it(large: Path) -> None:
    for _ in range(2 * file_contents._MAX_FILES):
        graph = cfgraph.load(large)
        cfgraph.save(graph, large)
    assert len(file_contents._files) == 2 * file_contents._MAX_FILES
    gc.collect()
    [file] = open_files()
    value = graph["large1"].attrs["value"]
    del graph
    gc.collect()
    assert open_files() == [file]
    assert value.array[0] == 1
    descriptor = file.descriptor
    del file, value
    assert open_files() == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_function_holds_its_file(large: Path) -> None:
    write_large_function(large)
    graph = cfgraph.load(large)
    weights = graph.functions["weights"]
    del graph
    gc.collect()
    [node] = weights.definition.nodes
    assert node.attrs["value"].array.shape == (65536,)
    assert len(open_files()) == 1
