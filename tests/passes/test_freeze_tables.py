"""Lookups in constants compute what lookups in the tables do, or a reason says why tables stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.ir.library import copy_graph
from tests.analysis.graph_text import graph

LETTERS = """
    table = HashTableV2() {key_dtype=string, value_dtype=int64, shared_name="t"}
    keys = Const() {dtype=string, value=string[4]:["a","bc","","a"]}
    values = Const() {dtype=int64, value=int64[4]:[3,-5,7,3]}
    init = LookupTableImportV2(table, keys, values)
    none = Const() {dtype=int64, value=int64[]:-1}
    x = Placeholder() {dtype=string, shape=?}
"""
NUMBERS = """
    table = HashTableV2() {key_dtype=int32, value_dtype=string}
    keys = Const() {dtype=int32, value=int32[3]:[9,-4,2147483647]}
    values = Const() {dtype=string, value=string[3]:["nine","minus","last"]}
    init = InitializeTableV2(table, keys, values)
    none = Const() {dtype=string, value=string[]:"?"}
    x = Placeholder() {dtype=int32, shape=?}
"""
OLD = LETTERS.replace("V2", "") + "y = LookupTableFind(table, x, none)"
FIND = "y = LookupTableFindV2(table, x, none)"
WORDS = np.array([[b"a", b"b"], [b"", b"bc"]], object)
NUMBER = np.array([9, 8, -4, -5, 2147483647, -2147483648], np.int32)


def before_and_after(text: str, **feeds: Any) -> tuple[Any, Any, cfgraph.Graph]:
    """The values of y after the initializer ran, those in the frozen graph, and that graph."""
    found = graph(text)
    frozen = copy_graph(found)
    report = cfgraph.freeze(frozen, outputs=["y"], constant_tables=True)
    assert [table.name for table in report.constant_tables] == ["table"]
    assert not report.tables
    assert not report.warnings
    session = cfgraph.Session(found)
    session.run([], targets=["init"])
    return session.run(["y"], feeds)[0], cfgraph.Session(frozen).run(["y"], feeds)[0], frozen


@pytest.mark.parametrize(
    ("text", "x"),
    [
        (LETTERS + FIND, WORDS),
        (LETTERS + FIND, np.array(b"bc", object)),
        (LETTERS + FIND, np.zeros((0, 2), object)),
        (NUMBERS + FIND, NUMBER),
        (NUMBERS + FIND, NUMBER[0]),
        (OLD, WORDS),
        (LETTERS.replace("value=int64[]:-1", "value=int64[2,2]:[[1,2],[3,4]]") + FIND, WORDS),
        (LETTERS + "n = LookupTableSizeV2(table)\ny = LookupTableFindV2(table, x, n)", WORDS),
        (LETTERS + "y = LookupTableFindV2(table, x, none, ^init)", WORDS),
        (LETTERS + 'same = HashTableV2() {key_dtype=string, value_dtype=int64, shared_name="t"}\n'
         "y = LookupTableFindV2(same, x, none)", WORDS),
    ],
)  # fmt: skip
def test_a_lookup_in_constants_finds_what_a_table_has(text: str, x: Any) -> None:
    wanted, found, frozen = before_and_after(text, x=x)
    np.testing.assert_array_equal(found, wanted)
    assert np.asarray(found).dtype == np.asarray(wanted).dtype
    assert not {op for op in frozen.ops if "Table" in op}


BRANCH = (
    LETTERS
    + """
    p = Placeholder() {dtype=bool, shape=[]}
    choice = Switch(table, p)
    inside = LookupTableFindV2(choice:1, x, none)
    size = LookupTableSizeV2(choice:0)
    y = Merge(inside, size)
"""
)
LOOP = (
    LETTERS
    + """
    zero = Const() {dtype=int64, value=int64[]:0}
    start = Enter(zero) {frame_name="f"}
    total = Enter(none) {frame_name="f"}
    handle = Enter(table) {frame_name="f", is_constant=true}
    words = Enter(x) {frame_name="f", is_constant=true}
    default = Enter(zero) {frame_name="f", is_constant=true}
    i = Merge(start, i_next)
    sum = Merge(total, sum_next)
    three = Const(^i) {dtype=int64, value=int64[]:3}
    less = Less(i, three)
    again = LoopCond(less)
    i_switch = Switch(i, again)
    sum_switch = Switch(sum, again)
    one = Const(^i) {dtype=int64, value=int64[]:1}
    i_more = AddV2(i_switch:1, one)
    value = LookupTableFindV2(handle, words, default)
    sum_more = AddV2(sum_switch:1, value)
    i_next = NextIteration(i_more)
    sum_next = NextIteration(sum_more)
    y = Exit(sum_switch)
"""
)
FUNCTIONS = (
    LETTERS
    + """
    p = Placeholder() {dtype=bool, shape=[]}
    y = If(p, table, x, none) {Tcond=bool, Tin=(resource, string, int64), Tout=(int64), \
then_branch=@find, else_branch=@constant}

    function find(table: resource, x: string, none: int64) -> (r: int64) {
      stateful
      r = LookupTableFindV2(table, x, none) {Tin=string, Tout=int64}
      return r = r:values:0
    }

    function constant(table: resource, x: string, none: int64) -> (r: int64) {
      stateful
      r = LookupTableSizeV2(table)
      return r = r:size:0
    }
"""
)


@pytest.mark.parametrize("text", [BRANCH, FUNCTIONS])
@pytest.mark.parametrize("p", [True, False])
def test_a_conditional_passes_a_table(text: str, p: bool) -> None:
    wanted, found, _ = before_and_after(text, x=WORDS[0], p=p)
    np.testing.assert_array_equal(found, wanted)


def test_a_loop_passes_a_table() -> None:
    wanted, found, _ = before_and_after(LOOP, x=WORDS[1, 1])
    assert wanted == found == -16


EXPORT = "y = LookupTableExportV2(table) {Tkeys=string, Tvalues=int64}"
KEPT = {
    EXPORT: "needed by y (LookupTableExportV2)",
    f"{FIND}\nagain = LookupTableImportV2(table, keys, values)": "2 nodes fill it",
    "y = Identity(table)": "y, an output of the graph, is its handle",
}


@pytest.mark.parametrize("text", KEPT)
def test_a_table_stays_for_a_reason(text: str) -> None:
    found = graph(LETTERS + text)
    report = cfgraph.freeze(found, outputs=["y"], constant_tables=True)
    assert report.constant_tables == ()
    assert [table.name for table in report.tables] == ["table"]
    assert report.warnings[0] == f"table table is no constant: {KEPT[text]}"


def test_a_table_of_computed_rows_stays() -> None:
    keys = 'Const() {dtype=string, value=string[4]:["a","bc","","a"]}'
    found = graph(LETTERS.replace(keys, "Placeholder() {dtype=string, shape=[4]}") + FIND)
    report = cfgraph.freeze(found, outputs=["y"], constant_tables=True)
    reason = "init (LookupTableImportV2) does not fill it with constants"
    assert report.warnings[0] == f"table table is no constant: {reason}"


def test_a_table_that_a_function_names_itself_stays() -> None:
    body = """
        p = Placeholder() {dtype=bool, shape=[]}
        inner = If(p, x, none) {Tcond=bool, Tin=(string, int64), Tout=(int64), \
then_branch=@find, else_branch=@other}
        outer = LookupTableFindV2(table, x, none)
        y = AddV2(inner, outer)

    function find(x: string, none: int64) -> (r: int64) {
      stateful
      t = HashTableV2() {key_dtype=string, value_dtype=int64, shared_name="t"}
      r = LookupTableFindV2(t:table_handle:0, x, none) {Tin=string, Tout=int64}
      return r = r:values:0
    }

    function other(x: string, none: int64) -> (r: int64) {
      r = Identity(none) {T=int64}
      return r = r:output:0
    }
    """
    report = cfgraph.freeze(graph(LETTERS + body), outputs=["y"], constant_tables=True)
    reason = "find/t (HashTableV2) may be the same table"
    assert report.warnings[0] == f"table table is no constant: {reason}"


@pytest.mark.interop
@pytest.mark.parametrize("text", [LETTERS + FIND, NUMBERS + FIND, LOOP])
def test_tensorflow_finds_the_same_in_constants(text: str) -> None:
    tf = pytest.importorskip("tensorflow")
    x = NUMBER if text.startswith(NUMBERS) else WORDS
    wanted, _, frozen = before_and_after(text, x=x)
    with tf.Graph().as_default() as target:
        tf.import_graph_def(tf.compat.v1.GraphDef.FromString(cfgraph.dumps(frozen)), name="")
        with tf.compat.v1.Session(graph=target) as session:
            np.testing.assert_array_equal(session.run("y:0", {"x:0": x}), wanted)
