"""Attribute values that no built-in Python type represents: tensors, functions, placeholders.

An attribute is one of: bytes, int, float, bool, DType, Shape, TensorValue, Func, AttrPlaceholder, a
tuple of these (a list attribute), or EncodedAttr (the bytes of the file, unchanged).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cfgraph.ir.array_content import same_content
from cfgraph.ir.dtypes import DType
from cfgraph.ir.shapes import Shape


@dataclass(frozen=True, slots=True)
class Func:
    """The name of a function, with the attributes that it is instantiated with."""

    name: str
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.name, tuple(sorted(self.attrs))))


@dataclass(frozen=True, slots=True)
class AttrPlaceholder:
    """A placeholder in a function body for the value of the function's own attribute `name`."""

    name: str


@dataclass(frozen=True, slots=True)
class EncodedAttr:
    """An encoded attribute value without another Python form, preserved byte for byte."""

    data: bytes


class TensorSource(Protocol):
    """Source of a tensor's content; serde implements it for encoded tensors."""

    def dtype(self) -> DType:
        """The element type."""

    def shape(self) -> Shape:
        """The shape as declared."""

    def array(self) -> Any:
        """The decoded array."""

    def check(self) -> None:
        """Raise InvalidInput if the encoding contradicts itself; nothing is decoded."""

    def encoded(self) -> bytes:
        """The bytes of the encoding; tensors of equal bytes are equal."""


class TensorValue:
    """A constant tensor. A tensor from a file is decoded when `array` is first read."""

    __slots__ = ("_array", "source")

    def __init__(self, array: Any = None, *, source: TensorSource | None = None) -> None:
        if array is None and source is None:
            message = "TensorValue requires an array or a source"
            raise TypeError(message)
        self._array = array
        self.source = source

    @property
    def array(self) -> Any:
        """The content as a read-only NumPy array."""
        if self._array is None and self.source is not None:
            self._array = self.source.array()
        return self._array

    @property
    def dtype(self) -> DType:
        """The element type, known without decoding."""
        return self.source.dtype() if self.source else DType.from_numpy(self._array.dtype)

    @property
    def shape(self) -> Shape:
        """The shape, known without decoding."""
        return self.source.shape() if self.source else Shape(self._array.shape)

    def check(self) -> None:
        """Raise InvalidInput if the encoding contradicts itself; nothing is decoded."""
        if self.source:
            self.source.check()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TensorValue) or self.dtype is not other.dtype:
            return False
        if self.shape.dims != other.shape.dims:
            return False
        if self.source and other.source and self.source.encoded() == other.source.encoded():
            return True
        return same_content(self.array, other.array)

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape))

    def __repr__(self) -> str:
        return f"Tensor({self.dtype}{self.shape})"
