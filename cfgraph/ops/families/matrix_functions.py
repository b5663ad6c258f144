"""Functions of matrices: inverse, determinant, exponential, logarithm, square root, bands."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape, ShapeError
from cfgraph.ops.families import matrix_calculus
from cfgraph.ops.families.matmul import conjugate_transpose
from cfgraph.ops.families.matrix_calculus import adjoint_matrix
from cfgraph.ops.kernels import elementary_decompositions as steps
from cfgraph.ops.kernels.array_namespace import (
    computed_in_float32,
    defer_check,
    in_float32,
    is_finite,
    on_host,
)
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    gradient_from_inputs,
    int32_constant,
)
from cfgraph.ops.opdef.op import COMPLEX, INDEX, REAL, Kernel, Op, OpError, SameShape, one_of
from cfgraph.ops.opdef.shape_functions import InferenceContext, require_rank_at_least

MATRIX_TYPES = one_of("float64", "float32", "float16", COMPLEX)
REAL_MATRIX_TYPES = one_of("float64", "float32")


class MatrixOp(Op, abstract=True):
    """A function of the matrices in the last two dimensions, computed by `kernel`.

    Where `nonfinite` is set, it computes the outputs of each matrix with NaN or infinity on a CPU:
    those of LAPACK may be finite, an error, or late. It is declared as `kernel` is. On a GPU the
    results of its library are returned, as TensorFlow does; the host does not wait for a check.
    """

    attrs = MATRIX_TYPES
    is_square: ClassVar[bool] = True
    nonfinite: ClassVar[Callable[..., Any] | None] = None

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        if cls.adapter is on_host and xp is not np:
            return on_host(cls.bind(node, np), node, xp)
        kernel = super().bind(node, xp)
        if cls.nonfinite is not None and xp is np:
            kernel = _by_matrix(kernel, cls._bound(cls.nonfinite, node, xp))
        kernel = computed_in_float32(kernel, node.attr("T"))

        def checked(first: Any, *operands: Any) -> Any:
            if first.ndim < 2:
                raise OpError(f"Input tensor must have rank >= 2, not {list(first.shape)}")
            if cls.is_square and first.shape[-1] != first.shape[-2]:
                raise OpError(f"Input matrix must be square, not {list(first.shape)}")
            if xp is not np:
                return _checked_result(xp, first, kernel(first, *operands))
            try:
                return kernel(first, *operands)
            except np.linalg.LinAlgError as error:
                raise OpError(cls.failure(error)) from None

        return checked

    @staticmethod
    def failure(error: Exception) -> str:
        """Error message for a failed computation."""
        return "Input matrix is not invertible."


def _by_matrix(kernel: Kernel, nonfinite: Kernel) -> Kernel:
    """A kernel that leaves matrices with NaN or infinity to another, one by one."""

    def call(first: Any, *operands: Any) -> Any:
        if is_finite(first):
            return kernel(first, *operands)
        finite = np.isfinite(first).all(axis=(-2, -1))
        batch = first.shape[:-2]
        results = [
            (kernel if finite[place] else nonfinite)(
                first[place], *(x[place] if x.ndim else x for x in operands)
            )
            for place in np.ndindex(batch)
        ]
        if not isinstance(results[0], tuple):
            return np.reshape(results, batch + results[0].shape)
        parts = zip(*results, strict=True)
        return tuple(np.reshape(part, batch + part[0].shape) for part in parts)

    return call


def _checked_result(xp: ModuleType, first: Any, result: Any) -> Any:
    """The result; where it or the matrix is not finite, the kernels of NumPy may differ."""
    for part in (first, *(result if isinstance(result, tuple) else (result,))):
        defer_check(partial(xp.isfinite, part))
    return result


def matrix_dims(shape: Shape) -> tuple[Shape, int | None, int | None]:
    """Batch shape, rows, and columns of matrices."""
    require_rank_at_least(shape, 2)
    if shape.dims is None:
        return UNKNOWN_SHAPE, None, None
    return shape[:-2], shape.dims[-2], shape.dims[-1]


def square_dims(shape: Shape) -> tuple[Shape, int | None]:
    """Batch shape and size of square matrices. Raises ShapeError if they are not square."""
    batch, rows, columns = matrix_dims(shape)
    if rows is not None and columns is not None and rows != columns:
        raise ShapeError(f"shape {shape} is not that of square matrices")
    return batch, columns if rows is None else rows


class SquareMatrixOp(MatrixOp, abstract=True):
    """A function from square matrices to square matrices."""

    signature = "input: T -> output: T"

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        batch, size = square_dims(context.inputs[0])
        return [batch + Shape((size, size))]


class MatrixInverse(SquareMatrixOp):
    """Inverse of each matrix, or of its adjoint."""

    attrs = f"adjoint: bool = false, {MATRIX_TYPES}"
    compilation = CompilerSupport(uncompiled_types=COMPLEX)

    @staticmethod
    def kernel(xp: ModuleType, adjoint: bool, /, x: Any) -> Any:
        return xp.linalg.inv(conjugate_transpose(x) if adjoint else x)

    @staticmethod
    def nonfinite(xp: ModuleType, adjoint: bool, /, x: Any) -> Any:
        unit = np.eye(len(x), dtype=x.dtype)
        return steps.solved(conjugate_transpose(x) if adjoint else x, unit)

    gradient = staticmethod(matrix_calculus.inverse_gradient)


class BatchMatrixInverse(MatrixInverse):
    """Batch version of MatrixInverse in older graphs."""

    attrs = f"adjoint: bool = false, {REAL_MATRIX_TYPES}"
    compilation = replace(MatrixInverse.compilation, compiled=False)


class MatrixDeterminant(MatrixOp):
    """Determinant of each matrix."""

    signature = "input: T -> output: T"
    compilation = CompilerSupport(compiled=False)
    kernel = staticmethod(lambda xp, x: xp.linalg.det(x))

    @staticmethod
    def nonfinite(xp: ModuleType, x: Any) -> Any:
        sign, logarithm = steps.log_determinant(x)
        return sign * np.exp(logarithm)

    shape = staticmethod(lambda context: [square_dims(context.inputs[0])[0]])
    gradient = staticmethod(matrix_calculus.determinant_gradient)


class BatchMatrixDeterminant(MatrixDeterminant):
    """Batch version of MatrixDeterminant in older graphs."""

    attrs = one_of("float32", "float64", COMPLEX)


class LogMatrixDeterminant(MatrixOp):
    """Sign of each determinant and logarithm of its absolute value."""

    signature = "input: T -> sign: T, log_abs_determinant: T"
    compilation = CompilerSupport(compiled=False)

    @staticmethod
    def kernel(xp: ModuleType, x: Any) -> Any:
        sign, logarithm = xp.linalg.slogdet(x)
        return sign, logarithm.astype(x.dtype)

    nonfinite = staticmethod(lambda xp, x: steps.log_determinant(x))
    shape = staticmethod(lambda context: [square_dims(context.inputs[0])[0]] * 2)
    gradient = staticmethod(matrix_calculus.log_determinant_gradient)


class MatrixFunction(SquareMatrixOp, abstract=True):
    """A matrix function computed by the SciPy function `scipy_name`."""

    scipy_name: ClassVar[str]
    compilation = CompilerSupport(traceable=False)
    adapter = on_host

    @classmethod
    def kernel(cls, xp: ModuleType, x: Any) -> Any:
        from scipy import linalg

        if not x.size:
            return x
        matrix_function, result = getattr(linalg, cls.scipy_name), np.empty(x.shape, x.dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SciPy warns about its accuracy
            for batch in np.ndindex(x.shape[:-2]):
                value = matrix_function(x[batch])
                real = np.iscomplexobj(x) or not np.iscomplexobj(value)
                result[batch] = value if real else np.nan
        return result

    nonfinite = staticmethod(lambda xp, x: np.full(x.shape, np.nan, x.dtype))

    @classmethod
    def gradient(cls, g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
        return [_block_triangular_derivative(g, cls.name, node.inputs[0], dz)]


class MatrixExponential(MatrixFunction):
    """Matrix exponential."""

    scipy_name = "expm"


# SciPy replaces eigenvalues below this size, of which there is no logarithm
_TINY_EIGENVALUE: Final = 1e-20


class MatrixLogarithm(MatrixFunction):
    """Principal matrix logarithm."""

    attrs = one_of(COMPLEX)
    scipy_name = "logm"

    @classmethod
    def kernel(cls, xp: ModuleType, x: Any) -> Any:
        result = super().kernel(xp, x)
        if not x.size:
            return result
        least = np.abs(np.linalg.eigvals(x)).min(axis=-1, keepdims=True)[..., None]
        return np.where(least <= _TINY_EIGENVALUE, x.dtype.type(np.nan), result)


class MatrixSquareRoot(MatrixFunction):
    """Principal matrix square root; NaN if a real matrix has no real root."""

    scipy_name = "sqrtm"


def _block_triangular_derivative(g: GradientBuilder, op: str, x: Output, dz: Output) -> Output:
    """Derivative of the function at the adjoint matrix in direction dz.

    It is the upper right block of the same function of [[x^H, dz], [0, x^H]] (Mathias 1996).
    """
    flipped = adjoint_matrix(g, x)
    upper = g.ConcatV2(flipped, dz, int32_constant(g, -1))
    lower = g.ConcatV2(g.zeros_like(flipped), flipped, int32_constant(g, -1))
    whole = getattr(g, op)(g.ConcatV2(upper, lower, int32_constant(g, -2)))
    right = g.Split(int32_constant(g, -1), whole, num_split=2).node.output(1)
    return g.Split(int32_constant(g, -2), right, num_split=2)


class Cross(SameShape):
    """Cross product of vectors with three components."""

    signature = "a: T, b: T -> product: T"
    attrs = one_of(REAL)
    adapter = in_float32

    @staticmethod
    def kernel(xp: ModuleType, a: Any, b: Any) -> Any:
        if a.shape != b.shape or not a.ndim or a.shape[-1] != 3:
            raise OpError(
                "Both inputs must be of one shape, with inner dimension 3: "
                f"{list(a.shape)} vs. {list(b.shape)}"
            )
        x, y = (a[..., 1], a[..., 2], a[..., 0]), (b[..., 2], b[..., 0], b[..., 1])
        u, v = (a[..., 2], a[..., 0], a[..., 1]), (b[..., 1], b[..., 2], b[..., 0])
        return xp.stack([p * q - r * s for p, q, r, s in zip(x, y, u, v, strict=True)], axis=-1)

    gradient = gradient_from_inputs(
        lambda g, dz, a, b: (lambda: g.Cross(b, dz), lambda: g.Cross(dz, a))
    )


class MatrixBandPart(SameShape):
    """Copy of a band around the diagonal, zero outside; a negative width is unlimited."""

    signature = "input: T, num_lower: const Tindex, num_upper: const Tindex -> band: T"
    attrs = f"Tindex: {INDEX} = int64"

    @staticmethod
    def kernel(xp: ModuleType, value: Any, lower: Any, upper: Any) -> Any:
        if value.ndim < 2:
            raise OpError(f"input must be at least 2-dim, received shape: {list(value.shape)}")
        rows, columns = value.shape[-2:]
        _check_band_width("lower", lower, rows)
        _check_band_width("upper", upper, columns)
        if xp is np and rows * columns <= _SMALL_BAND:
            inside = _small_band(rows, columns, int(lower), int(upper))
        else:
            inside = _band(xp, rows, columns, lower, upper)
        return xp.where(inside, value, xp.zeros((), value.dtype))

    shape = staticmethod(lambda context: [require_rank_at_least(context.inputs[0], 2)])
    gradient = staticmethod(
        lambda g, node, dz: (g.MatrixBandPart(dz, *node.inputs[1:]), None, None)
    )


def _band(xp: ModuleType, rows: int, columns: int, lower: Any, upper: Any) -> Any:
    """A mask of a band around the diagonal."""
    distance = xp.arange(columns) - xp.arange(rows)[:, None]
    return ((distance >= -lower) | (lower < 0)) & ((distance <= upper) | (upper < 0))


# masks of at most this many elements are reused: to make one takes longer than to apply it
_SMALL_BAND: Final = 1 << 14


@lru_cache(maxsize=16)
def _small_band(rows: int, columns: int, lower: int, upper: int) -> np.ndarray[Any, Any]:
    """A mask that is read only."""
    mask: np.ndarray[Any, Any] = _band(np, rows, columns, lower, upper)
    mask.flags.writeable = False
    return mask


def _check_band_width(name: str, width: Any, most: int) -> None:
    if width.ndim:
        raise OpError(f"num_{name} must be scalar, got shape {list(width.shape)}")
    if width > most:
        raise OpError(f"num_{name} must be negative or at most {most}, got: {width}")


class BatchMatrixBandPart(MatrixBandPart):
    """Batch version of MatrixBandPart in older graphs."""

    signature = "input: T, num_lower: const int64, num_upper: const int64 -> band: T"
    attrs = ""
    compilation = replace(MatrixBandPart.compilation, compiled=False)
