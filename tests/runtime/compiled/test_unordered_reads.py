"""Accesses to one resource that need no order, since all of them read."""

from __future__ import annotations

import numpy as np

import cfgraph


def test_lookups_and_the_size_of_a_table_compile_without_an_order():
    b = cfgraph.Builder()
    keys = b.placeholder("keys", "int64", [None])
    table = b.HashTableV2(key_dtype="int64", value_dtype="int64")
    numbers = b.const(np.arange(4))
    fill = b.InitializeTableV2(table, numbers, b.Mul(numbers, numbers))
    b.LookupTableFindV2(table, keys, np.int64(-1), name="once")
    b.LookupTableFindV2(table, b.AddV2(keys, np.int64(1)), np.int64(-2), name="next")
    b.LookupTableSizeV2(table, name="size")
    session = cfgraph.Session(b.graph, engine="compiled")
    session.run(targets=[fill.name])
    once, after, size = session.run(["once:0", "next:0", "size:0"], {"keys": np.array([1, 3])})
    assert not session.fallback
    assert (once.tolist(), after.tolist(), size) == ([1, 9], [4, -2], 4)
