"""Matrix decompositions: Cholesky, QR, LU, singular values, eigenvalues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.dtypes import DType
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, vector_shape
from cfgraph.ops.families import decomposition_calculus
from cfgraph.ops.families.matmul import conjugate_transpose
from cfgraph.ops.families.matrix_functions import (
    MATRIX_TYPES,
    REAL_MATRIX_TYPES,
    MatrixOp,
    SquareMatrixOp,
    matrix_dims,
    square_dims,
)
from cfgraph.ops.kernels import elementary_decompositions as steps
from cfgraph.ops.kernels.array_namespace import on_host
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.op import COMPLEX, INDEX, OpError, one_of
from cfgraph.ops.opdef.shape_functions import InferenceContext


class Cholesky(SquareMatrixOp):
    """Cholesky factor: lower triangular L with L L^H = x; NaN if x is not positive definite."""

    @staticmethod
    def kernel(xp: ModuleType, x: Any) -> Any:
        try:
            return xp.linalg.cholesky(x if xp is np else _mirror_lower(xp, x))
        except np.linalg.LinAlgError:
            if x.ndim == 2:  # TensorFlow reports no error here
                return xp.tril(xp.full(x.shape, steps.failed_value(x.dtype)))
            return xp.stack([Cholesky.kernel(xp, matrix) for matrix in x])

    nonfinite = staticmethod(lambda xp, x: steps.cholesky_factor(x))
    gradient = staticmethod(decomposition_calculus.cholesky_gradient)


def _mirror_lower(xp: ModuleType, x: Any) -> Any:
    """Mirror the lower triangle into the upper one, which some namespaces read."""
    return xp.tril(x) + conjugate_transpose(xp.tril(x, -1))


class BatchCholesky(Cholesky):
    """Batch version of Cholesky in older graphs."""

    attrs = REAL_MATRIX_TYPES
    compilation = CompilerSupport(compiled=False)


class CholeskyGrad(SquareMatrixOp):
    """Gradient of Cholesky, computed from its output."""

    signature = "l: T, grad: T -> output: T"
    attrs = one_of("float16", "float32", "float64")
    compilation = CompilerSupport(compiled=False)

    @staticmethod
    def kernel(xp: ModuleType, l: Any, grad: Any) -> Any:  # noqa: E741
        if l.shape != grad.shape:
            raise OpError(f"l and grad must have the same shape: {l.shape} and {grad.shape}")
        # a zero on the diagonal divides everything
        singular = (xp.diagonal(l, axis1=-2, axis2=-1) == 0).any(-1)[..., None, None]
        l = xp.where(singular, xp.nan, xp.tril(l)).astype(l.dtype)  # noqa: E741
        middle = xp.tril(conjugate_transpose(l) @ xp.tril(grad))
        diagonal = xp.eye(l.shape[-1], dtype=l.dtype)
        middle = middle * (1 - 0.5 * diagonal).astype(l.dtype)
        inverse = xp.linalg.inv(l)
        result = conjugate_transpose(inverse) @ middle @ inverse
        return (result + conjugate_transpose(result)) * l.dtype.type(0.5)


class BatchCholeskyGrad(CholeskyGrad):
    """Gradient of BatchCholesky, computed from its output."""

    attrs = one_of("float32", "float64")


class Qr(MatrixOp):
    """QR decomposition x = q r: q with orthonormal columns, r upper triangular."""

    signature = "input: T -> q: T, r: T"
    attrs = f"full_matrices: bool = false, {MATRIX_TYPES}"
    is_square = False

    @staticmethod
    def kernel(xp: ModuleType, full_matrices: bool, /, x: Any) -> Any:
        mode = "complete" if full_matrices else "reduced"
        return tuple(xp.linalg.qr(x, mode=mode))

    @staticmethod
    def nonfinite(xp: ModuleType, full_matrices: bool, /, x: Any) -> Any:
        return steps.orthogonal_factors(x, full=full_matrices)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        batch, rows, columns = matrix_dims(context.inputs[0])
        inner = rows if context.attr("full_matrices") else smaller_size(rows, columns)
        return [batch + Shape((rows, inner)), batch + Shape((inner, columns))]

    gradient = staticmethod(decomposition_calculus.qr_gradient)


def smaller_size(rows: int | None, columns: int | None) -> int | None:
    """The smaller of two sizes, None if one is unknown."""
    return None if rows is None or columns is None else min(rows, columns)


class Svd(MatrixOp):
    """Singular value decomposition x = u diag(s) v^H, singular values in descending order."""

    signature = "input: T -> s: T, u: T, v: T"
    attrs = f"compute_uv: bool = true, full_matrices: bool = false, {MATRIX_TYPES}"
    is_square = False
    compilation = CompilerSupport(uncompiled_types=COMPLEX)

    @staticmethod
    def kernel(xp: ModuleType, full_matrices: bool, compute_uv: bool, /, x: Any) -> Any:
        if not compute_uv:
            nothing = xp.zeros(0, x.dtype)
            return xp.linalg.svd(x, compute_uv=False).astype(x.dtype), nothing, nothing
        u, s, vh = xp.linalg.svd(x, full_matrices=full_matrices)
        return s.astype(x.dtype), u, conjugate_transpose(vh)

    @classmethod
    def nonfinite(cls, xp: ModuleType, full_matrices: bool, compute_uv: bool, /, x: Any) -> Any:
        zeros = cls.kernel(np, full_matrices, compute_uv, np.zeros_like(x))
        return tuple(np.full_like(part, steps.failed_value(x.dtype)) for part in zeros)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        batch, rows, columns = matrix_dims(context.inputs[0])
        inner = smaller_size(rows, columns)
        values = batch + vector_shape(inner)
        if not context.attr("compute_uv"):
            return [values, vector_shape(0), vector_shape(0)]
        full = context.attr("full_matrices")
        u = batch + Shape((rows, rows if full else inner))
        return [values, u, batch + Shape((columns, columns if full else inner))]

    gradient = staticmethod(decomposition_calculus.svd_gradient)


class BatchSvd(Svd):
    """Batch version of Svd in older graphs."""

    attrs = (
        "compute_uv: bool = true, full_matrices: bool = false, "
        f"{one_of('float64', 'float32', COMPLEX)}"
    )
    compilation = replace(Svd.compilation, compiled=False)


class Eigendecomposition(MatrixOp, abstract=True):
    """Eigenvalues and, if `compute_v` is set, eigenvectors."""

    @staticmethod
    def failure(error: Exception) -> str:
        return "Eigen decomposition was not successful. The input might not be valid."

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        batch, size = square_dims(context.inputs[0])
        values = batch + vector_shape(size)
        return [
            values,
            batch + Shape((size, size)) if context.attr("compute_v") else vector_shape(0),
        ]


class SelfAdjointEigV2(Eigendecomposition):
    """Eigenvalues (ascending) and eigenvectors of self-adjoint matrices."""

    signature = "input: T -> e: T, v: T"
    attrs = f"compute_v: bool = true, {MATRIX_TYPES}"

    @staticmethod
    def kernel(xp: ModuleType, compute_v: bool, /, x: Any) -> Any:
        x = x if xp is np else _mirror_lower(xp, x)
        if not compute_v:
            return xp.linalg.eigvalsh(x).astype(x.dtype), xp.zeros(0, x.dtype)
        e, v = xp.linalg.eigh(x)
        return e.astype(x.dtype), v

    @classmethod
    def nonfinite(cls, xp: ModuleType, compute_v: bool, /, x: Any) -> Any:
        if np.isfinite(np.tril(x)).all():
            return cls.kernel(xp, compute_v, x)
        e, v = steps.scaled_eigenvalues(x)
        return e, v if compute_v else v[:0, 0]

    gradient = staticmethod(decomposition_calculus.self_adjoint_eigen_gradient)


class BatchSelfAdjointEigV2(SelfAdjointEigV2):
    """Batch version of SelfAdjointEigV2 in older graphs."""

    attrs = f"compute_v: bool = true, {REAL_MATRIX_TYPES}"
    compilation = CompilerSupport(compiled=False)


class SelfAdjointEig(Eigendecomposition):
    """Eigenvalues (first row) and eigenvectors (rows below) of self-adjoint matrices."""

    signature = "input: T -> output: T"
    attrs = one_of("float64", "float32", "float16")
    compilation = CompilerSupport(compiled=False)

    @staticmethod
    def kernel(xp: ModuleType, x: Any) -> Any:
        e, v = SelfAdjointEigV2.kernel(xp, True, x)
        return xp.concatenate((e[..., None, :], v), axis=-2)

    @staticmethod
    def nonfinite(xp: ModuleType, x: Any) -> Any:
        e, v = SelfAdjointEigV2.nonfinite(xp, True, x)
        return np.concatenate((e[None], v))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        batch, size = square_dims(context.inputs[0])
        return [batch + Shape((None if size is None else size + 1, size))]


class BatchSelfAdjointEig(SelfAdjointEig):
    """Batch version of SelfAdjointEig in older graphs."""

    attrs = REAL_MATRIX_TYPES


class Eig(Eigendecomposition):
    """Complex eigenvalues and eigenvectors of square matrices."""

    signature = "input: T -> e: Tout, v: Tout"
    attrs = (
        f"compute_v: bool = true, {one_of('float32', 'float64', COMPLEX)}, "
        f"{one_of(COMPLEX, attr='Tout')}"
    )
    compilation = CompilerSupport(traceable=False)
    adapter = on_host

    @staticmethod
    def kernel(xp: ModuleType, compute_v: bool, Tout: DType, /, x: Any) -> Any:
        if not compute_v:
            return np.linalg.eigvals(x).astype(Tout.numpy), np.zeros(0, Tout.numpy)
        e, v = np.linalg.eig(x)
        return e.astype(Tout.numpy), v.astype(Tout.numpy)

    @staticmethod
    def nonfinite(xp: ModuleType, compute_v: bool, Tout: DType, /, x: Any) -> Any:
        if len(x) > 1 or not np.iscomplexobj(x):
            raise np.linalg.LinAlgError
        return x[0].astype(Tout.numpy), np.ones((1, 1) if compute_v else 0, Tout.numpy)

    gradient = staticmethod(decomposition_calculus.eigen_gradient)


class Lu(MatrixOp):
    """LU decomposition with partial pivoting: both factors in one matrix, and the row order."""

    signature = "input: T -> lu: T, p: output_idx_type"
    attrs = f"{MATRIX_TYPES}, output_idx_type: {INDEX} = int32"
    compilation = CompilerSupport(traceable=False)
    adapter = on_host

    @staticmethod
    def kernel(xp: ModuleType, output_idx_type: DType, /, x: Any) -> Any:
        factors, rows = _eliminated(x) if np.iscomplexobj(x) else _lu_factors(x)
        if any(
            steps.is_singular(np.diagonal(factors[batch])) for batch in np.ndindex(x.shape[:-2])
        ):
            raise np.linalg.LinAlgError
        return factors, rows.astype(output_idx_type.numpy)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        batch, size = square_dims(context.inputs[0])
        if batch.dims is None:
            return [UNKNOWN_SHAPE, UNKNOWN_SHAPE]
        return [batch + Shape((size, size)), batch + vector_shape(size)]

    gradient = staticmethod(decomposition_calculus.lu_gradient)


def _lu_factors(x: Any) -> tuple[Any, Any]:
    from scipy.linalg import lu

    if not x.size or not np.isfinite(x).all():
        return _eliminated(x)
    rows, lower, upper = lu(x, p_indices=True)
    return np.tril(lower, -1) + upper, np.argsort(rows, axis=-1)


def _eliminated(x: Any) -> tuple[Any, Any]:
    """The factors of each matrix: LAPACK takes other pivots, by the sum of both complex parts."""
    factors, rows = np.empty(x.shape, x.dtype), np.empty(x.shape[:-1], int)
    for batch in np.ndindex(x.shape[:-2]):
        factors[batch], rows[batch] = steps.eliminated(x[batch])
    return factors, rows
