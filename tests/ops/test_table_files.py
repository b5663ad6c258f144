"""Tables are initialized from the columns of text files that the graph may read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.errors import ExecutionError, Unsupported

GRAPH = """
t = HashTableV2() {{key_dtype={key}, value_dtype={value}, shared_name="t"}}
file = Placeholder() {{dtype=string, shape=[]}}
fill = InitializeTableFromTextFileV2(t, file) {{{attrs}}}
size = LookupTableSizeV2(t, ^fill)
keys = LookupTableExportV2(t, ^fill) {{Tkeys={key}, Tvalues={value}}}
"""


def rows(
    path: Path, text: bytes, attrs: str, key: str = "string", value: str = "int64"
) -> dict[Any, Any]:
    path.write_bytes(text)
    graph = cfgraph.loads(GRAPH.format(key=key, value=value, attrs=attrs).encode())
    session = cfgraph.Session(graph, allow_io=True)
    keys, values, size = session.run(["keys:0", "keys:1", "size:0"], {"file": str(path)})
    assert size == len(keys)
    return dict(zip(keys.tolist(), values.tolist(), strict=True))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rows.txt"


def test_a_line_maps_to_its_number(file: Path) -> None:
    attrs = "key_index=-2, value_index=-1"
    assert rows(file, b"a b\r\nc", attrs) == {b"a b": 0, b"c": 1}
    assert rows(file, b"a\nb\n", f"{attrs}, offset=5") == {b"a": 5, b"b": 6}
    assert rows(file, b"a\nb\nc\n", f"{attrs}, vocab_size=2") == {b"a": 0, b"b": 1}
    assert rows(file, b"", attrs) == {}


def test_columns_are_separated_by_the_delimiter(file: Path) -> None:
    attrs = 'key_index=1, value_index=0, delimiter=","'
    assert rows(file, b"1,a,x\n-2,b\n", attrs) == {b"a": 1, b"b": -2}
    assert rows(file, b"1.5\ta\n", "key_index=1, value_index=0", value="float32") == {b"a": 1.5}
    assert rows(file, b"7\ta\n", "key_index=0, value_index=1", "int32", "string") == {7: b"a"}


@pytest.mark.parametrize(
    ("text", "attrs", "message"),
    [
        (b"a\n\nb\n", "key_index=-2, value_index=-1", "empty line found at line 1"),
        (b"a\n", "key_index=0, value_index=1", r"line 0 \(a\) : expected 2 got 1"),
        (b"a\tb\n", "key_index=0, value_index=1", "Field b in line 0 is not a valid number"),
        (b"a\t1_000\n", "key_index=0, value_index=1", "Field 1_000 in line 0 is not a valid"),
        (b"a\t99999999999999999999\n", "key_index=0, value_index=1", "not a valid number"),
        (b"a\n", "key_index=-2, value_index=-1, vocab_size=3", "expected 3 but got 1"),
        (b"5\n", "key_index=-2, value_index=-1", "a whole line has dtype string or int64"),
        (b"a\n", 'key_index=-2, value_index=-1, delimiter="ab"', "must be one character"),
    ],
)
def test_a_file_that_does_not_fit_is_an_error(
    file: Path, text: bytes, attrs: str, message: str
) -> None:
    key = "int32" if "has dtype" in message else "string"
    with pytest.raises(ExecutionError, match=message):
        rows(file, text, attrs, key)


def test_a_whole_line_may_be_a_number(file: Path) -> None:
    assert rows(file, b"5\n-3\n", "key_index=-2, value_index=-1", "int64") == {5: 0, -3: 1}
    assert rows(file, b"5\n-3\n", "key_index=-1, value_index=-2", "int64") == {0: 5, 1: -3}


def test_a_file_is_read_with_permission_only(file: Path) -> None:
    attrs = "key_index=-2, value_index=-1"
    file.write_bytes(b"a\n")
    graph = cfgraph.loads(GRAPH.format(key="string", value="int64", attrs=attrs).encode())
    with pytest.raises(Unsupported, match="outside of the folders"):
        cfgraph.Session(graph).run(["size:0"], {"file": str(file)})


def test_a_table_that_is_initialized_once_may_be_imported() -> None:
    text = """
    t = HashTableV2() {key_dtype=int64, value_dtype=int64, shared_name="t"}
    one = Const() {dtype=int64, value=int64[1]:[1]}
    fill = LookupTableImportV2(t, one, one) {Tin=int64, Tout=int64}
    find = LookupTableFindV2(t, one, zero, ^fill) {Tin=int64, Tout=int64}
    zero = Const() {dtype=int64, value=int64[]:0}
    """
    (found,) = cfgraph.Session(cfgraph.loads(text.encode())).run(["find:0"])
    assert found.tolist() == [1]
