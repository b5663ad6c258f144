"""Tensor lists: persistent values whose newest version is edited without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.shapes import Shape
from cfgraph.ops.kernels.variant_math import add_values, zeros_like_element
from cfgraph.ops.opdef.op import OpError

_MINIMUM = 32
UndoEntry = tuple[int, Any]


class PersistentList:
    """Persistent list: each edit returns a new version, and older versions stay unchanged."""

    __slots__ = ("_edits", "_list", "_newer", "_undo")

    def __init__(self, elements: list[Any]) -> None:
        self._list: list[Any] | None = elements
        self._edits = 0
        self._newer: PersistentList | None = None
        self._undo: UndoEntry = (-1, None)

    def all(self) -> list[Any]:
        """The elements; callers must neither modify nor retain the list."""
        return self._list if self._list is not None else self._restore()

    def set(self, index: int, value: Any) -> PersistentList:
        """The list with one element replaced."""
        elements = self.all()
        previous = elements[index]
        newer = self._next(elements)
        if newer._list is elements:
            self._undo = (index, previous)
        assert newer._list is not None
        newer._list[index] = value
        return newer

    def push(self, value: Any) -> PersistentList:
        """The list with an element appended."""
        elements = self.all()
        newer = self._next(elements)
        if newer._list is elements:
            self._undo = (-1, None)
        assert newer._list is not None
        newer._list.append(value)
        return newer

    def pop(self) -> PersistentList:
        """The list without its last element."""
        elements = self.all()
        newer = self._next(elements)
        if newer._list is elements:
            self._undo = (len(elements) - 1, elements[-1])
        assert newer._list is not None
        newer._list.pop()
        return newer

    def _next(self, elements: list[Any]) -> PersistentList:
        """The next version, which shares the list of elements or copies it."""
        if self._edits > max(len(elements), _MINIMUM):
            return PersistentList(elements.copy())
        newer = PersistentList(elements)
        newer._edits = self._edits + 1
        self._list, self._newer = None, newer
        return newer

    def _restore(self) -> list[Any]:
        """Revert the shared list to this version, from the newest edit backward."""
        chain: list[PersistentList] = [self]
        while chain[-1]._newer is not None:
            chain.append(chain[-1]._newer)
        newest = chain.pop()
        elements = newest._list
        assert elements is not None
        for version in reversed(chain):
            newest._undo = _revert_edit(elements, version._undo)
            newest._list, newest._newer = None, version
            version._list, version._newer = elements, None
            newest = version
        return elements


def _revert_edit(elements: list[Any], undo: UndoEntry) -> UndoEntry:
    """Revert one edit and return its inverse. Index -1 stands for dropping the last element."""
    index, previous = undo
    if index < 0:
        return len(elements) - 1, elements.pop()
    if index == len(elements):
        elements.append(previous)
        return -1, None
    elements[index], previous = previous, elements[index]
    return index, previous


class ListGrowth:
    """The largest length of a list, which compiled code needs to know before it runs."""

    __slots__ = ("largest",)

    def __init__(self, length: int) -> None:
        self.largest = length

    def add(self, length: int) -> None:
        """Count a length."""
        self.largest = max(self.largest, length)


class TensorList:
    """List of tensors of one dtype; None stands for a reserved element without a value.

    `growth` counts the lengths of the list and of those made from it, if that is needed.
    """

    __slots__ = ("element_dtype", "element_shape", "growth", "items", "max_elements")
    shape = ()
    ndim = 0

    def __init__(
        self,
        dtype: DType,
        shape: Shape,
        elements: PersistentList | list[Any],
        max_elements: int = -1,
        growth: ListGrowth | None = None,
    ) -> None:
        self.element_dtype = dtype
        self.element_shape = shape
        self.items = elements if isinstance(elements, PersistentList) else PersistentList(elements)
        self.max_elements = max_elements
        self.growth = growth

    def all(self) -> list[Any]:
        """The elements; callers must neither modify nor retain the list."""
        return self.items.all()

    @property
    def length(self) -> int:
        """The number of elements."""
        return len(self.items.all())

    def replaced(
        self, elements: PersistentList | list[Any], shape: Shape | None = None
    ) -> TensorList:
        """A list of the same dtype and limit with different elements."""
        return TensorList(
            self.element_dtype,
            shape or self.element_shape,
            elements,
            self.max_elements,
            self.growth,
        )

    def resized(self, size: int) -> TensorList:
        """The list truncated, or extended with elements without values."""
        if self.growth is not None:
            self.growth.add(size)
        values = self.all()
        return self.replaced(values[:size] + [None] * (size - len(values)))

    def pushed(self, value: Any) -> TensorList:
        """The list with an element appended."""
        items = self.items.push(value)
        if self.growth is not None:
            self.growth.add(len(items.all()))
        return self.replaced(items)

    def zeros_like(self) -> TensorList:
        """A list of zeros with the shapes of the elements."""
        return self.replaced([None if v is None else zeros_like_element(v) for v in self.all()])

    def add(self, other: Any) -> TensorList:
        """Elementwise sum of two lists. Raises OpError if dtype, length, or shapes differ."""
        other = tensor_list_of(other)
        if self.element_dtype is not other.element_dtype:
            raise OpError(
                f"Trying to add two lists of tensors of different dtypes. One is "
                f"{self.element_dtype} and the other is {other.element_dtype}"
            )
        left, right = self.all().copy(), other.all()
        if len(left) != len(right):
            raise OpError(
                f"Trying to add two lists of tensors with different lengths. One is {len(left)} "
                f"and the other is {len(right)}"
            )
        shape = merge_shapes(self.element_shape, other.element_shape)
        return self.replaced(list(map(_sum_elements, left, right)), shape)

    def __repr__(self) -> str:
        return f"<TensorList of {self.length} {self.element_dtype}{self.element_shape}>"


def _sum_elements(left: Any, right: Any) -> Any:
    if left is None or right is None:
        return right if left is None else left
    return add_values(left, right)


def tensor_list_of(handle: Any, dtype: DType | None = None) -> TensorList:
    """The tensor list of a handle. Raises OpError for other values and for other dtypes."""
    if not isinstance(handle, TensorList):
        if isinstance(handle, np.ndarray) and not handle.ndim:
            handle = handle[()]
        if not isinstance(handle, TensorList):
            raise OpError(f"Input handle is not a list. Saw: {handle!r}")
    if dtype is not None and handle.element_dtype is not dtype:
        raise OpError(
            f"Invalid data types; op elements {dtype} but list elements {handle.element_dtype}"
        )
    return handle


def merge_shapes(left: Shape, right: Shape) -> Shape:
    """The intersection of two shapes. Raises OpError if they are incompatible."""
    if left.dims is None:
        return right
    try:
        return left.merge(right)
    except ValueError as error:
        raise OpError(str(error)) from None


def element_shape_of(value: Any) -> Shape:
    """The shape described by an `element_shape` input; the scalar -1 means unknown rank."""
    sizes: int | Sequence[int] = value.tolist()
    if isinstance(sizes, int):
        if sizes == -1:
            return Shape(None)
        raise OpError(f"The only valid scalar shape tensor is -1, the unknown rank, not {sizes}")
    if any(size < -1 for size in sizes):
        raise OpError(f"Dimensions must be >= -1, not {sizes}")
    return Shape(None if size < 0 else size for size in sizes)
