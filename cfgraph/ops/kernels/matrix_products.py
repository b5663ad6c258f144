"""Products of two matrices."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cfgraph.blas_environment import has_one_thread

# sizes of a product with a transposed matrix that BLAS computes faster as the transposed product
_MAX_FEW_ROWS: Final = 64
_MIN_PRODUCTS: Final = 1 << 19
# rows and elements of factors whose product OpenBLAS computes faster in slices, with one thread;
# the multiplications of a slice, which it does without a copy of the factors
_MAX_SLICED_ROWS: Final = 16
_MIN_SLICED: Final = 1 << 18
_MAX_UNCOPIED: Final = 1_000_000
_SLICE_UNIT: Final = 16
# rows and elements up to which the pages of a slice have addresses in the processor's first table
_NEAR_ROWS: Final = 32
_NEAR: Final = 1 << 15
# elements
_LARGE_RESULT: Final = 1 << 13


def multiply(left: Any, right: Any) -> Any:
    """The product of two matrices, [m, k] and [k, n]."""
    if _is_faster_transposed(left, right):
        return np.ascontiguousarray(right.T.dot(left.T).T)
    if right.size >= _MIN_SLICED and _is_sliceable(left, right):
        columns = right.shape[1]
        most = min(_MAX_UNCOPIED // (len(left) * columns), max(_NEAR_ROWS, _NEAR // columns))
        step = most // _SLICE_UNIT * _SLICE_UNIT
        if step:
            return _multiply_in_slices(left, right, step)
    # dot takes half the time for small matrices, and clears a large result first
    return left.dot(right) if len(left) * right.shape[1] < _LARGE_RESULT else left @ right


def _is_sliceable(left: Any, right: Any) -> bool:
    return (
        2 <= len(left) <= _MAX_SLICED_ROWS
        and left.__class__ is right.__class__ is np.ndarray
        and left.dtype == right.dtype == np.float32
        and right.flags.c_contiguous
        and has_one_thread()
    )


def _multiply_in_slices(left: Any, right: Any, step: int) -> Any:
    """The sum of the products of some columns with some rows.

    Otherwise BLAS copies a large matrix into the order in which it computes, which takes longer
    than to multiply it by few rows.
    """
    result = left[:, :step].dot(right[:step])
    part = np.empty_like(result)
    for first in range(step, len(right), step):
        np.matmul(left[:, first : first + step], right[first : first + step], out=part)
        result += part
    return result


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
