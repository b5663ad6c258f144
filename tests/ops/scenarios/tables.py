"""Scenarios of lookup tables, in both versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cfgraph.ir.dtypes import float32, int32, int64, string
from cfgraph.ir.graph import Output
from cfgraph.ir.shapes import Shape
from tests.ops.scenario import Runs, Scenario, Sketch, versions

VOCABULARY = Path(__file__).parents[3] / "fixtures/saved_model_tables/assets/vocab.txt"


def words(*texts: str) -> Any:
    return np.array([text.encode() for text in texts], object)


def filled_once(g: Sketch, version: str) -> Runs:
    table = g(f"HashTable{version}", key_dtype=string, value_dtype=int64, shared_name="t")
    numbers = np.array([1, 2], np.int64)
    fill = g(f"InitializeTable{version}", table, words("a", "b"), numbers).node
    more = g(f"InitializeTable{version}", table, words("c", "d"), numbers).node
    clash = g(f"InitializeTable{version}", table, words("a", "a"), numbers).node
    find = g(f"LookupTableFind{version}", table, words("b", "x", "a"), np.int64(-1))
    square = words("b", "x").reshape(1, 2)
    nested = g(f"LookupTableFind{version}", table, square, np.int64(-1))
    size = g(f"LookupTableSize{version}", table)
    exported = g(f"LookupTableExport{version}", table, Tkeys=string, Tvalues=int64).node
    return [
        [find],
        [size],
        [exported.output(0)],
        [clash],
        [fill],
        [find, nested, size],
        [fill],
        [more],
        [find],
        [g(f"InitializeTable{version}", table, words("c"), numbers[:1]).node],
    ]


def changing(g: Sketch, version: str) -> Runs:
    table = g(f"MutableHashTable{version}", key_dtype=int64, value_dtype=float32)
    keys = np.array([1, 2], np.int64)
    insert = g(f"LookupTableInsert{version}", table, keys, [1.5, 2.5]).node
    again = g(f"LookupTableInsert{version}", table, keys[1:], [9.0]).node
    replace = g(f"LookupTableImport{version}", table, keys[:1], [7.0]).node
    wrong = g(f"LookupTableInsert{version}", table, keys, g.hidden([1.0])).node
    find = g(f"LookupTableFind{version}", table, np.array([[2, 3]], np.int64), -1.0)
    each = g(f"LookupTableFind{version}", table, np.array([2, 3], np.int64), [-1.0, -2.0])
    size = g(f"LookupTableSize{version}", table)
    exported = g(f"LookupTableExport{version}", table, Tkeys=int64, Tvalues=float32).node
    both = [exported.output(0), exported.output(1)]
    return [
        [find, size],
        both,
        [insert],
        [find, each, size],
        [again],
        [find, size],
        [wrong],
        [replace],
        [find, size, *both],
    ]


def of_tensors(g: Sketch, version: str) -> Runs:
    table = g(
        f"MutableHashTableOfTensors{version}",
        key_dtype=string,
        value_dtype=int32,
        value_shape=Shape([2]),
    )
    insert = g(f"LookupTableInsert{version}", table, words("a"), [[1, 2]]).node
    find = g(f"LookupTableFind{version}", table, words("z", "a"), [0, 0])
    return [[find], [insert], [find], [g(f"LookupTableSize{version}", table)]]


def removing(g: Sketch) -> Runs:
    table = g("MutableHashTableV2", key_dtype=string, value_dtype=int64)
    insert = g("LookupTableInsertV2", table, words("a", "b"), np.array([1, 2], np.int64)).node
    remove = g("LookupTableRemoveV2", table, words("a", "q")).node
    find = g("LookupTableFindV2", table, words("a", "b"), np.int64(0))
    return [[insert], [find], [remove], [find], [g("LookupTableSizeV2", table)]]


def destroyed(g: Sketch) -> Runs:
    table = g("MutableHashTableV2", key_dtype=int64, value_dtype=float32, shared_name="t")
    insert = g("LookupTableInsertV2", table, np.array([1], np.int64), [1.0]).node
    size = g("LookupTableSizeV2", table)
    return [[insert], [size], [g("DestroyResourceOp", table).node], [size]]


def anonymous(g: Sketch) -> Runs:
    def filled(op: str, do: str, **attrs: Any) -> Output:
        table = g(op, key_dtype=int64, value_dtype=float32, **attrs)
        values = [[1.0], [2.0]] if attrs else [1.0, 2.0]
        done = g(do, table, np.array([1, 2], np.int64), values)
        default = [0.0] if attrs else 0.0
        return g("LookupTableFindV2", table, np.array([2, 5], np.int64), default, controls=[done])

    return [
        [filled("AnonymousHashTable", "InitializeTableV2")],
        [filled("AnonymousMutableHashTable", "LookupTableInsertV2")],
        [
            filled(
                "AnonymousMutableHashTableOfTensors", "LookupTableInsertV2", value_shape=Shape([1])
            )
        ],
    ]


def of_a_file(g: Sketch, version: str) -> Runs:
    table = g(f"HashTable{version}", key_dtype=string, value_dtype=int64, shared_name="t")
    file = np.array(str(VOCABULARY).encode(), object)
    fill = g(
        f"InitializeTableFromTextFile{version}", table, file, key_index=-2, value_index=-1, offset=5
    ).node
    find = g(f"LookupTableFind{version}", table, words("z", "?", "x"), np.int64(-1))
    return [[fill], [find, g(f"LookupTableSize{version}", table)]]


def reserved_keys(g: Sketch) -> Runs:
    keys, reserved, op = np.array([1, 2], np.int64), np.array([-1, -2]), "MutableDenseHashTableV2"
    table = g(op, *reserved, value_dtype=float32, value_shape=Shape((2,)))
    insert = g("LookupTableInsertV2", table, keys, [[1.5, 2], [3, 4]]).node
    find = g("LookupTableFindV2", table, np.array([2, 3], np.int64), [0.0, -1.0])
    size = g("LookupTableSizeV2", table)
    empty = g("LookupTableInsertV2", table, keys - 2, [[1.5, 2], [3, 4]]).node
    remove = g("LookupTableRemoveV2", table, keys[1:]).node
    lost = g("LookupTableFindV2", table, np.array([-2], np.int64), [0.0, -1.0])
    equal = g(op, np.int64(7), np.int64(7), value_dtype=float32)
    anonymous = g("AnonymousMutableDenseHashTable", *reserved, value_dtype=float32)
    return [
        [size],
        [insert],
        [find, size],
        [empty],
        [lost],
        [remove],
        [find, size],
        [g("LookupTableRemoveV2", table, keys - 2).node],
        [g("LookupTableSizeV2", equal)],
        [g("LookupTableSizeV2", anonymous)],
    ]


def vector_keys(g: Sketch) -> Runs:
    op, keys = "MutableDenseHashTableV2", np.array([[2, 3], [4, 5]], np.int64)
    empty, deleted = np.array([0, 0], np.int64), np.array([1, 1], np.int64)
    table = g(op, empty, deleted, value_dtype=float32)
    insert = g("LookupTableInsertV2", table, keys, [1.5, 2]).node
    size, find = g("LookupTableSizeV2", table), g("LookupTableFindV2", table, keys + 2, -1.0)
    remove = g("LookupTableRemoveV2", table, keys[1:]).node
    refused = [
        g("LookupTableInsertV2", table, (keys - 2)[:1], [1.0]).node,
        g("LookupTableFindV2", table, np.ones((1, 2), np.int64), -1.0),
        g("LookupTableFindV2", table, g.hidden(np.ones((1, 3), np.int64)), -1.0),
        g("LookupTableSizeV2", g(op, empty, np.int64(1), value_dtype=float32)),
    ]
    return [[insert], [find, size], *([x] for x in refused), [remove], [find, size]]


def wrong_attributes(g: Sketch) -> Runs:
    keys, dense = (np.int64(0), np.int64(1)), "MutableDenseHashTableV2"
    tensors = {"key_dtype": int64, "value_dtype": float32}
    nothing = (np.zeros(0, np.int64), np.zeros(0, np.float32))
    once, changing = g("HashTableV2", **tensors), g("MutableHashTableV2", **tensors)
    tables = [
        *(g(dense, *keys, value_dtype=float32, initial_num_buckets=n) for n in (4, 2, 12, 0)),
        g(dense, *keys, value_dtype=float32, value_shape=Shape((1, 2))),
        *(
            g(op, value_shape=Shape(shape), **tensors)
            for op in ("MutableHashTableOfTensorsV2", "AnonymousMutableHashTableOfTensors")
            for shape in ((), (2,), (1, 2))
        ),
    ]
    return [
        *([g("LookupTableSizeV2", table)] for table in tables),
        [g("InitializeTableV2", once, *nothing).node],
        [g("LookupTableImportV2", once, *nothing).node],
        [g("LookupTableImportV2", changing, *nothing).node],
    ]


SCENES: list[Scenario] = [
    *versions(of_a_file, "V2", ""),
    *versions(filled_once, "V2", ""),
    *versions(changing, "V2", ""),
    *versions(of_tensors, "V2", ""),
    reserved_keys,
    vector_keys,
    wrong_attributes,
    removing,
    anonymous,
    destroyed,
]
