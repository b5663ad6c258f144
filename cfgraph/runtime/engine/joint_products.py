"""Kernels of matrix products that several nodes compute jointly, chosen by `deferred_products`.

The gradient of a weight in a loop is a sum with one product per iteration. Each product has a short
inner dimension, and adding it reads and writes the whole sum:

    while: sum = sum + MatMul(x, dy, transpose_a=True)

The products of several iterations are one product over their joined inner dimensions, which
reads and writes the sum once. A slice of a product computes only its part. Sums differ from those
of single products in the order of additions only.

A recurrent layer multiplies the input of each step, with few rows, with the same weights:

    while: MatMul(Concat(TensorArrayRead(inputs, i), state), weights)

The part that does not depend on the state is computed for several steps at once, and the product
with the state is added.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from operator import index as as_index
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ops.kernels.matrix_products import Deferred, evaluated
from cfgraph.ops.kernels.packed_products import add_product, multiply_in_loop
from cfgraph.ops.kernels.unstacked_rows import UnstackedRows
from cfgraph.ops.opdef.op import Kernel

if TYPE_CHECKING:
    from cfgraph.runtime.engine.plan import KernelWrapper

_RANK: Final = 2
# elements of a product below which joining costs more than it saves
_MIN_ELEMENTS: Final = 1 << 14
# rows and columns of a product below which the joined factors are large beside it
_MIN_SIDE: Final = 64
# the inner dimension of a product that is efficient by itself, and of joined products
_MAX_INNER: Final = 128
_JOINED_INNER: Final = 384
# elements of the part of a matrix below which blocks of rows cost more than they save
_MIN_ROW_ELEMENTS: Final = 1 << 15


class DeferredProduct(Deferred):
    """The product of two matrices, [m, k] and [k, n], which has not been computed.

    The transposed left one, [k, m], may be deferred itself.
    """

    def __init__(self, left_transposed: Any, right: Any) -> None:
        self.left_transposed = left_transposed
        self.right = right
        self.inner, rows = left_transposed.shape
        self.shape: tuple[int, int] = rows, right.shape[1]

    @property
    def can_be_joined(self) -> bool:
        """True for a short inner dimension, which makes the product alone inefficient."""
        return self.inner <= _MAX_INNER and min(self.shape) >= _MIN_SIDE

    @property
    def left(self) -> Any:
        """The left matrix, [m, k]."""
        return evaluated(self.left_transposed).T

    @cached_property
    def value(self) -> Any:
        """The product, [m, n]."""
        return multiply_in_loop(self.left, self.right)

    def __getitem__(self, index: tuple[Any, ...]) -> Any:
        """A part of the product; only its rows and columns are computed."""
        if len(index) > _RANK or any(type(entry) is not slice for entry in index):
            return self.value[index]
        rows, columns = [*index, slice(None), slice(None)][:_RANK]
        return multiply_in_loop(self.left[rows], self.right[:, columns], repeats=True)


class _Factors:
    """Factors of products side by side, as rows: [inner, m] and [inner, n]. Sums share a prefix."""

    def __init__(self, rows: int, columns: int, dtype: Any) -> None:
        self.left = np.empty((_JOINED_INNER, rows), dtype)
        self.right = np.empty((_JOINED_INNER, columns), dtype)
        self.inner = 0

    def append(self, product: DeferredProduct) -> None:
        """Append the factors of a product, for which there is space."""
        start = self.inner
        self.inner += product.inner
        left, out = product.left_transposed, self.left[start : self.inner]
        if isinstance(left, Deferred):
            left.write(out)
        else:
            out[...] = left
        self.right[start : self.inner] = product.right


class JoinedSum(Deferred):
    """The sum of a matrix and products that are still to be added to it.

    It is immutable: the products are the first `inner` rows of factors that longer sums share.
    """

    def __init__(self, total: Any, factors: _Factors | None = None) -> None:
        self.total = total
        self.shape = total.shape
        self.factors = factors
        self.inner = 0 if factors is None else factors.inner

    def add(self, product: DeferredProduct) -> JoinedSum:
        """The sum with one more product."""
        if self.inner + product.inner > _JOINED_INNER:
            return JoinedSum(self.value).add(product)
        factors = self.factors
        if factors is None or factors.inner != self.inner:  # another sum has continued
            factors = self._copied_factors(product)
        factors.append(product)
        return JoinedSum(self.total, factors)

    def _copied_factors(self, product: DeferredProduct) -> _Factors:
        copy = _Factors(*product.shape, self.total.dtype)
        if self.factors is not None:
            copy.inner = self.inner
            copy.left[: self.inner] = self.factors.left[: self.inner]
            copy.right[: self.inner] = self.factors.right[: self.inner]
        return copy

    @cached_property
    def value(self) -> Any:
        """The sum."""
        if self.factors is None:
            return self.total
        left, right = self.factors.left[: self.inner], self.factors.right[: self.inner]
        result = multiply_in_loop(left.T, right)
        return np.add(result, self.total, result)


class DeferredRow(Deferred):
    """An element of an unstacked array; `is_last` if no other read can follow."""

    def __init__(self, rows: UnstackedRows, index: int, value: Any, *, is_last: bool) -> None:
        self.rows = rows
        self.is_last = is_last
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


def deferring(kernel: Kernel, node: Node) -> Kernel:
    """The kernel of a product of matrices that its reader computes if it is large."""
    transpose_a, transpose_b = node.attr("transpose_a"), node.attr("transpose_b")

    def defer(a: Any, b: Any) -> Any:
        is_matrix = a.__class__ is np.ndarray or (transpose_a and isinstance(a, Deferred))
        if is_matrix and b.__class__ is np.ndarray and len(a.shape) == b.ndim == _RANK:
            left_transposed, right = a if transpose_a else a.T, b.T if transpose_b else b
            (inner, rows), columns = left_transposed.shape, right.shape[1]
            if rows * columns >= _MIN_ELEMENTS and inner == right.shape[0] != 0:
                return DeferredProduct(left_transposed, right)
        return kernel(evaluated(a), b)

    return defer


def slicing(kernel: Kernel, node: Node) -> Kernel:
    """The kernel of a slice, which indexes a deferred product like an array."""
    return kernel


def adding(kernel: Kernel, node: Node) -> Kernel:
    """The kernel of an addition that joins deferred products."""

    def add(x: Any, y: Any) -> Any:
        total, product = (x, y) if isinstance(y, DeferredProduct) else (y, x)
        if not (isinstance(product, DeferredProduct) and product.can_be_joined):
            return kernel(evaluated(x), evaluated(y))
        if total.shape != product.shape:
            return kernel(evaluated(x), evaluated(y))
        return (total if isinstance(total, JoinedSum) else JoinedSum(total)).add(product)

    return add


def reading(kernel: Kernel, node: Node) -> Kernel:
    """The kernel of a read of an array that may be unstacked, and written to behind its rows."""

    def read(step: Any, array: Any, index: Any, flow: Any) -> Any:
        value, rows = kernel(step, array, index, flow), array.rows
        is_row = rows is not None and as_index(index) < rows.count
        if not is_row:
            return value
        is_last = array.clear_after_read and not array.is_gradient
        return DeferredRow(rows, as_index(index), value, is_last=is_last)

    return read


def concatenating(kernel: Kernel, node: Node) -> Kernel:
    """The kernel of a concatenation of two matrices, the first of which is an unstacked element."""

    def concat(first: Any, rest: Any, axis: Any) -> Any:
        if isinstance(first, DeferredRow):
            row = first.value
            is_matrix = rest.__class__ is np.ndarray and rest.ndim == _RANK
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
    """The kernel of a product with a matrix that stays the same in a loop.

    The left matrix may be an unstacked element, or a concatenation of one and another matrix.
    """
    transpose_b = node.attr("transpose_b")

    def product(a: Any, b: Any) -> Any:
        if a.__class__ is b.__class__ is np.ndarray and a.ndim == b.ndim == _RANK:
            right = b.T if transpose_b else b
            is_product = a.shape[1] == len(right)
            return multiply_in_loop(a, right, repeats=True) if is_product else kernel(a, b)
        if not isinstance(a, DeferredRow | DeferredConcat):
            return kernel(a, b)
        row, rest = (a, None) if isinstance(a, DeferredRow) else (a.row, a.rest)
        if b.__class__ is np.ndarray and b.ndim == _RANK:
            right = b.T if transpose_b else b
            inner, width = row.value.shape[1], 0 if rest is None else rest.shape[1]
            if len(right) == inner + width and inner * right.shape[1] >= _MIN_ROW_ELEMENTS:
                part = row.product(b, right[:inner])
                if rest is None:
                    return part
                return add_product(part, rest, right[inner:], overwrites=row.is_last)
        return kernel(evaluated(a), b)

    return product


# by the names in decompiled code
WRAPPERS: Final[dict[str, KernelWrapper]] = {
    wrapper.__name__: wrapper
    for wrapper in (
        *(adding, deferring, slicing),
        *(concatenating, multiplying_rows, popping, pushing, reading),
    )
}
