"""Lookups in constants, in place of lookups in a table that is filled once.

    LookupTableFindV2(table, x, default)   becomes   i = LowerBound(keys, x)
                                                     SelectV2(keys[i] == x, values[i], default)

The keys are sorted, strings by a hash that is searched in their place. They are a value in place of
the handle, so that they pass loops, conditionals, and functions as it did.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from cfgraph.analysis.tables import Key, StaticTable, static_tables
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import DType, int32
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.library import called_functions
from cfgraph.ops.families.lookup_tables import (
    HashTableV2,
    InitializeTableV2,
    LookupTableImportV2,
)
from cfgraph.ops.families.string_hashing import farm_hash, hashes_of_texts
from cfgraph.ops.opdef.op import is_a, role_of, strip_identities
from cfgraph.passes.freeze.handle_uses import HandleUses
from cfgraph.passes.lower.plan import constant_value

_BUCKETS: Final = (1 << 63) - 1
_KEY_TYPES: Final = ("string", "int32", "int64")


@dataclass(frozen=True, slots=True, eq=False)
class ConstantTable:
    """The sorted keys of a table, their values, and, of strings, their sorted hashes."""

    keys: Any
    values: Any
    hashes: Any | None = None


class TableRows(NamedTuple):
    """The keys and values of a table."""

    keys: Any
    values: Any


@dataclass(slots=True)
class TableUses:
    """A table that becomes a constant, with the outputs that are each of its handles."""

    name: str
    table: ConstantTable
    handles: dict[Node, list[Output]] = field(default_factory=dict)


def find_constant_tables(
    graph: Graph, uses: HandleUses, rows: Mapping[Key, TableRows], outputs: Collection[str]
) -> Iterator[TableUses | tuple[StaticTable, str]]:
    """Each table that a constant can replace, and each other one with the reason.

    `rows` are known ones by container and name, and `outputs` the names of nodes that stay.
    """
    inner = _table_in_function(graph)
    for table in static_tables(graph).values():
        known = inner or _rows_of(table, rows)
        made = known if isinstance(known, str) else _constant_table(*known)
        if isinstance(made, str):
            yield table, made
            continue
        found = TableUses(table.name, made)
        reason = _follow_handles(table, uses, found, outputs)
        yield (table, reason) if reason else found


def _table_in_function(graph: Graph) -> str:
    """The reason why no table is followed: a function has a handle of its own, or an empty text."""
    for name in sorted(called_functions(graph)):
        for node in graph.functions[name].definition.nodes:
            if is_a(node, HashTableV2):
                return f"{name}/{node.name} ({node.op}) may be the same table"
    return ""


def _rows_of(table: StaticTable, rows: Mapping[Key, TableRows]) -> TableRows | str:
    """The rows of a table, or the reason why they are not known."""
    if table.key in rows:
        return rows[table.key]
    if len(table.initializers) != 1:
        count = len(table.initializers)
        return f"{count} nodes fill it" if count else "no node fills it"
    (node,) = table.initializers
    if not is_a(node, InitializeTableV2, LookupTableImportV2):
        return f"{node.name} ({node.op}) fills it from a file, which only a SavedModel names"
    keys, values = map(constant_value, node.inputs[1:3])
    if keys is None or values is None or keys.shape != values.shape:
        return f"{node.name} ({node.op}) does not fill it with constants"
    return TableRows(keys, values)


def _constant_table(keys: Any, values: Any) -> ConstantTable | str:
    """The constant table of rows, or the reason why there is none."""
    dtype = DType.from_numpy(keys.dtype)
    if dtype.name not in _KEY_TYPES or not keys.size:
        return f"its {keys.size} keys are {dtype}, expected some of string, int32, or int64"
    keys, values = keys.ravel(), values.ravel()
    if dtype.name != "string":
        order = np.unique(keys, return_index=True)[1]
        return ConstantTable(keys[order], values[order])
    hashes = hashes_of_texts(farm_hash, keys.tolist()) % np.uint64(_BUCKETS)
    ordered, order = np.unique(hashes.astype(np.int64), return_index=True)
    if len(order) < len({*keys.tolist()}):
        return "two of its keys have one hash"
    return ConstantTable(keys[order], values[order], ordered)


def _follow_handles(
    table: StaticTable, uses: HandleUses, found: TableUses, outputs: Collection[str]
) -> str:
    """Follow the handles of a table; the reason why one has to stay, or an empty text."""
    for node in table.initializers:
        if node.name in outputs:
            return f"{node.name}, which fills it, is an output"
    for handle in table.handles:
        blocker, tensors = uses.handles(handle.output())
        if blocker is not None:
            return blocker.reason
        output = next((x.node.name for x in tensors if x.node.name in outputs), None)
        if output is not None:
            return f"{output}, an output of the graph, is its handle"
        found.handles[handle] = tensors
    return ""


def replace_lookup(graph: Graph, node: Node, table: ConstantTable) -> None:
    """Make a lookup search the keys that it reads in place of the handle."""
    keys, x, default = node.inputs
    # in the frame of the keys
    guards = [keys.node] if role_of(strip_identities(keys).node) is not None else []

    def add(op: str, *inputs: Output, **attrs: Any) -> Output:
        return graph.add(
            op, *inputs, name=f"{node.name}/{op}", device=node.device, **attrs
        ).output()

    def constant(label: str, array: Any) -> Output:
        value = TensorValue(np.asarray(array))
        name = graph.unique_name(f"{node.name}/{label}")
        attrs = {"dtype": value.dtype, "value": value}
        return graph.create(name, "Const", (), guards, attrs, node.device).output()

    row, axis = constant("row", np.array([1, -1], np.int32)), constant("axis", np.int32(0))
    searched, ordered = x, keys
    if table.hashes is not None:
        searched = add("StringToHashBucketFast", x, num_buckets=_BUCKETS)
        ordered = constant("hashes", table.hashes)
    rows = (add("Reshape", tensor, row) for tensor in (ordered, searched))
    places = add("LowerBound", *rows, out_type=int32)
    last = constant("last", np.int32(len(table.keys) - 1))
    places = add("Reshape", add("Minimum", places, last), add("Shape", x))
    found = add("Equal", add("GatherV2", keys, places, axis), x)
    values = add("GatherV2", constant("values", table.values), places, axis)
    dtype = node.attr("Tout")
    graph.connect(node, [found, values, default], node.controls)
    graph.set_op(node, "SelectV2", {"T": dtype})
