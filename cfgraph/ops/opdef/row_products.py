"""Products of the rows of an unstacked tensor with one matrix, computed for many rows at once.

A recurrent layer multiplies the input of each step, with few rows, with the same weights:

    while: MatMul(Concat(TensorArrayRead(inputs, i), state), weights)

The part that does not depend on the state is computed for several steps at once, and the product
with the state is added. The blocks of steps are aligned, so that their products do not depend on
the order of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from operator import index as as_index
from typing import Any, Final
from weakref import ref

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ops.opdef.deferred_products import Deferred, evaluated, multiply
from cfgraph.ops.opdef.op import Kernel

# rows of a block, and numbers in its product
_BLOCK_ROWS: Final = 384
_BLOCK_NUMBERS: Final = 1 << 22
# numbers in the products of all blocks with one matrix, since elements are read in any order
_MAX_NUMBERS: Final = 1 << 24
# rows of one element
_MAX_ROWS: Final = 64
# elements of the part of the matrix below which blocks cost more than they save
_MIN_ELEMENTS: Final = 1 << 15
# matrices that multiply one tensor at a time
_MAX_MATRICES: Final = 8
_MATRIX: Final = 2


class RowBlock:
    """The product of consecutive elements; `unread` of their products were not read yet."""

    __slots__ = ("product", "unread")

    def __init__(self, elements: Any, right: Any) -> None:
        count, rows, inner = elements.shape
        product = multiply(elements.reshape(-1, inner), right)
        self.product = product.reshape(count, rows, right.shape[1])
        self.unread = count


class UnstackedRows:
    """A tensor [n, m, k] that an array was unstacked from, and the products of its elements.

    The elements of the array are views of the tensor, which lives as long as they do.
    """

    __slots__ = ("_products", "_tensor", "count")

    def __init__(self, tensor: Any) -> None:
        self.count = len(tensor)
        self._tensor = ref(tensor)
        # by a matrix and the layout of its part: the matrix, and the blocks by number
        self._products: dict[tuple[Any, ...], tuple[Any, dict[int, RowBlock]]] = {}

    def product(self, index: int, matrix: Any, right: Any) -> Any:
        """Product of element `index`, [m, k], and `right`, [k, n], the first rows of `matrix`.

        `matrix` may be transposed in `right`.
        """
        tensor: Any = self._tensor()
        rows, columns = tensor.shape[1], right.shape[1]
        size = max(1, min(_BLOCK_ROWS, _BLOCK_NUMBERS // columns) // rows)
        number, position = divmod(index, size)
        key = id(matrix), right.shape, right.strides  # strides differ if it is transposed
        known = self._products.get(key)
        if known is None:
            if len(self._products) == _MAX_MATRICES:  # each may be new
                self._products.clear()
            known = self._products[key] = matrix, {}
        blocks = known[1]
        block = blocks.get(number)
        if block is None:
            _drop_blocks(blocks, _MAX_NUMBERS // (size * rows * columns))
            elements = tensor[number * size : (number + 1) * size]
            block = blocks[number] = RowBlock(elements, right)
        block.unread -= 1
        return block.product[position]


def _drop_blocks(blocks: dict[int, RowBlock], most: int) -> None:
    """Drop the blocks that were read, and the first ones until fewer than `most` remain."""
    for number in [number for number, block in blocks.items() if block.unread <= 0]:
        del blocks[number]
    while blocks and len(blocks) >= most:
        del blocks[next(iter(blocks))]


def unstacked_rows(tensor: Any, indices: list[int]) -> UnstackedRows | None:
    """The rows of a tensor, if all are the elements of an array in their order."""
    is_batch = tensor.__class__ is np.ndarray and tensor.ndim == _MATRIX + 1
    if not is_batch or tensor.base is not None or not tensor.flags.c_contiguous:
        return None
    is_float = tensor.dtype in (np.float32, np.float64)
    few_rows = 0 < tensor.shape[1] <= _MAX_ROWS
    if not is_float or not few_rows or indices != list(range(len(tensor))):
        return None
    return UnstackedRows(tensor)


class DeferredRow(Deferred):
    """An element of an unstacked array."""

    def __init__(self, rows: UnstackedRows, index: int, value: Any) -> None:
        self.rows = rows
        self.index = index
        self.value = value
        self.shape = value.shape

    def product(self, matrix: Any, right: Any) -> Any:
        """The product with `right`, the first rows of `matrix`."""
        return self.rows.product(self.index, matrix, right)


class DeferredConcat(Deferred):
    """An element of an unstacked array, [m, k], and another matrix, [m, l], side by side."""

    def __init__(self, row: DeferredRow, rest: Any, concat: Callable[[], Any]) -> None:
        self.row = row
        self.rest = rest
        self.shape = len(rest), row.value.shape[1] + rest.shape[1]
        self._concat = concat

    def write(self, out: Any) -> None:
        """Write both matrices into one."""
        width = self.row.value.shape[1]
        out[:, :width] = self.row.value
        out[:, width:] = self.rest

    @cached_property
    def value(self) -> Any:
        """The concatenation, [m, k + l]."""
        return self._concat()


def reading(kernel: Kernel, node: Node) -> Kernel:
    """The kernel of a read of an array that may be unstacked, and written to behind its rows."""

    def read(step: Any, array: Any, index: Any, flow: Any) -> Any:
        value, rows = kernel(step, array, index, flow), array.rows
        is_row = rows is not None and as_index(index) < rows.count
        return DeferredRow(rows, as_index(index), value) if is_row else value

    return read


def concatenating(kernel: Kernel, node: Node) -> Kernel:
    """The kernel of a concatenation of two matrices, the first of which is an unstacked element."""

    def concat(first: Any, rest: Any, axis: Any) -> Any:
        if isinstance(first, DeferredRow):
            row = first.value
            is_matrix = rest.__class__ is np.ndarray and rest.ndim == _MATRIX
            is_last = axis.ndim == 0 and axis in (1, -1)
            if is_matrix and is_last and len(rest) == len(row):
                return DeferredConcat(first, rest, lambda: kernel(row, rest, axis))
        return kernel(evaluated(first), evaluated(rest), axis)

    return concat


def pushing(kernel: Kernel, node: Node) -> Kernel:
    """The kernel of a push that forwards a value, which may be deferred, to its readers."""
    return lambda step, stack, value: kernel(step, stack, evaluated(value))


def popping(kernel: Kernel, node: Node) -> Kernel:
    """The kernel of a pop of a value that may stay deferred."""
    dtype = node.attr("elem_type")
    return lambda step, stack: stack.pop(dtype)


def multiplying_rows(kernel: Kernel, node: Node) -> Kernel:
    """The kernel of a product of unstacked elements, or concatenations of them, and a matrix."""
    transpose_b = node.attr("transpose_b")

    def product(a: Any, b: Any) -> Any:
        if not isinstance(a, DeferredRow | DeferredConcat):
            return kernel(a, b)
        row, rest = (a, None) if isinstance(a, DeferredRow) else (a.row, a.rest)
        if b.__class__ is np.ndarray and b.ndim == _MATRIX:
            right = b.T if transpose_b else b
            inner, width = row.value.shape[1], 0 if rest is None else rest.shape[1]
            if len(right) == inner + width and inner * right.shape[1] >= _MIN_ELEMENTS:
                part = row.product(b, right[:inner])
                return part if rest is None else _sum(multiply(rest, right[inner:]), part)
        return kernel(evaluated(a), b)

    return product


def _sum(x: Any, y: Any) -> Any:
    return np.add(x, y, x)
