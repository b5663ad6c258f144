"""Matrix products that their only reader computes: it needs a part of one, or the sum of many.

The gradient of a weight in a loop is a sum with one product per iteration. Each product has a short
inner dimension, and adding it reads and writes the whole sum:

    while: sum = sum + MatMul(x, dy, transpose_a=True)

Here the products of several iterations are one product over their joined inner dimensions, which
reads and writes the sum once. A slice of a product computes only its part. Sums differ from those
of single products in the order of additions only.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ops.opdef.matrix_products import Deferred, evaluated, multiply
from cfgraph.ops.opdef.op import Kernel

_RANK: Final = 2
# elements of a product below which joining costs more than it saves
_MIN_ELEMENTS: Final = 1 << 14
# rows and columns of a product below which the joined factors are large beside it
_MIN_SIDE: Final = 64
# the inner dimension of a product that is efficient by itself, and of joined products
_MAX_INNER: Final = 128
_JOINED_INNER: Final = 384


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
        return multiply(self.left, self.right)

    def __getitem__(self, index: tuple[Any, ...]) -> Any:
        """A part of the product; only its rows and columns are computed."""
        if len(index) > _RANK or any(type(entry) is not slice for entry in index):
            return self.value[index]
        rows, columns = [*index, slice(None), slice(None)][:_RANK]
        return multiply(self.left[rows], self.right[:, columns])


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
        result = multiply(left.T, right)
        return np.add(result, self.total, result)


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
