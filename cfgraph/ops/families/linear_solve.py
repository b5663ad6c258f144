"""Solutions of systems of linear equations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import Shape, ShapeError
from cfgraph.ops.families import matrix_calculus
from cfgraph.ops.families.matmul import conjugate_transpose
from cfgraph.ops.families.matrix_functions import (
    MATRIX_TYPES,
    REAL_MATRIX_TYPES,
    MatrixOp,
    matrix_dims,
    square_dims,
)
from cfgraph.ops.kernels import elementary_decompositions as steps
from cfgraph.ops.kernels.array_namespace import holds, is_finite, lapack, on_host
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.op import COMPLEX, Kernel, OpError, one_of
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank


class SolveOp(MatrixOp, abstract=True):
    """A solution x of matrix x = rhs."""

    signature = "matrix: T, rhs: T -> output: T"

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [solution_shape(*square_dims(context.inputs[0]), context.inputs[1], Shape.merge)]


def solution_shape(
    batch: Shape, size: int | None, rhs: Shape, join: Callable[[Shape, Shape], Shape]
) -> Shape:
    """The shape of solutions of systems of a size, whose batch joins that of the right sides."""
    rhs_batch, rows, columns = matrix_dims(rhs)
    Shape((size,)).merge(Shape((rows,)))
    return join(batch, rhs_batch) + Shape((size if rows is None else rows, columns))


def check_solve_rows(matrix: Any, rhs: Any, *, same_batch: bool = True) -> None:
    """Check that a right-hand side matches the rows and batch of a matrix."""
    if rhs.ndim < 2 or matrix.shape[-2] != rhs.shape[-2]:
        message = f"Input matrix and rhs are incompatible: {list(matrix.shape)}, {list(rhs.shape)}"
        raise OpError(message)
    if same_batch and matrix.shape[:-2] != rhs.shape[:-2]:
        message = f"All input tensors must have the same outer dimensions: {list(matrix.shape)}"
        raise OpError(f"{message}, {list(rhs.shape)}")


class MatrixSolve(SolveOp):
    """Solution x of matrix x = rhs, or of matrix^H x = rhs if `adjoint` is set."""

    attrs = f"adjoint: bool = false, {MATRIX_TYPES}"
    compilation = CompilerSupport(uncompiled_types=COMPLEX)

    @staticmethod
    def kernel(xp: ModuleType, adjoint: bool, /, matrix: Any, rhs: Any) -> Any:
        check_solve_rows(matrix, rhs)
        if not rhs.size:
            return xp.zeros(rhs.shape, rhs.dtype)
        return xp.linalg.solve(conjugate_transpose(matrix) if adjoint else matrix, rhs)

    @staticmethod
    def nonfinite(xp: ModuleType, adjoint: bool, /, matrix: Any, rhs: Any) -> Any:
        check_solve_rows(matrix, rhs)
        if not rhs.size:
            return np.zeros(rhs.shape, rhs.dtype)
        return steps.solved(conjugate_transpose(matrix) if adjoint else matrix, rhs)

    gradient = staticmethod(matrix_calculus.solve_gradient)


class BatchMatrixSolve(MatrixSolve):
    """Batch version of MatrixSolve in older graphs."""

    attrs = f"adjoint: bool = false, {REAL_MATRIX_TYPES}"
    compilation = replace(MatrixSolve.compilation, compiled=False)


# of LAPACK's functions, by the letter of a type
_LETTERS: Final = {"f": "s", "d": "d", "F": "c", "D": "z"}


class MatrixTriangularSolve(SolveOp):
    """Solution x of `matrix @ x = rhs` for a triangular matrix; batch dimensions broadcast."""

    attrs = (
        "lower: bool = true, adjoint: bool = false, "
        f"{one_of('bfloat16', 'float64', 'float32', 'float16', COMPLEX)}"
    )

    @staticmethod
    def mask(node: Node) -> Kernel:
        """A function from the sizes of a matrix to a mask of its triangle."""
        side = np.tril if node.attr("lower") else np.triu
        return lru_cache(maxsize=4)(lambda sizes: side(np.ones(sizes, bool)))

    @staticmethod
    def kernel(
        xp: ModuleType, mask: Kernel, lower: bool, adjoint: bool, /, matrix: Any, rhs: Any
    ) -> Any:
        check_solve_rows(matrix, rhs, same_batch=False)
        if xp is np:
            solution = _substituted_by_lapack(matrix, rhs, lower=lower, adjoint=adjoint)
            if solution is not None:
                return solution
            triangle = np.where(mask(matrix.shape[-2:]), matrix, matrix.dtype.type(0))
        else:
            triangle = (xp.tril if lower else xp.triu)(matrix)
        return solved_triangle(xp, triangle, rhs, lower=lower, adjoint=adjoint)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        matrix, rhs = context.inputs
        return [solution_shape(*square_dims(matrix), rhs, Shape.broadcast)]

    gradient = staticmethod(matrix_calculus.triangular_solve_gradient)


def solved_triangle(xp: ModuleType, triangle: Any, rhs: Any, *, lower: bool, adjoint: bool) -> Any:
    """Solutions of triangular systems by substitution, by LAPACK's while all is finite."""
    system, upper = conjugate_transpose(triangle) if adjoint else triangle, lower == adjoint
    if xp is np:
        solution = _substituted_by_lapack(triangle, rhs, lower=lower, adjoint=adjoint)
        if solution is not None:
            return solution
        if not _is_regular(triangle, rhs):
            return steps.substituted(system, rhs, upper=upper)
    if upper:  # it needs no elimination, and so no rows change places
        return xp.linalg.solve(system, rhs)
    return xp.linalg.solve(system[..., ::-1, ::-1], rhs[..., ::-1, :])[..., ::-1, :]


def _is_regular(triangle: Any, rhs: Any) -> bool:
    """True for finite numbers without a zero on the diagonal."""
    has_zero = not np.diagonal(triangle, axis1=-2, axis2=-1).all()
    return not has_zero and bool(np.isfinite(triangle).all() and np.isfinite(rhs).all())


def _substituted_by_lapack(matrix: Any, rhs: Any, *, lower: bool, adjoint: bool) -> Any:
    """Solutions by LAPACK, which reads a triangle of each matrix alone.

    None for batches that differ, for numbers that are not finite, and for a zero on the diagonal.
    """
    if matrix.shape[:-2] != rhs.shape[:-2] or not (rhs.size and is_finite(matrix, rhs)):
        return None
    solve = getattr(lapack(), _LETTERS[matrix.dtype.char] + "trtrs")
    if adjoint and matrix.dtype.kind == "c":
        orders = lower, 2
    else:  # the rows in memory are the columns that LAPACK expects
        matrix, orders = matrix.swapaxes(-1, -2), (not lower, not adjoint)
    if rhs.ndim == 2:
        solution, zero = solve(matrix, rhs, *orders)
        return None if zero else np.ascontiguousarray(solution)
    result = np.empty(rhs.shape, rhs.dtype)
    for batch in np.ndindex(rhs.shape[:-2]):
        result[batch], zero = solve(matrix[batch], rhs[batch], *orders)
        if zero:
            return None
    return result


class BatchMatrixTriangularSolve(MatrixTriangularSolve):
    """Batch version of MatrixTriangularSolve in older graphs."""

    attrs = f"lower: bool = true, adjoint: bool = false, {REAL_MATRIX_TYPES}"
    compilation = CompilerSupport(compiled=False)


class BandedTriangularSolve(SolveOp):
    """Solution of a triangular system whose matrix is stored as diagonals, one per row."""

    attrs = f"lower: bool = true, adjoint: bool = false, {MATRIX_TYPES}"
    is_square = False
    compilation = CompilerSupport(traceable=False)
    adapter = on_host

    @staticmethod
    def kernel(xp: ModuleType, lower: bool, adjoint: bool, /, bands: Any, rhs: Any) -> Any:
        count, size = bands.shape[-2:]
        if count > size:
            raise OpError(f"Number of bands {count} cannot exceed the size of the matrix {size}")
        if not (bands.size and rhs.size):
            message = f"no operand may be empty, got shapes {list(bands.shape)}, {list(rhs.shape)}"
            raise OpError(message)
        diagonals = bands[..., 0 if lower else -1, :].reshape(-1, size)
        if any(map(steps.is_singular, diagonals[:1])):  # TensorFlow examines the first one alone
            raise np.linalg.LinAlgError
        full = np.zeros((*bands.shape[:-2], size, size), bands.dtype)
        for row in range(count):
            if lower:
                positions = np.arange(row, size)
                full[..., positions, positions - row] = bands[..., row, row:]
            else:
                offset = count - 1 - row
                positions = np.arange(size - offset)
                full[..., positions, positions + offset] = bands[..., row, : size - offset]
        check_solve_rows(full, rhs, same_batch=False)
        return solved_triangle(np, full, rhs, lower=lower, adjoint=adjoint)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        batch, count, size = matrix_dims(context.inputs[0])
        if count is not None and size is not None and count > size:
            raise ShapeError(f"{count} bands exceed the size of the matrix, {size}")
        return [solution_shape(batch, size, context.inputs[1], Shape.broadcast)]

    gradient = staticmethod(matrix_calculus.banded_solve_gradient)


class MatrixSolveLs(MatrixOp):
    """Least-squares solution of matrix x = rhs with L2 regularization."""

    is_square = False

    signature = "matrix: T, rhs: T, l2_regularizer: host float64 -> output: T"
    attrs = f"{MATRIX_TYPES}, fast: bool = true"
    compilation = CompilerSupport(compiled=False)

    @staticmethod
    def kernel(xp: ModuleType, fast: bool, /, matrix: Any, rhs: Any, regularizer: Any) -> Any:
        check_solve_rows(matrix, rhs)
        if not holds(xp, regularizer >= 0):
            raise OpError(f"l2_regularizer must be >= 0, got {regularizer}")
        if not fast:  # orthogonal transforms of an infinite column are NaN
            return xp.linalg.pinv(matrix) @ xp.where(xp.isinf(rhs), rhs.dtype.type(xp.nan), rhs)
        adjoint_matrix, (rows, columns) = conjugate_transpose(matrix), matrix.shape[-2:]
        weight = xp.eye(min(rows, columns), dtype=matrix.dtype) * regularizer.astype(matrix.dtype)
        if rows >= columns:
            return xp.linalg.solve(adjoint_matrix @ matrix + weight, adjoint_matrix @ rhs)
        return adjoint_matrix @ xp.linalg.solve(matrix @ adjoint_matrix + weight, rhs)

    @classmethod
    def nonfinite(cls, xp: ModuleType, fast: bool, /, matrix: Any, *operands: Any) -> Any:
        if fast:
            return cls.kernel(xp, fast, matrix, *operands)
        # no column counts for the rank that TensorFlow finds
        return np.zeros_like(cls.kernel(xp, fast, np.zeros_like(matrix), *operands))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        batch, rows, columns = matrix_dims(context.inputs[0])
        rhs_batch, rhs_rows, right = matrix_dims(context.inputs[1])
        require_rank(context.inputs[2], 0)
        Shape((rows,)).merge(Shape((rhs_rows,)))
        return [batch.merge(rhs_batch) + Shape((columns, right))]

    gradient = staticmethod(matrix_calculus.least_squares_gradient)


class BatchMatrixSolveLs(MatrixSolveLs):
    """Batch version of MatrixSolveLs in older graphs."""

    attrs = f"{REAL_MATRIX_TYPES}, fast: bool = true"


class TridiagonalSolve(MatrixOp):
    """Solution of a tridiagonal system; the matrix is its three diagonals."""

    is_square = False
    signature = "diagonals: T, rhs: T -> output: T"
    attrs = (
        "partial_pivoting: bool = true, perturb_singular: bool = false, "
        f"{one_of('float64', 'float32', COMPLEX)}"
    )
    compilation = CompilerSupport(traceable=False)
    adapter = on_host

    @staticmethod
    def kernel(xp: ModuleType, partial_pivoting: bool, /, diagonals: Any, rhs: Any) -> Any:
        return (_solve_with_pivoting if partial_pivoting else _solve_by_thomas)(diagonals, rhs)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        batch, rows, size = matrix_dims(context.inputs[0])
        Shape((rows,)).merge(Shape((3,)))
        return [solution_shape(batch, size, context.inputs[1], Shape.merge)]

    gradient = staticmethod(matrix_calculus.tridiagonal_solve_gradient)


def _bands(diagonals: Any, rhs: Any) -> tuple[Any, Any, Any]:
    if diagonals.shape[-2] != 3:
        raise OpError(f"Expected 3 diagonals, got {diagonals.shape[-2]}")
    check_solve_rows(conjugate_transpose(diagonals), rhs)
    return diagonals[..., 0, :], diagonals[..., 1, :], diagonals[..., 2, :]


def _solve_with_pivoting(diagonals: Any, rhs: Any) -> Any:
    above, main, below = _bands(diagonals, rhs)
    if not rhs.size:
        return rhs
    bands = np.zeros_like(diagonals)
    bands[..., 0, 1:], bands[..., 1, :], bands[..., 2, :-1] = above[..., :-1], main, below[..., 1:]
    # the systems of a batch, which no diagonal connects, are one system while all are finite
    whole = np.moveaxis(bands, -2, 0).reshape(3, -1)
    result = _solve_bands(whole, rhs.reshape(whole.shape[1], -1)).reshape(rhs.shape)
    if np.isfinite(result).all():
        return result
    for batch in np.ndindex(rhs.shape[:-2]):
        result[batch] = _solve_bands(bands[batch], rhs[batch])
    return result


def _solve_bands(bands: Any, rhs: Any) -> Any:
    """The solution of a tridiagonal system; NaN if it is singular."""
    from scipy.linalg import solve_banded

    if bands.shape[-1] > 1 or bands[1].all():  # SciPy divides by one element
        with suppress(np.linalg.LinAlgError):
            return solve_banded((1, 1), bands, rhs, check_finite=False)
    return np.full_like(rhs, np.nan)


def _solve_by_thomas(diagonals: Any, rhs: Any) -> Any:
    """Thomas algorithm: no pivoting, so a zero on the diagonal yields NaN."""
    above, main, below = (band[..., None] for band in _bands(diagonals, rhs))
    main, result = main.copy(), rhs.copy()
    for row in range(1, rhs.shape[-2]):
        factor = below[..., row, :] / main[..., row - 1, :]
        main[..., row, :] -= factor * above[..., row - 1, :]
        result[..., row, :] -= factor * result[..., row - 1, :]
    for row in reversed(range(rhs.shape[-2])):
        if row + 1 < rhs.shape[-2]:
            result[..., row, :] -= above[..., row, :] * result[..., row + 1, :]
        result[..., row, :] /= main[..., row, :]
    result[(main == 0).any(axis=(-2, -1))] = np.nan
    return result


class TridiagonalMatMul(MatrixOp):
    """Product of a tridiagonal matrix, stored as three diagonals, and a matrix."""

    is_square = False
    signature = "superdiag: T, maindiag: T, subdiag: T, rhs: T -> output: T"
    attrs = one_of("float64", "float32", COMPLEX)
    compilation = CompilerSupport(uncompiled_types=COMPLEX)

    @staticmethod
    def kernel(xp: ModuleType, above: Any, main: Any, below: Any, rhs: Any) -> Any:
        above, main, below = (xp.swapaxes(band, -1, -2) for band in (above, main, below))
        if main.shape[-1] != 1 or main.shape[-2] != rhs.shape[-2]:
            raise OpError(f"Diagonals and rhs do not fit: {list(main.shape)}, {list(rhs.shape)}")
        edge = xp.zeros_like(rhs[..., :1, :])
        down = xp.concatenate((rhs[..., 1:, :] * above[..., :-1, :], edge), axis=-2)
        up = xp.concatenate((edge, rhs[..., :-1, :] * below[..., 1:, :]), axis=-2)
        return rhs * main + down + up

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        for band in context.inputs[:3]:
            matrix_dims(band)
        return [context.inputs[3]]

    gradient = staticmethod(matrix_calculus.tridiagonal_product_gradient)
