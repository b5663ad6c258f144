"""Attribute values that no built-in Python type represents: tensors, functions, placeholders.

An attribute is one of: bytes, int, float, bool, DType, Shape, TensorValue, Func, AttrPlaceholder, a
tuple of these (a list attribute), or EncodedAttr (the bytes of the file, unchanged).

Arrays are compared by content, without expanding one that repeats a single element: a file of a
hundred bytes may hold a constant of 2**31 elements, all of them equal, which NumPy stores as one
element with strides of zero.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final, Protocol

from cfgraph.ir.dtypes import DType
from cfgraph.ir.shapes import Shape
from cfgraph.limits import check_deadline

# late imports: few commands compare the contents of arrays

_CHUNK_ELEMENTS: Final = 1 << 20
# of arrays that compiled code reads without a copy
HOST_ALIGNMENT: Final = 64


def repeated_element(array: Any) -> Any | None:
    """The element of an array that stores a single one as often as its shape says, else None."""
    repeats = array.size > 1 and not any(
        stride for size, stride in zip(array.shape, array.strides, strict=True) if size > 1
    )
    return array[(0,) * array.ndim] if repeats else None


def array_copy(array: Any) -> Any:
    """A copy of an array, made in pieces between which the deadline is checked."""
    if array.size <= _CHUNK_ELEMENTS or array.dtype == object:
        return array.copy()
    import numpy as np

    copy = np.empty(array.shape, array.dtype)
    target, element = copy.reshape(-1), repeated_element(array)
    source = array.reshape(-1) if array.flags.c_contiguous else array.flat
    for start in range(0, array.size, _CHUNK_ELEMENTS):
        check_deadline()
        piece = slice(start, start + _CHUNK_ELEMENTS)
        target[piece] = source[piece] if element is None else element
    return copy


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array without values, which compiled code reads without a copy."""
    import numpy as np

    data = np.empty(prod(shape) * dtype.itemsize + HOST_ALIGNMENT, np.uint8)
    return np.ndarray(shape, dtype, data, -address(data) % HOST_ALIGNMENT)


def aligned_copy(array: Any) -> Any:
    """A copy of an array, which compiled code reads without another one."""
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def address(array: Any) -> int:
    """The address of the first element of an array of NumPy."""
    start: int = array.__array_interface__["data"][0]
    return start


def same_content(a: Any, b: Any) -> bool:
    """True if two arrays have the same shape and the same elements, bit by bit."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if repeated_element(a) is not None and repeated_element(b) is not None:
        return bool(_first_content(a) == _first_content(b))
    return all(x == y for x, y in zip(_chunks(a), _chunks(b), strict=True))


def content_key(array: Any) -> Hashable:
    """A hashable value that is equal for arrays of one type and shape with the same elements."""
    from hashlib import blake2b

    first: Any = next(_chunks(array)) if array.size <= 1 else _first_content(array)
    digest, same = blake2b(), True
    if array.size > 1 and repeated_element(array) is None:
        for chunk in _chunks(array):
            same = same and chunk == first * (len(chunk) // len(first))
            digest.update(chunk if isinstance(chunk, bytes) else repr(chunk).encode())
    key: Hashable = first if same else digest.digest()
    return key


def _first_content(array: Any) -> Any:
    return next(_chunks(array.reshape(-1)[:1]))


def _chunks(array: Any) -> Iterator[Any]:
    """The bytes of an array, or tuples of its objects, in pieces; at least one."""
    flat = array.reshape(-1)  # a view, also of repeats
    for start in range(0, flat.size or 1, _CHUNK_ELEMENTS):
        chunk = flat[start : start + _CHUNK_ELEMENTS]
        yield tuple(chunk.tolist()) if array.dtype == object else chunk.tobytes()


@dataclass(frozen=True, slots=True)
class Func:
    """The name of a function, with the attributes that it is instantiated with."""

    name: str
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.name, tuple(sorted(self.attrs))))


def functions_in(value: Any) -> tuple[Func, ...]:
    """The functions that the value of an attribute names: one, those of a list, or none."""
    parts = value if type(value) is tuple else (value,)
    return tuple(part for part in parts if isinstance(part, Func))


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

    def digest(self) -> bytes | None:
        """A digest of raw content that is not in memory, else None."""

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

    def move(self, array: Any) -> None:
        """Read an equal array from now on, at another place in memory."""
        self._array = array

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
        if self.source and other.source:
            digest = self.source.digest()
            if digest is not None and (other_digest := other.source.digest()) is not None:
                return digest == other_digest
            if self.source.encoded() == other.source.encoded():
                return True
        return same_content(self.array, other.array)

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape))

    def __repr__(self) -> str:
        return f"Tensor({self.dtype}{self.shape})"


# the Python type of each kind of attribute, as signatures name it
PYTHON_TYPES: Final[Mapping[str, type]] = {
    "string": bytes,
    "int": int,
    "float": float,
    "bool": bool,
    "type": DType,
    "shape": Shape,
    "tensor": TensorValue,
    "func": Func,
}


def fits_kind(kind: str, value: Any) -> bool:
    """True for a value of the kind; unknown kinds accept any value."""
    if not kind.startswith("list("):
        return type(value) is PYTHON_TYPES.get(kind, type(value))
    expected = PYTHON_TYPES.get(kind[5:-1])
    return type(value) is tuple and all(
        expected is None or type(element) is expected for element in value
    )


def kind_text(value: Any) -> str:
    """The kind of a value, as written in a signature."""
    if isinstance(value, tuple):
        return f"list({kind_text(value[0])})" if value else "an empty list"
    for kind, python in PYTHON_TYPES.items():
        if type(value) is python:
            return kind
    if isinstance(value, AttrPlaceholder):
        return f"the placeholder {value.name!r}"
    return (
        "unset or of mixed kind" if hasattr(value, "data") else f"a Python {type(value).__name__}"
    )
