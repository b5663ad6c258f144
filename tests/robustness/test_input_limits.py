"""Files that need far more time or memory than their size are rejected, or read in little."""

from __future__ import annotations

import functools
import gzip
import io
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

import cfgraph
from cfgraph.cli import command_line as cli
from cfgraph.comparison.match import attr_key
from cfgraph.errors import ExecutionError, InvalidInput
from cfgraph.ir import file_io
from cfgraph.ir.attrs import TensorValue, content_key, repeated_element, same_content
from cfgraph.ir.files import dumps, loads
from cfgraph.ir.names import closest_name
from cfgraph.limits import limited
from cfgraph.passes.widen import widen
from cfgraph.runtime.feeds.parse_feeds import read_npy, read_npz
from tests.ir.hostile import constant, memory_limit, time_limit
from tests.ir.wire import node_def, wire_field

HUGE = 1 << 31
_FLOAT, _STRING, _INT64 = 1, 7, 9
_FLOAT_VAL, _STRING_VAL, _INT64_VAL = 5, 8, 10


def repeats(*dims: int, value: bytes = b"\0\0\xc0\x3f") -> bytes:
    """A float32 constant that lists one element, 1.5."""
    return constant(_FLOAT, dims, (_FLOAT_VAL, value))


@pytest.mark.parametrize("line", [b"\n", b"# comment\n", b"  \r\n", b"#\n\t\n"])
@pytest.mark.parametrize("statement", [b"x = A()\n", b'node { name: "x" op: "A" }\n'])
def test_blank_lines_cost_neither_time_nor_memory(line: bytes, statement: bytes) -> None:
    blank = line * (4_000_000 // len(line))
    with time_limit(), memory_limit(16 << 20):
        assert list(loads(blank + statement + blank).nodes) == ["x"]


def test_lines_after_blank_ones_are_numbered() -> None:
    with pytest.raises(InvalidInput, match="line 5, column 1"):
        loads(b"\n# one\n\nx = A()\n)\n")
    with pytest.raises(InvalidInput, match="line 4, column 3"):
        loads(b"# one\n\nnode {}\n  nodes {}\n")


@functools.cache
def packed_lines() -> bytes:
    """A gzip file of 256 MiB."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb") as file:
        for _ in range(256):
            file.write(b"\n" * (1 << 20))
    return packed.getvalue()


@pytest.mark.parametrize("format", ["graph", "pbtxt", "pb"])
def test_gzip_that_unpacks_to_gigabytes_is_rejected(format: str) -> None:
    packed = packed_lines()
    with time_limit(), memory_limit(64 << 20), pytest.raises(InvalidInput) as caught:
        loads(packed, format)
    assert caught.value.code == "CFG002"


def test_unpacked_data_counts_as_memory() -> None:
    data = gzip.compress(b"x = A()\n" + b"# text\n" * 500_000)
    assert list(loads(data).nodes) == ["x"]
    with limited(max_memory=1 << 20), pytest.raises(ExecutionError, match="gzip") as caught:
        loads(data)
    assert caught.value.code == "CFG713"


def test_a_file_above_the_limit_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sparse.pb"
    with path.open("wb") as file:
        file.truncate(file_io.MAX_BYTES + 1)

    def read(*args: object) -> bytes:
        message = "the file is read"
        raise AssertionError(message)

    monkeypatch.setattr(file_io, "read_stream", read)
    with pytest.raises(InvalidInput, match="exceeds 2147483648 bytes"):
        cfgraph.load(path)
    with pytest.raises(InvalidInput, match="exceeds 2147483648 bytes"):
        read_npy(str(path))


def test_a_file_is_in_memory_once(tmp_path: Path) -> None:
    path = tmp_path / "large.bin"
    path.write_bytes(bytes(32 << 20))
    with memory_limit(34 << 20):
        assert len(file_io.read_file(path)) == 32 << 20
    with path.open("rb") as stream, memory_limit(40 << 20):
        assert len(file_io.read_stream(stream)) == 32 << 20


_READ_IN_LITTLE_MEMORY = """
import resource, sys
from cfgraph.runtime.feeds import parse_feeds
resource.setrlimit(resource.RLIMIT_AS, (2_000_000 << 10,) * 2)
print(parse_feeds.read_npy(sys.argv[1]).tolist())
"""


def test_a_small_array_reserves_little(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.float32(1.5))
    command = [sys.executable, "-c", _READ_IN_LITTLE_MEMORY, str(tmp_path / "one.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "1.5\n", done.stderr


def test_an_archive_is_unpacked_within_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "zeros.npz"
    np.savez_compressed(path, x=np.zeros(4 << 20, np.uint8))
    assert path.stat().st_size < 1 << 16
    with limited(max_memory=1 << 20), pytest.raises(ExecutionError, match=r"the array .*zeros"):
        dict(read_npz(str(path)))
    assert next(read_npz(str(path)))[1].nbytes == 4 << 20


def test_the_size_that_an_archive_declares_is_not_reserved(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.float32([1, 2]))
    data = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        start = data.index(signature) + offset
        data[start : start + 4] = (HUGE - 1).to_bytes(4, "little")
    path.write_bytes(data)
    assert zipfile.ZipFile(path).getinfo("x.npy").file_size == HUGE - 1
    with memory_limit():
        assert dict(read_npz(str(path)))["x"].tolist() == [1, 2]


CONSTANTS = {
    "vector": repeats(HUGE),
    "deep": repeats(*[2] * 31),
    "strings": constant(_STRING, (HUGE,), (_STRING_VAL, b"ab")),
    "deep_strings": constant(_STRING, (2,) * 31, (_STRING_VAL, b"ab")),
    "rows": constant(_FLOAT, (HUGE, 0)),
    "two": constant(_INT64, (1 << 22,), (_INT64_VAL, b"\1\2")),
}
LINES = [
    "check {}",
    "show {} --node x",
    "show {} --nodes --json",
    "show {} --html out.html",
    "explain {} x",
    "lower {} -o out.pb",
    "optimize {} -o out.pb",
    "cluster {} --min-size 1 -o out.pb",
    "partition {} --devices cpu:0,cpu:1 -o out.pb",
    "convert {} -o out.graph",
    "convert {} -o out.pbtxt",
    "diff {} {}",
    "diff {} {} --by structure",
]


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_of_two_billion_elements_is_not_expanded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.pb").write_bytes(CONSTANTS[name])
    # "two" cannot stay two elements: 32 MiB are decoded where its values are needed
    allowed = (96 if name == "two" else 64) << 20
    for line in LINES:
        with time_limit(), memory_limit(allowed):
            arguments = ["c.pb" if word == "{}" else word for word in line.split()]
            assert cli.run(arguments) == 0, (line, capsys.readouterr().err)


def test_constants_of_two_billion_elements_differ() -> None:
    one = loads(repeats(HUGE))["x"].attrs["value"]
    same = TensorValue(np.broadcast_to(np.float32(1.5), HUGE))
    other = loads(repeats(HUGE, value=b"\0\0\0\x40"))["x"].attrs["value"]
    with time_limit(), memory_limit():
        assert one == same
        assert one != other
        assert attr_key(one) == attr_key(same) != attr_key(other)


def test_a_graph_with_a_constant_of_two_billion_elements_is_widened_and_written() -> None:
    graph = loads(repeats(1 << 30))
    with time_limit(), memory_limit():
        widen(graph)
        again = loads(dumps(graph))["x"].attrs["value"]
    assert again.dtype.name == "float64"
    assert repeated_element(again.array) == 1.5


@pytest.mark.parametrize("dtype", ["float32", "int8", "object"])
def test_content_does_not_depend_on_strides(dtype: str) -> None:
    item = np.array(b"a" if dtype == "object" else 3, dtype)
    spread = np.broadcast_to(item, (3, 5))
    dense = np.array(spread)
    other = dense.copy()
    other[2, 4] = b"b" if dtype == "object" else 4
    assert repeated_element(spread) == item
    assert repeated_element(dense) is None
    assert same_content(spread, dense)
    assert not same_content(spread, other)
    assert not same_content(dense, dense.reshape(5, 3))
    assert content_key(spread) == content_key(dense) != content_key(other)
    assert content_key(np.empty((0, 3), dtype)) == content_key(np.zeros((0, 3), dtype))


def test_elements_that_a_file_repeats_count_as_memory() -> None:
    tensor = loads(CONSTANTS["two"])["x"].attrs["value"]
    with limited(max_memory=1 << 20), pytest.raises(ExecutionError, match="4194304"):
        _ = tensor.array


def test_nodes_and_edges_count_as_memory() -> None:
    nodes = b"".join(wire_field(1, node_def(f"n{i}", "A")) for i in range(4000))
    inputs = [(3, b"n0")] * 4000
    edges = wire_field(1, node_def("n0", "A")) + wire_field(1, node_def("m", "A", *inputs))
    for data in (nodes, edges):
        loads(data)
        with limited(max_memory=500_000), pytest.raises(ExecutionError, match="of the graph"):
            loads(data)


def test_faults_are_counted_and_the_first_listed() -> None:
    data = wire_field(1, node_def("m", "A", *[(3, b"x")] * 20_000))
    with time_limit(), memory_limit(48 << 20), pytest.raises(InvalidInput) as caught:
        loads(data)
    assert "(and 19999 more faults)" in caught.value.message
    assert len(caught.value.findings) == 10_000


def test_a_hint_among_many_names_is_fast_and_right() -> None:
    names = [f"layer_{i}/dense/kernel/Read/ReadVariableOp_{i % 7}" for i in range(20_000)]
    alike = ["ab" * 99 + f"{i:x}" for i in range(20_000)]
    start = time.process_time()
    assert closest_name("layer_777/dense/kernl/Read/ReadVariableOp_0", names) == names[777]
    assert closest_name("ab" * 50 + "c" + "ab" * 49, alike) is not None
    assert closest_name("q" * 199, alike) is None
    assert time.process_time() - start < 3


@pytest.mark.parametrize("functions", [1, 60])
def test_hints_are_bounded_for_all_functions_together(
    functions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr("cfgraph.ir.names.closest_name", lambda name, known: calls.append(name))
    body = "".join(f"  n{i} = Identity(absent{i}:output) {{T=float32}}\n" for i in range(20))
    text = "".join(f"function f{i}() -> () {{\n{body}}}\n" for i in range(functions))
    report = cfgraph.check(loads(text.encode()))
    assert {finding.code for finding in report.findings} >= {"CFG130"}
    assert 0 < len(calls) <= 10
