"""Tensor lists: persistent values whose newest version is edited without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.shapes import Shape
from cfgraph.ops.opdef.op import OpError
from cfgraph.ops.opdef.variant_math import add_values, zeros_like_element

_MINIMUM = 32
UndoEntry = tuple[int, Any]


class PersistentList:
    """Persistent list: each edit returns a new version, and older versions stay unchanged."""

    __slots__ = ("_edits", "_list", "_newer", "_undo")

    def __init__(self, items: list[Any]) -> None:
        self._list: list[Any] | None = items
        self._edits = 0
        self._newer: PersistentList | None = None
        self._undo: UndoEntry = (-1, None)

    def all(self) -> list[Any]:
        """The elements; callers must neither modify nor retain the list."""
        return self._list if self._list is not None else self._restore()

    def set(self, index: int, value: Any) -> PersistentList:
        """The list with one element replaced."""
        items = self.all()
        old = items[index]
        new = self._next(items)
        if new._list is items:
            self._undo = (index, old)
        assert new._list is not None
        new._list[index] = value
        return new

    def push(self, value: Any) -> PersistentList:
        """The list with an element appended."""
        items = self.all()
        new = self._next(items)
        if new._list is items:
            self._undo = (-1, None)
        assert new._list is not None
        new._list.append(value)
        return new

    def pop(self) -> PersistentList:
        """The list without its last element."""
        items = self.all()
        new = self._next(items)
        if new._list is items:
            self._undo = (len(items) - 1, items[-1])
        assert new._list is not None
        new._list.pop()
        return new

    def _next(self, items: list[Any]) -> PersistentList:
        """The next version, which shares the list of elements or copies it."""
        if self._edits > max(len(items), _MINIMUM):
            return PersistentList(items.copy())
        new = PersistentList(items)
        new._edits = self._edits + 1
        self._list, self._newer = None, new
        return new

    def _restore(self) -> list[Any]:
        """Revert the shared list to this version, from the newest edit backward."""
        chain: list[PersistentList] = [self]
        while chain[-1]._newer is not None:
            chain.append(chain[-1]._newer)
        newest = chain.pop()
        items = newest._list
        assert items is not None
        for version in reversed(chain):
            newest._undo = _revert_edit(items, version._undo)
            newest._list, newest._newer = None, version
            version._list, version._newer = items, None
            newest = version
        return items


def _revert_edit(items: list[Any], undo: UndoEntry) -> UndoEntry:
    """Revert one edit and return its inverse. Index -1 stands for dropping the last element."""
    index, old = undo
    if index < 0:
        return len(items) - 1, items.pop()
    if index == len(items):
        items.append(old)
        return -1, None
    items[index], old = old, items[index]
    return index, old


class TensorList:
    """List of tensors of one dtype; None stands for a reserved element without a value."""

    __slots__ = ("element_dtype", "element_shape", "items", "max_elements")
    shape = ()
    ndim = 0

    def __init__(
        self, dtype: DType, shape: Shape, items: PersistentList | list[Any], max_elements: int = -1
    ) -> None:
        self.element_dtype = dtype
        self.element_shape = shape
        self.items = items if isinstance(items, PersistentList) else PersistentList(items)
        self.max_elements = max_elements

    def all(self) -> list[Any]:
        """The elements; callers must neither modify nor retain the list."""
        return self.items.all()

    @property
    def length(self) -> int:
        """The number of elements."""
        return len(self.items.all())

    def replaced(self, items: PersistentList | list[Any], shape: Shape | None = None) -> TensorList:
        """A list of the same dtype and limit with different elements."""
        return TensorList(self.element_dtype, shape or self.element_shape, items, self.max_elements)

    def zeros_like(self) -> TensorList:
        """A list of zeros with the shapes of the elements."""
        return self.replaced([None if v is None else zeros_like_element(v) for v in self.all()])

    def add(self, other: Any) -> TensorList:
        """Elementwise sum of two lists. Raises OpError if dtype, length, or shapes differ."""
        other = tensor_list_of(other)
        if self.element_dtype is not other.element_dtype:
            message = (
                f"Trying to add two lists of tensors of different dtypes. One is "
                f"{self.element_dtype} and the other is {other.element_dtype}"
            )
            raise OpError(message)
        mine, theirs = self.all().copy(), other.all()
        if len(mine) != len(theirs):
            message = (
                f"Trying to add two lists of tensors with different lengths. One is {len(mine)} "
                f"and the other is {len(theirs)}"
            )
            raise OpError(message)
        shape = merge_shapes(self.element_shape, other.element_shape)
        return self.replaced(list(map(_sum_elements, mine, theirs)), shape)

    def __repr__(self) -> str:
        return f"<TensorList of {self.length} {self.element_dtype}{self.element_shape}>"


def _sum_elements(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return add_values(one, other)


def tensor_list_of(handle: Any, dtype: DType | None = None) -> TensorList:
    """The tensor list of a handle. Raises OpError for other values and for other dtypes."""
    if not isinstance(handle, TensorList):
        if isinstance(handle, np.ndarray) and not handle.ndim:
            handle = handle[()]
        if not isinstance(handle, TensorList):
            message = f"Input handle is not a list. Saw: {handle!r}"
            raise OpError(message)
    if dtype is not None and handle.element_dtype is not dtype:
        message = (
            f"Invalid data types; op elements {dtype} but list elements {handle.element_dtype}"
        )
        raise OpError(message)
    return handle


def merge_shapes(one: Shape, other: Shape) -> Shape:
    """The intersection of two shapes. Raises OpError if they are incompatible."""
    if one.dims is None:
        return other
    try:
        return one.merge(other)
    except ValueError as error:
        raise OpError(str(error)) from None


def element_shape_of(value: Any) -> Shape:
    """The shape described by an `element_shape` input; the scalar -1 means unknown rank."""
    sizes: int | Sequence[int] = value.tolist()
    if isinstance(sizes, int):
        if sizes == -1:
            return Shape(None)
        message = f"The only valid scalar shape tensor is -1, the unknown rank, not {sizes}"
        raise OpError(message)
    if any(size < -1 for size in sizes):
        message = f"Dimensions must be >= -1, not {sizes}"
        raise OpError(message)
    return Shape(None if size < 0 else size for size in sizes)
