"""`show` and `explain` of lookup tables: the rows, and the node that fills them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.command_fixtures import Command

# the table is filled by a function that another one calls, with keys of its own
NESTED = """
word = Placeholder() {dtype=string, shape=[?]}
table = HashTableV2() {key_dtype=string, value_dtype=int64, shared_name="t"}
values = Const() {dtype=int64, value=int64[4]:[1, 2, 3, 4]}
init = StatefulPartitionedCall(values, table) {Tin=(int64, resource), Tout=(), f=@outer}
unknown = Const() {dtype=int64, value=int64[]:-1}
id = LookupTableFindV2(table, word, unknown) {Tin=string, Tout=int64}
function outer(values: int64, table: resource) -> () {
  fill = StatefulPartitionedCall(table, values) {Tin=(resource, int64), Tout=(), f=@inner}
}
function inner(t: resource, v: int64) -> () {
  keys = Const() {dtype=string, value=string[4]:["a", "b", "c", "d"]}
  fill = LookupTableImportV2(t, keys:output:0, v) {Tin=string, Tout=int64}
}
"""


def test_tables_of_a_saved_model_have_rows_and_what_fills_them(
    command: Command, fixtures: Path
) -> None:
    done = command("show", fixtures / "saved_model_tables")
    start = done.lines.index("tables  a run fills them first") + 2
    assert [" ".join(line.split()) for line in done.lines[start : start + 2]] == [
        "hash_table string → int64 2 a → 1, b → 2 StatefulPartitionedCall_3",
        "hash_table_1 string → int64 3 x → 0, y → 1, z → 2 StatefulPartitionedCall_2 vocab.txt",
    ]
    tables = command("show", fixtures / "saved_model_tables", "--json").json["result"]["tables"]
    assert Path(tables[1]["file"]).read_text() == "x\ny\nz\n"
    assert "file" not in tables[0]


def test_a_table_that_nothing_fills_says_so(command: Command, fixtures: Path) -> None:
    path = fixtures / "freezing" / "tables" / "frozen_without_init.pb"
    done = command("show", path)
    assert "tables  each lookup fails, as no node fills them" in done.lines
    assert "  vocab  string → int64  nothing" in done.lines
    lines = [" ".join(line.split()) for line in command("explain", path, "vocab").lines]
    assert "table vocab string → int64" in lines
    assert "filled by nothing each lookup fails" in lines


def test_a_lookup_is_explained_with_the_rows_of_its_table(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "nested.graph"
    path.write_text(NESTED)
    facts = [" ".join(line.split()) for line in command("explain", path, "id").lines]
    assert "table table string → int64, 4 rows: a → 1, b → 2, c → 3, …" in facts
    assert "filled by init" in facts
    table = command("explain", path, "id", "--json").json["result"]["node"]["table"]
    assert (table["rows"], table["filled_by"]) == (4, "init")
    assert table["first"] == ["a → 1", "b → 2", "c → 3", "d → 4"]
    for words in (("explain", path, "id"), ("show", path)):
        assert "d → 4" in command(*words, "--full").out
        assert "d → 4" not in command(*words).out
    assert command("show", path, "--json").json["result"]["tables"][0]["first"] == table["first"]


@pytest.mark.parametrize("name", [b"../se.txt", b"gone_.txt", b"nul\0l.txt"])
def test_only_assets_of_the_model_are_read(
    command: Command, fixtures: Path, tmp_path: Path, name: bytes
) -> None:
    model = tmp_path / "model"
    shutil.copytree(fixtures / "saved_model_tables", model)
    (model / "se.txt").write_text("secret\n")
    before, old, after = (model / "saved_model.pb").read_bytes().rpartition(b"vocab.txt")
    assert old
    (model / "saved_model.pb").write_bytes(before + name + after)
    done = command("show", model)
    assert (done.code, "secret" in done.out) == (0, False)
    assert "hash_table_1" in done.out
