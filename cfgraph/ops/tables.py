"""The ops on lookup tables, which go from keys to values."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Kernel, Op, OpError
from cfgraph.ops.table import Table

SHARING = (
    "container: string = '', shared_name: string = '', use_node_name_sharing: bool = false,"
    " key_dtype: type, value_dtype: type"
)


class TableHandle(Op, abstract=True):
    """The handle of a table."""

    stateful = True
    host_only = True
    once: ClassVar[bool] = False

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        known, once = cls.parsed().attrs, cls.once
        key, value = node.attr("key_dtype"), node.attr("value_dtype")
        shape = node.attr("value_shape") if "value_shape" in known else SCALAR_SHAPE
        anonymous = "shared_name" not in known
        container = "" if anonymous else node.attr("container").decode()
        name = node.name if anonymous else node.attr("shared_name").decode() or node.name

        def make() -> Table:
            return Table(key, value, once=once, value_shape=shape, container=container, name=name)

        def handle(step: Any, *keys: Any) -> Table:
            found = make() if anonymous else step.resource(container, name, make)
            if not isinstance(found, Table) or (found.key, found.value) != (key, value):
                message = f"Resource {name} is no table from {key} to {value} but {found!r}"
                raise OpError(message)
            return found

        return handle

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [SCALAR_SHAPE]


class HashTableV2(TableHandle):
    """The handle of a table that is filled once."""

    signature = "-> table_handle: resource"
    attrs = SHARING
    once = True


class AnonymousHashTable(TableHandle):
    """A new table that is filled once."""

    signature = "-> table_handle: resource"
    attrs = "key_dtype: type, value_dtype: type"
    once = True


class MutableHashTableV2(TableHandle):
    """The handle of a table of scalars."""

    signature = "-> table_handle: resource"
    attrs = SHARING


class AnonymousMutableHashTable(TableHandle):
    """A new table of scalars."""

    signature = "-> table_handle: resource"
    attrs = "key_dtype: type, value_dtype: type"


class MutableHashTableOfTensorsV2(TableHandle):
    """The handle of a table of tensors."""

    signature = "-> table_handle: resource"
    attrs = f"{SHARING}, value_shape: shape = []"


class AnonymousMutableHashTableOfTensors(TableHandle):
    """A new table of tensors."""

    signature = "-> table_handle: resource"
    attrs = "key_dtype: type, value_dtype: type, value_shape: shape = []"


class LookupTableFindV2(Op):
    """The values of keys; the default where there is none."""

    signature = "table_handle: resource, keys: Tin, default_value: Tout -> values: Tout"
    stateful = True
    host_only = True

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        return lambda step, table, keys, default: table.find(keys, default)


class LookupTableInsertV2(Op):
    """Add rows to a table, or replace them."""

    signature = "table_handle: resource, keys: Tin, values: Tout ->"
    stateful = True
    host_only = True

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        def insert(step: Any, table: Table, keys: Any, values: Any) -> None:
            if table.once:
                message = f"Table {table.name} is read-only: it can only be initialized"
                raise OpError(message)
            table.insert(keys, values)

        return insert


class LookupTableRemoveV2(Op):
    """Take rows out of a table; keys that it does not have are passed over."""

    signature = "table_handle: resource, keys: Tin ->"
    stateful = True
    host_only = True

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        def remove(step: Any, table: Table, keys: Any) -> None:
            for key in keys.ravel().tolist():
                table.rows.pop(key, None)

        return remove


class LookupTableImportV2(Op):
    """Replace all rows of a table."""

    signature = "table_handle: resource, keys: Tin, values: Tout ->"
    stateful = True
    initializes = True
    host_only = True

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        def replace(step: Any, table: Table, keys: Any, values: Any) -> None:
            old, table.rows = table.rows, {}
            try:
                table.insert(keys, values)
            except OpError:
                table.rows = old
                raise

        return replace


class LookupTableExportV2(Op):
    """All keys of a table, and their values."""

    signature = "table_handle: resource -> keys: Tkeys, values: Tvalues"
    stateful = True
    host_only = True

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        return lambda step, table: table.export()

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [vector_shape(), UNKNOWN_SHAPE]


class LookupTableSizeV2(Op):
    """The number of rows of a table."""

    signature = "table_handle: resource -> size: int64"
    stateful = True
    host_only = True

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        return lambda step, table: np.int64(len(table.rows))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [SCALAR_SHAPE]


class InitializeTableV2(Op):
    """Fill a table, once."""

    signature = "table_handle: resource, keys: Tkey, values: Tval ->"
    stateful = True
    initializes = True
    host_only = True

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        return lambda step, table, keys, values: table.fill(keys, values)
