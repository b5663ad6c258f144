"""Decompositions of one matrix by the textbook's steps: NaN and infinity go where the steps lead.

LAPACK takes NaN for a zero pivot, divides by scales of infinity, or does not end. TensorFlow's
library takes these steps, and so its results have NaN in the same places (Golub and Van Loan 2013).
"""

from __future__ import annotations

from typing import Any

import numpy as np


def eliminated(x: Any, infinity: float = np.nan) -> tuple[Any, Any]:
    """Both factors of a square matrix in one, and the order of its rows.

    The pivot is the first of the largest modulus; NaN is one if it comes first. `infinity` is the
    divisor for infinite complex pivots: NaN where both parts of a quotient are scaled by it.
    """
    factors, rows = x.copy(), np.arange(len(x))
    for step in range(len(x)):
        sizes = np.abs(factors[step:, step])
        pivot = step + (0 if np.isnan(sizes[0]) else int(np.nanargmax(sizes)))
        factors[[step, pivot]], rows[[step, pivot]] = factors[[pivot, step]], rows[[pivot, step]]
        below, right = factors[step + 1 :, step], factors[step, step + 1 :]
        if sizes[pivot - step] != 0:
            below /= _divisors(factors[step, step], infinity)
        factors[step + 1 :, step + 1 :] -= np.multiply.outer(below, right)
    return factors, rows


def _divisors(pivots: Any, infinity: float) -> Any:
    return np.where(np.isinf(pivots), infinity, pivots) if np.iscomplexobj(pivots) else pivots


def is_singular(pivots: Any) -> bool:
    """True if the least pivot is zero, or NaN comes first."""
    return bool(len(pivots)) and bool(np.isnan(pivots[0]) or (pivots == 0).any())


def log_determinant(x: Any) -> tuple[Any, Any]:
    """Sign of the determinant and logarithm of its modulus."""
    factors, rows = eliminated(x)
    pivots = np.diagonal(factors)
    sign = pivots / np.abs(pivots) if np.iscomplexobj(x) else np.sign(pivots)
    swaps = np.linalg.det(np.eye(len(x))[rows])
    return x.dtype.type(np.prod(sign) * swaps), x.dtype.type(np.log(np.abs(pivots)).sum())


def solved(matrix: Any, rhs: Any) -> Any:
    """Solution of a system by elimination. Raises LinAlgError if it is singular."""
    factors, rows = eliminated(matrix, np.inf)
    if is_singular(np.diagonal(factors)):
        raise np.linalg.LinAlgError
    lower = np.tril(factors, -1) + np.eye(len(factors), dtype=factors.dtype)
    return substituted(np.triu(factors), substituted(lower, rhs[rows], upper=False), upper=True)


def substituted(matrix: Any, rhs: Any, *, upper: bool) -> Any:
    """Forward or back substitution; a zero on the diagonal yields infinity or NaN."""
    size = matrix.shape[-1]
    batch = np.broadcast_shapes(matrix.shape[:-2], rhs.shape[:-2])
    result = np.zeros(batch + rhs.shape[-2:], rhs.dtype)
    for row in reversed(range(size)) if upper else range(size):
        known = slice(row + 1, size) if upper else slice(row)
        remainder = (
            rhs[..., row, :]
            - (matrix[..., row : row + 1, known] @ result[..., known, :])[..., 0, :]
        )
        result[..., row, :] = remainder / _divisors(matrix[..., row, row, None], np.inf)
    return result


def cholesky_factor(x: Any) -> Any:
    """Lower triangular factor of a matrix; NaN if it is not positive definite."""
    factor = np.tril(x)
    for step in range(len(x)):
        known = factor[step, :step].conj()
        pivot = factor[step, step].real - (np.abs(known) ** 2).sum()
        if pivot <= 0:
            return np.tril(np.full(x.shape, failed_value(x.dtype)))
        factor[step, step] = np.sqrt(pivot)
        below = factor[step + 1 :, step] - factor[step + 1 :, :step] @ known
        factor[step + 1 :, step] = below / factor[step, step]
    return factor


def orthogonal_factors(x: Any, *, full: bool) -> tuple[Any, Any]:
    """Factors q and r by reflections; `full` makes q square."""
    rows, columns = x.shape
    r, reflections = x.copy(), []
    for step in range(min(rows, columns)):
        vector, factor, r[step, step] = _reflection(r[step:, step])
        _reflect(r[step:, step + 1 :], vector, factor)
        reflections.append((step, vector, factor.conj()))
    q = np.eye(rows, rows if full else min(rows, columns), dtype=x.dtype)
    for step, vector, factor in reversed(reflections):
        _reflect(q[step:, step if full else 0 :], vector, factor)
    return q, np.triu(r[: q.shape[1]])


def _reflection(column: Any) -> tuple[Any, Any, Any]:
    """The vector and factor that reflect a column to its first axis, and its length there."""
    first, tail = column[0], column[1:]
    square, tiny = (np.abs(tail) ** 2).sum(), np.finfo(column.dtype).tiny
    vector = np.zeros_like(column)
    vector[0] = 1
    if square <= tiny and first.imag**2 <= tiny:
        return vector, column.dtype.type(0), first.real
    length = np.sqrt(np.abs(first) ** 2 + square)
    length = -length if first.real >= 0 else length
    vector[1:] = tail / (first - length)
    return vector, ((length - first) / length).conj(), length


def _reflect(block: Any, vector: Any, factor: Any) -> None:
    """Reflect the columns of a block in place."""
    if factor != 0:
        block -= np.multiply.outer(factor * vector, vector.conj() @ block)


def scaled_eigenvalues(x: Any) -> tuple[Any, Any]:
    """Eigenvalues and eigenvectors of a self-adjoint matrix with NaN or infinity.

    Divided by infinity, the rest is zero. Raises LinAlgError where NaN meets another element in the
    reduction to three diagonals, of which no iteration converges.
    """
    diagonal, unit = np.diagonal(x), np.eye(len(x), dtype=x.dtype)
    if len(x) == 1:
        return diagonal.real.astype(x.dtype), unit
    rest = [*np.tril(x, -1).ravel(), *(diagonal[1:] if len(x) > 2 else ())]
    if np.isnan(diagonal).any() or not np.isfinite(rest).all():
        raise np.linalg.LinAlgError
    return np.full(len(x), np.nan).astype(x.dtype), unit


def failed_value(dtype: Any) -> Any:
    """The value of a decomposition that failed: NaN; zero for complex numbers, as in TensorFlow."""
    return dtype.type(0 if dtype.kind == "c" else np.nan)
