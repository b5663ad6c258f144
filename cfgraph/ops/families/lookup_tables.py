"""Lookup tables: the resource, its ops, and the older ops with string handles."""

from __future__ import annotations

from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Node
from cfgraph.ir.names import decode_key
from cfgraph.ir.shapes import SCALAR_SHAPE, UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.ops.opdef.facts import HostPlacement, SideEffects
from cfgraph.ops.opdef.op import Kernel, Op, OpError, define_op
from cfgraph.ops.opdef.resources import TABLES, Resource


class LookupTable(Resource):
    """Table from keys to values, of one shape each; an immutable table is initialized once."""

    __slots__ = (
        "container",
        "immutable",
        "initialized",
        "key",
        "key_shape",
        "name",
        "reserved",
        "rows",
        "value",
        "value_shape",
    )
    namespace = TABLES
    shape = ()
    ndim = 0

    def __init__(
        self,
        key: DType,
        value: DType,
        *,
        immutable: bool,
        value_shape: Shape,
        container: str,
        name: str,
    ) -> None:
        self.key = key
        self.value = value
        self.immutable = immutable
        self.key_shape: tuple[int, ...] = ()
        self.value_shape = tuple(size or 0 for size in value_shape.dims or ())
        self.container = container
        self.name = name
        self.initialized = not immutable
        self.rows: dict[Any, Any] = {}
        self.reserved: frozenset[Any] = frozenset()  # keys that no row may have

    def copy(self) -> LookupTable:
        """An independent table with the same rows."""
        copied = LookupTable(
            self.key,
            self.value,
            immutable=self.immutable,
            value_shape=Shape(self.value_shape),
            container=self.container,
            name=self.name,
        )
        copied.rows, copied.initialized = dict(self.rows), self.initialized
        copied.reserved, copied.key_shape = self.reserved, self.key_shape
        return copied

    def require(self) -> None:
        """Check that the table is initialized."""
        if not self.initialized:
            hint = "run the node that fills it first, if the graph has one: --init NODE"
            raise OpError(f"Table {self.name} not initialized.", hint=hint)

    def find(self, keys: Any, default: Any) -> Any:
        """Values of the keys; the default for missing keys."""
        self.require()
        self._check(keys, default)
        batch, rows = self.key_rows(keys)
        shape = batch + self.value_shape
        spread = default.shape == shape and default.shape != self.value_shape
        if not spread and default.shape != self.value_shape:
            raise OpError(
                f"Expected shape {Shape(self.value_shape)} or {Shape(shape)} for default value, "
                f"got {Shape(default.shape)}"
            )
        flat = np.empty((len(rows), *self.value_shape), self.value.numpy)
        defaults = default.reshape(flat.shape) if spread else None
        for position, key in enumerate(rows):
            row = self.rows.get(key)
            if row is not None:
                flat[position] = row
            else:
                flat[position] = default[()] if defaults is None else defaults[position]
        return flat.reshape(shape)

    def insert(self, keys: Any, values: Any) -> None:
        """Insert or overwrite rows. Raises OpError if the shapes do not match."""
        self._check(keys, values)
        batch, rows = self.key_rows(keys)
        if values.shape != batch + self.value_shape:
            raise OpError(
                f"Expected shape {Shape(batch + self.value_shape)} for value, got "
                f"{Shape(values.shape)}"
            )
        flat = values.reshape(-1, *self.value_shape)
        self.rows.update(zip(rows, flat, strict=True))

    def fill(self, keys: Any, values: Any) -> None:
        """Initialize the table with all its rows. Raises OpError if it has different rows."""
        if not self.immutable:
            raise OpError("only an immutable table can be initialized")
        self._check(keys, values)
        if keys.ndim != 1 or keys.shape != values.shape:
            raise OpError(
                f"Keys and values must be vectors of one size, not of shapes {Shape(keys.shape)} "
                f"and {Shape(values.shape)}"
            )
        rows: dict[Any, Any] = {}
        for key, value in zip(keys.tolist(), values, strict=True):
            if rows.setdefault(key, value) != value:
                raise OpError(
                    f"HashTable has different value for same key. Key {key!r} has {rows[key]} and "
                    f"trying to add value {value}"
                )
        if self.initialized:
            # TensorFlow accepts a second initialization with the same number of rows
            if len(rows) != len(self.rows):
                raise OpError(f"Table {self.name} already initialized.")
            return
        self.rows, self.initialized = rows, True

    def initialize(self, keys: Any, values: Any) -> None:
        """Initialize the table with all its rows, at least one."""
        if not keys.size or not values.size:
            raise OpError("keys and values cannot be empty tensors.")
        self.fill(keys, values)

    def export(self) -> tuple[Any, Any]:
        """All keys and their values, in matching order."""
        self.require()
        keys = np.array(list(self.rows), self.key.numpy).reshape(-1, *self.key_shape)
        values = np.empty((len(keys), *self.value_shape), self.value.numpy)
        for position, value in enumerate(self.rows.values()):
            values[position] = value
        return keys, values

    def _check(self, keys: Any, values: Any) -> None:
        if keys.dtype != self.key.numpy or values.dtype != self.value.numpy:
            raise OpError(
                f"Table {self.name} maps {self.key} to {self.value}, not {keys.dtype} "
                f"to {values.dtype}"
            )
        self.check_reserved(keys)

    def key_rows(self, keys: Any) -> tuple[tuple[int, ...], list[Any]]:
        """The shape and the list of keys; a key that is a vector is a tuple."""
        if not self.key_shape:
            return keys.shape, keys.ravel().tolist()
        if keys.ndim != 2 or keys.shape[1:] != self.key_shape:
            raise OpError(
                f"Input key shape {Shape(keys.shape)} must end with the key shape "
                f"{Shape(self.key_shape)}, after one dimension"
            )
        return keys.shape[:1], list(map(tuple, keys.tolist()))

    def check_reserved(self, keys: Any) -> None:
        """Raise OpError for a key that marks empty or deleted buckets."""
        if self.reserved and not self.reserved.isdisjoint(self.key_rows(keys)[1]):
            message = f"Using the empty_key or deleted_key as a table key is not allowed: {keys}"
            raise OpError(message)

    def __repr__(self) -> str:
        return f"<Table {self.name!r} of {len(self.rows)} {self.key} to {self.value}>"


SHARING_ATTRS = (
    "container: string = '', shared_name: string = '', use_node_name_sharing: bool = false,"
    " key_dtype: type, value_dtype: type"
)


class TableHandle(Op, abstract=True):
    """An op that creates or looks up a table and returns its handle."""

    signature = "-> table_handle: resource"
    effects = SideEffects(stateful=True)
    placement = HostPlacement(host_only=True)
    immutable: ClassVar[bool] = False
    value_ranks: ClassVar[tuple[int, ...]] = (0,)

    @classmethod
    def prepare(cls, node: Node, xp: ModuleType) -> Kernel:
        known, immutable = cls.parsed().attrs, cls.immutable
        key, value = node.attr("key_dtype"), node.attr("value_dtype")
        shape = node.attr("value_shape") if "value_shape" in known else SCALAR_SHAPE
        if shape.rank not in cls.value_ranks:
            ranks = " or ".join(map(str, cls.value_ranks))
            raise OpError(f"a value of the table must have rank {ranks}, got shape {shape}")
        anonymous = "shared_name" not in known
        container = "" if anonymous else decode_key(node.attr("container"))
        name = node.name if anonymous else decode_key(node.attr("shared_name")) or node.name

        def make() -> LookupTable:
            return LookupTable(
                key, value, immutable=immutable, value_shape=shape, container=container, name=name
            )

        def handle(step: Any, *keys: Any) -> LookupTable:
            table = (
                make() if anonymous else step.resource(container, name, make, LookupTable.namespace)
            )
            if not isinstance(table, LookupTable) or (table.key, table.value) != (key, value):
                message = f"resource {name} is {table!r}, expected a table from {key} to {value}"
                raise OpError(message)
            return table

        return handle

    shape = staticmethod(lambda context: [SCALAR_SHAPE])


class HashTableV2(TableHandle):
    """Handle of a shared table that is initialized once."""

    attrs = SHARING_ATTRS
    immutable = True


class AnonymousHashTable(TableHandle):
    """Handle of a new table that is initialized once."""

    attrs = "key_dtype: type, value_dtype: type"
    immutable = True


class MutableHashTableV2(TableHandle):
    """Handle of a shared mutable table of scalars."""

    attrs = SHARING_ATTRS


class AnonymousMutableHashTable(TableHandle):
    """Handle of a new mutable table of scalars."""

    attrs = "key_dtype: type, value_dtype: type"


class MutableHashTableOfTensorsV2(TableHandle):
    """Handle of a shared mutable table of vectors."""

    attrs = f"{SHARING_ATTRS}, value_shape: shape = []"
    value_ranks = (1,)


class AnonymousMutableHashTableOfTensors(MutableHashTableOfTensorsV2):
    """Handle of a new mutable table of vectors."""

    attrs = "key_dtype: type, value_dtype: type, value_shape: shape = []"


class TableAccess(Op, abstract=True):
    """An op that reads or changes the table at input 0."""

    effects = SideEffects(stateful=True)
    placement = HostPlacement(host_only=True)


class LookupTableFindV2(TableAccess):
    """Values of the keys in a table; the default for missing keys."""

    signature = "table_handle: resource, keys: Tin, default_value: Tout -> values: Tout"
    effects = SideEffects(stateful=True, reads_only=True)
    kernel = staticmethod(lambda xp, step, table, keys, default: table.find(keys, default))


class LookupTableInsertV2(TableAccess):
    """Insert or overwrite rows of a mutable table."""

    signature = "table_handle: resource, keys: Tin, values: Tout ->"

    @staticmethod
    def kernel(xp: ModuleType, step: Any, table: LookupTable, keys: Any, values: Any) -> None:
        if table.immutable:
            raise OpError(f"Table {table.name} is read-only: it can only be initialized")
        table.insert(keys, values)


class LookupTableRemoveV2(TableAccess):
    """Remove keys from a table; missing keys are ignored."""

    signature = "table_handle: resource, keys: Tin ->"

    @staticmethod
    def kernel(xp: ModuleType, step: Any, table: LookupTable, keys: Any) -> None:
        table.check_reserved(keys)
        for key in table.key_rows(keys)[1]:
            table.rows.pop(key, None)


class LookupTableImportV2(TableAccess):
    """Replace all rows of a table; initialize one that can be initialized once."""

    signature = "table_handle: resource, keys: Tin, values: Tout ->"
    effects = SideEffects(stateful=True, initializes=True)

    @staticmethod
    def kernel(xp: ModuleType, step: Any, table: LookupTable, keys: Any, values: Any) -> None:
        if table.immutable:
            table.initialize(keys, values)
            return
        old, table.rows = table.rows, {}
        try:
            table.insert(keys, values)
        except OpError:
            table.rows = old
            raise


class LookupTableExportV2(TableAccess):
    """All keys of a table and their values."""

    signature = "table_handle: resource -> keys: Tkeys, values: Tvalues"
    effects = SideEffects(stateful=True, reads_only=True)
    kernel = staticmethod(lambda xp, step, table: table.export())
    shape = staticmethod(lambda context: [vector_shape(), UNKNOWN_SHAPE])


class LookupTableSizeV2(TableAccess):
    """Number of rows of a table."""

    signature = "table_handle: resource -> size: int64"
    effects = SideEffects(stateful=True, reads_only=True)
    kernel = staticmethod(lambda xp, step, table: np.int64(len(table.rows)))
    shape = staticmethod(lambda context: [SCALAR_SHAPE])


class InitializeTableV2(TableAccess):
    """Initialize a table that can be initialized once."""

    signature = "table_handle: resource, keys: Tkey, values: Tval ->"
    effects = SideEffects(stateful=True, initializes=True)
    kernel = staticmethod(lambda xp, step, table, keys, values: table.initialize(keys, values))


_WITH_STRING_HANDLES: Final[tuple[type[Op], ...]] = (
    HashTableV2,
    MutableHashTableV2,
    MutableHashTableOfTensorsV2,
    LookupTableFindV2,
    LookupTableInsertV2,
    LookupTableImportV2,
    LookupTableExportV2,
    LookupTableSizeV2,
    InitializeTableV2,
)
for _op in _WITH_STRING_HANDLES:
    define_op(
        __name__,
        _op.name.removesuffix("V2"),
        _op,
        f"{(_op.__doc__ or '').removesuffix('.')} (older string handle).",
        signature=_op.signature.replace("resource", "Ref(string)"),
    )
