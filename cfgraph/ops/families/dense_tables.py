"""Mutable tables with a key each for empty and deleted buckets, which no row may have."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final

from cfgraph.ir.graph import Node
from cfgraph.ops.families.lookup_tables import SHARING_ATTRS, LookupTable, TableHandle
from cfgraph.ops.opdef.op import Kernel, OpError

_KEYS: Final = "empty_key: key_dtype, deleted_key: key_dtype"
_BUCKETS: Final = (
    "value_shape: shape = [], initial_num_buckets: int = 131072, max_load_factor: float = 0.8"
)


class MutableDenseHashTableV2(TableHandle):
    """Handle of a shared mutable table with reserved keys."""

    signature = f"{_KEYS} -> table_handle: resource"
    attrs = f"{SHARING_ATTRS}, {_BUCKETS}"

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        table_of = super().prepare(node, xp)

        def handle(step: Any, *keys: Any) -> LookupTable:
            if any(key.ndim for key in keys):
                raise OpError("the keys of dense tables must be scalars")
            reserved = frozenset(key.item() for key in keys)
            if len(reserved) < len(keys):
                raise OpError("Empty and deleted keys cannot be equal")
            table: LookupTable = table_of(step)
            table.reserved = reserved
            return table

        return handle


class AnonymousMutableDenseHashTable(MutableDenseHashTableV2):
    """Handle of a new mutable table with reserved keys."""

    attrs = f"key_dtype: type, value_dtype: type, {_BUCKETS}"
