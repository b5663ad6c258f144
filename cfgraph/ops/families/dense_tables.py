"""Mutable tables with a key each for empty and deleted buckets, which no row may have."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final

import numpy as np

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
    value_ranks = (0, 1)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        table_of, buckets = super().prepare(node, xp), node.attr("initial_num_buckets")
        if buckets < 4 or buckets & (buckets - 1):
            raise OpError(f"Number of buckets must be at least 4 and a power of 2, got: {buckets}")

        def handle(step: Any, empty: Any, deleted: Any) -> LookupTable:
            if empty.ndim > 1 or empty.shape != deleted.shape:
                shapes = f"{list(empty.shape)} and {list(deleted.shape)}"
                raise OpError(f"Empty and deleted keys must be scalars or vectors, got {shapes}")
            table: LookupTable = table_of(step)
            table.key_shape = empty.shape
            table.reserved = frozenset(table.key_rows(np.stack((empty, deleted)))[1])
            if len(table.reserved) < 2:
                raise OpError("Empty and deleted keys cannot be equal")
            return table

        return handle


class AnonymousMutableDenseHashTable(MutableDenseHashTableV2):
    """Handle of a new mutable table with reserved keys."""

    attrs = f"key_dtype: type, value_dtype: type, {_BUCKETS}"
