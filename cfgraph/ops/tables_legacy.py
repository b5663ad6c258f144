"""The table ops of old files: the handle is a reference to a string."""

from __future__ import annotations

from cfgraph.ops.tables import (
    HashTableV2,
    InitializeTableV2,
    LookupTableExportV2,
    LookupTableFindV2,
    LookupTableImportV2,
    LookupTableInsertV2,
    LookupTableSizeV2,
    MutableHashTableOfTensorsV2,
    MutableHashTableV2,
)


class HashTable(HashTableV2):
    """The handle of a table that is filled once."""

    signature = "-> table_handle: Ref(string)"


class MutableHashTable(MutableHashTableV2):
    """The handle of a table of scalars."""

    signature = "-> table_handle: Ref(string)"


class MutableHashTableOfTensors(MutableHashTableOfTensorsV2):
    """The handle of a table of tensors."""

    signature = "-> table_handle: Ref(string)"


class LookupTableFind(LookupTableFindV2):
    """The values of keys; the default where there is none."""

    signature = "table_handle: Ref(string), keys: Tin, default_value: Tout -> values: Tout"


class LookupTableInsert(LookupTableInsertV2):
    """Add rows to a table, or replace them."""

    signature = "table_handle: Ref(string), keys: Tin, values: Tout ->"


class LookupTableImport(LookupTableImportV2):
    """Replace all rows of a table."""

    signature = "table_handle: Ref(string), keys: Tin, values: Tout ->"


class LookupTableExport(LookupTableExportV2):
    """All keys of a table, and their values."""

    signature = "table_handle: Ref(string) -> keys: Tkeys, values: Tvalues"


class LookupTableSize(LookupTableSizeV2):
    """The number of rows of a table."""

    signature = "table_handle: Ref(string) -> size: int64"


class InitializeTable(InitializeTableV2):
    """Fill a table, once."""

    signature = "table_handle: Ref(string), keys: Tkey, values: Tval ->"
