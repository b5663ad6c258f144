"""The state of a lookup table: rows from keys to values, filled once or at any time."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.shapes import Shape
from cfgraph.ops.op import OpError
from cfgraph.ops.referents import Referent


class Table(Referent):
    """A table of values of one shape by scalar keys; `once`: filled at one stroke or not at all."""

    __slots__ = ("container", "initialized", "key", "name", "once", "rows", "value", "value_shape")
    shape = ()
    ndim = 0

    def __init__(
        self, key: DType, value: DType, *, once: bool, value_shape: Shape, container: str, name: str
    ) -> None:
        self.key = key
        self.value = value
        self.once = once
        self.value_shape = tuple(size or 0 for size in value_shape.dims or ())
        self.container = container
        self.name = name
        self.initialized = not once
        self.rows: dict[Any, Any] = {}

    def require(self) -> None:
        """Raise OpError unless there is something to look up in."""
        if not self.initialized:
            message = f"Table {self.name} not initialized."
            raise OpError(message)

    def find(self, keys: Any, default: Any) -> Any:
        """The values of keys; the default where there is none."""
        self.require()
        self._check(keys, default)
        shape = keys.shape + self.value_shape
        spread = default.shape == shape and default.shape != self.value_shape
        if not spread and default.shape != self.value_shape:
            message = (
                f"Expected shape {Shape(self.value_shape)} or {Shape(shape)} for default value, "
                f"got {Shape(default.shape)}"
            )
            raise OpError(message)
        flat = np.empty((keys.size, *self.value_shape), self.value.numpy)
        defaults = default.reshape(flat.shape) if spread else None
        for place, key in enumerate(keys.ravel().tolist()):
            found = self.rows.get(key)
            if found is not None:
                flat[place] = found
            else:
                flat[place] = default[()] if defaults is None else defaults[place]
        return flat.reshape(shape)

    def insert(self, keys: Any, values: Any) -> None:
        """Add rows, or replace them. Raises OpError where the shapes do not fit."""
        self._check(keys, values)
        if values.shape != keys.shape + self.value_shape:
            message = (
                f"Expected shape {Shape(keys.shape + self.value_shape)} for value, got "
                f"{Shape(values.shape)}"
            )
            raise OpError(message)
        flat = values.reshape(-1, *self.value_shape)
        self.rows.update(zip(keys.ravel().tolist(), flat, strict=True))

    def fill(self, keys: Any, values: Any) -> None:
        """Give all rows at once. Raises OpError where it holds others already."""
        if not self.once:
            message = "only a table that is filled once can be initialized"
            raise OpError(message)
        self._check(keys, values)
        if keys.ndim != 1 or keys.shape != values.shape:
            message = (
                f"Keys and values must be vectors of one size, not of shapes {Shape(keys.shape)} "
                f"and {Shape(values.shape)}"
            )
            raise OpError(message)
        rows: dict[Any, Any] = {}
        for key, value in zip(keys.tolist(), values, strict=True):
            if rows.setdefault(key, value) != value:
                message = (
                    f"HashTable has different value for same key. Key {key!r} has {rows[key]} and "
                    f"trying to add value {value}"
                )
                raise OpError(message)
        if self.initialized:
            # TensorFlow takes as many rows for the same rows
            if len(rows) != len(self.rows):
                message = f"Table {self.name} already initialized."
                raise OpError(message)
            return
        self.rows, self.initialized = rows, True

    def export(self) -> tuple[Any, Any]:
        """All keys and their values, in one order."""
        self.require()
        keys = np.array(list(self.rows), self.key.numpy)
        values = np.empty((len(keys), *self.value_shape), self.value.numpy)
        for place, value in enumerate(self.rows.values()):
            values[place] = value
        return keys, values

    def _check(self, keys: Any, values: Any) -> None:
        if keys.dtype != self.key.numpy or values.dtype != self.value.numpy:
            message = (
                f"Table {self.name} goes from {self.key} to {self.value}, not from {keys.dtype} "
                f"to {values.dtype}"
            )
            raise OpError(message)

    def __repr__(self) -> str:
        return f"<Table {self.name!r} of {len(self.rows)} {self.key} to {self.value}>"
