"""Products of two matrices, and values such as products that are computed when first read."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

# sizes of a product with a transposed matrix that BLAS computes faster as the transposed product
_MAX_FEW_ROWS: Final = 64
_MIN_PRODUCTS: Final = 1 << 19


def multiply(left: Any, right: Any) -> Any:
    """The product of two matrices, [m, k] and [k, n]."""
    if _is_faster_transposed(left, right):
        return np.ascontiguousarray(right.T.dot(left.T).T)
    return left.dot(right)  # takes half the time of @ for small matrices


def _is_faster_transposed(left: Any, right: Any) -> bool:
    """True for few rows times a large transposed matrix.

    BLAS first copies the matrix into the order in which it computes; for the transposed product
    that takes half the time.
    """
    rows, inner = left.shape
    return (
        2 <= rows <= _MAX_FEW_ROWS
        and 4 * rows <= inner
        and rows * right.size >= _MIN_PRODUCTS
        and left.__class__ is right.__class__ is np.ndarray
        and left.dtype.kind == "f"
        and right.flags.f_contiguous
    )


class Deferred:
    """A value that is computed when it is first read."""

    value: Any
    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def write(self, out: Any) -> None:
        """Write the value into an array of its shape."""
        out[...] = self.value


def evaluated(value: Any) -> Any:
    """A value as an array, if it is deferred."""
    return value.value if isinstance(value, Deferred) else value
