"""Inverses and determinants of square matrices, and what families over matrices share."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cfgraph.ir.graph import Node
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops import matrix_gradients
from cfgraph.ops.dims import want_rank_at_least
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.matmul import adjoint
from cfgraph.ops.op import Kernel, Op, OpError
from cfgraph.ops.precision import widened
from cfgraph.ops.type_sets import COMPLEX, one_of

MATRICES = one_of("float64", "float32", "float16", COMPLEX)
REAL_MATRICES = one_of("float64", "float32")


class OfMatrices(Op, abstract=True):
    """A function of the matrices in the last two dimensions; `kernel` computes it."""

    attrs = MATRICES

    @classmethod
    def bind(cls, node: Node, xp: ModuleType) -> Kernel:
        kernel = widened(cls.function(node, xp), node.attr("T"))

        def of_matrices(first: Any, *rest: Any) -> Any:
            if first.ndim < 2:
                message = f"Input tensor must have rank >= 2, not {list(first.shape)}"
                raise OpError(message)
            try:
                return kernel(first, *rest)
            except np.linalg.LinAlgError as error:
                raise OpError(cls.failure(error)) from None

        return of_matrices

    @classmethod
    def function(cls, node: Node, xp: ModuleType) -> Kernel:
        """The kernel, once ranks and types are seen to."""
        kernel: Any = cls.kernel
        return lambda *inputs: kernel(xp, *inputs)

    @staticmethod
    def failure(error: Exception) -> str:
        """What to say where there is no result."""
        return "Input matrix is not invertible."


def matrices(shape: Shape) -> tuple[Shape, int | None, int | None]:
    """The outer dimensions, the rows and the columns of matrices."""
    want_rank_at_least(shape, 2)
    if shape.dims is None:
        return UNKNOWN_SHAPE, None, None
    return shape[:-2], shape.dims[-2], shape.dims[-1]


def square(shape: Shape) -> tuple[Shape, int | None]:
    """The outer dimensions and the size of square matrices; ValueError where they are not."""
    batch, rows, columns = matrices(shape)
    size = (Shape((rows,)).merge(Shape((columns,))).dims or (None,))[0]
    return batch, size


class SquareToSquare(OfMatrices, abstract=True):
    """A square matrix from each."""

    signature = "input: T -> output: T"

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        batch, size = square(context.inputs[0])
        return [batch + Shape((size, size))]


class MatrixInverse(SquareToSquare):
    """The inverse of each matrix, or of its adjoint."""

    attrs = f"adjoint: bool = false, {MATRICES}"
    uncompiled_types = COMPLEX

    @classmethod
    def function(cls, node: Node, xp: ModuleType) -> Kernel:
        turned = node.attr("adjoint")
        return lambda x: xp.linalg.inv(adjoint(x) if turned else x)

    gradient = staticmethod(matrix_gradients.of_inverse)


class BatchMatrixInverse(MatrixInverse):
    """The inverse of each matrix, or of its adjoint."""

    attrs = f"adjoint: bool = false, {REAL_MATRICES}"
    compiled = False


class MatrixDeterminant(OfMatrices):
    """The determinant of each matrix."""

    signature = "input: T -> output: T"
    compiled = False

    @staticmethod
    def kernel(xp: ModuleType, x: Any) -> Any:
        return xp.linalg.det(x)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [square(context.inputs[0])[0]]

    gradient = staticmethod(matrix_gradients.of_determinant)


class BatchMatrixDeterminant(MatrixDeterminant):
    """The determinant of each matrix."""

    attrs = one_of("float32", "float64", COMPLEX)
    compiled = False


class LogMatrixDeterminant(OfMatrices):
    """The sign of each determinant, and the logarithm of its absolute value."""

    signature = "input: T -> sign: T, log_abs_determinant: T"
    compiled = False

    @staticmethod
    def kernel(xp: ModuleType, x: Any) -> Any:
        sign, logarithm = xp.linalg.slogdet(x)
        return sign, logarithm.astype(x.dtype)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [square(context.inputs[0])[0]] * 2

    gradient = staticmethod(matrix_gradients.of_log_determinant)
