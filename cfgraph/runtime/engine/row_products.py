"""Products of the elements of an unstacked array with one matrix, for several iterations at once.

A recurrent layer multiplies the input of each step, with few rows, with the same weights:

    while: MatMul(Concat(TensorArrayRead(inputs, i), state), weights)

The part that does not depend on the state is computed for several steps at once, and the product
with the state is added.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from operator import index as as_index
from typing import Any, Final

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ops.opdef.matrix_products import Deferred, evaluated, multiply
from cfgraph.ops.opdef.op import Kernel
from cfgraph.ops.opdef.unstacked_rows import UnstackedRows

# elements of the part of the matrix below which blocks cost more than they save
_MIN_ELEMENTS: Final = 1 << 15
_MATRIX: Final = 2


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
