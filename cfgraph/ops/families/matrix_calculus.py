"""Gradients of inverses, determinants, and linear solves."""

from __future__ import annotations

from cfgraph.errors import Unsupported
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    conjugate,
    dimension_size,
    int32_constant,
    sum_all,
    sum_to_shape,
)


def matrix_product(
    g: GradientBuilder, x: Output, y: Output, *, adj_x: bool = False, adj_y: bool = False
) -> Output:
    """Product of matrices, each optionally adjoint."""
    return g.BatchMatMulV2(x, y, adj_x=adj_x, adj_y=adj_y)


def adjoint_matrix(g: GradientBuilder, x: Output) -> Output:
    """Adjoint (conjugate transpose) of each matrix."""
    rank = g.known_shape(x).rank
    if rank is None:
        count = g.Rank(x)
        last = [g.Sub(count, 1), g.Sub(count, 2)]
        outer = g.Range(int32_constant(g, 0), last[1], int32_constant(g, 1))
        return g.ConjugateTranspose(x, g.ConcatV2(outer, g.Pack(last), int32_constant(g, 0)))
    order = int32_constant(g, [*range(rank - 2), rank - 1, rank - 2])
    is_complex = x.dtype is not None and x.dtype.is_complex
    return (g.ConjugateTranspose if is_complex else g.Transpose)(x, order)


def triangular_part(g: GradientBuilder, x: Output, *, lower: bool = True) -> Output:
    """Lower or upper triangle of each matrix, zeros elsewhere."""
    return g.MatrixBandPart(
        x, int32_constant(g, -1 if lower else 0), int32_constant(g, 0 if lower else -1)
    )


def diagonal_part(g: GradientBuilder, x: Output) -> Output:
    """Diagonal of each matrix, zeros elsewhere."""
    return g.MatrixBandPart(x, int32_constant(g, 0), int32_constant(g, 0))


def numbers_as_matrices(g: GradientBuilder, x: Output) -> Output:
    """View each number as a 1 by 1 matrix."""
    return g.ExpandDims(g.ExpandDims(x, int32_constant(g, -1)), int32_constant(g, -1))


def inverse_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of y = x^-1: -y^H dz y^H; for the inverse of the adjoint, -y dz^H y."""
    y, adjoint = node.output(), node.attr("adjoint")
    right = matrix_product(g, dz, y, adj_x=adjoint, adj_y=not adjoint)
    return [g.Neg(matrix_product(g, y, right, adj_x=not adjoint))]


def determinant_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of the determinant: the determinant times the adjoint of the inverse."""
    inverse = g.MatrixInverse(node.inputs[0], adjoint=True)
    return [g.Mul(numbers_as_matrices(g, g.Mul(dz, conjugate(g, node.output()))), inverse)]


def log_determinant_gradient(
    g: GradientBuilder, node: Node, sign_gradient: Output | None, dz: Output | None
) -> InputGradients:
    """Gradient of the log-determinant: x^-H; the sign contributes only a complex phase."""
    x = node.inputs[0]
    assert x.dtype is not None
    if x.dtype.is_complex:
        part, zero = x.dtype.real, g.const(0, x.dtype.real)
        along = zero if dz is None else g.Real(dz, Tout=part)
        rotation = None if sign_gradient is None else g.Mul(sign_gradient, g.Conj(node.output()))
        across = zero if rotation is None else g.Imag(rotation, Tout=part)
        dz = g.Complex(along, across, Tout=x.dtype)
    if dz is None:
        return [None]
    return [g.Mul(numbers_as_matrices(g, dz), g.MatrixInverse(x, adjoint=True))]


def solve_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of a linear solve.

    For the right-hand side, the solution of the adjoint system; for the matrix, minus the outer
    product of that and the solution.
    """
    matrix, adjoint = node.inputs[0], node.attr("adjoint")
    rhs_gradient = g.MatrixSolve(matrix, dz, adjoint=not adjoint)
    return lambda: _outer_product(g, rhs_gradient, node.output(), adjoint=adjoint), rhs_gradient


def triangular_solve_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of a triangular solve: one triangle only, summed over broadcast dimensions."""
    matrix, rhs = node.inputs
    adjoint, lower = node.attr("adjoint"), node.attr("lower")
    back = g.MatrixTriangularSolve(matrix, dz, adjoint=not adjoint, lower=lower)

    def matrix_gradient() -> Output:
        dx = triangular_part(
            g, _outer_product(g, back, node.output(), adjoint=adjoint), lower=lower
        )
        return sum_to_shape(g, dx, matrix, rhs, fixed=2)

    return matrix_gradient, lambda: sum_to_shape(g, back, rhs, matrix, fixed=2)


def banded_solve_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of a banded solve: the stored diagonals only."""
    bands, rhs = node.inputs
    adjoint, lower = node.attr("adjoint"), node.attr("lower")
    back = g.BandedTriangularSolve(bands, dz, adjoint=not adjoint, lower=lower)

    def bands_gradient() -> Output:
        last = g.Sub(dimension_size(g, bands, -2), 1)
        ends = [g.Neg(last), int32_constant(g, 0)] if lower else [int32_constant(g, 0), last]
        dx = _outer_product(g, back, node.output(), adjoint=adjoint)
        zero = g.const(0, node.attr("T"))
        dx = g.MatrixDiagPartV3(dx, g.Pack(ends), zero, align="LEFT_RIGHT")
        return sum_to_shape(g, dx, bands, rhs, fixed=2)

    return bands_gradient, lambda: sum_to_shape(g, back, rhs, bands, fixed=2)


def _outer_product(g: GradientBuilder, back: Output, solution: Output, *, adjoint: bool) -> Output:
    pair = (solution, back) if adjoint else (back, solution)
    return g.Neg(matrix_product(g, *pair, adj_y=True))


def least_squares_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient through the normal equations, in the smaller of both sizes.

    Raises Unsupported if the smaller size is not statically known.
    """
    a, b, regularizer = node.inputs
    x, sizes = node.output(), g.known_shape(a)[-2:]
    if not sizes.is_full:
        message = "the gradient of MatrixSolveLs requires a statically known matrix size"
        raise Unsupported(message, node=node, code="CFG502")
    rows, columns = sizes
    tall = (rows or 0) >= (columns or 0)
    square = matrix_product(g, a, a, adj_x=tall, adj_y=not tall)
    if node.attr("fast"):  # without `fast`, the regularizer is not used
        weight = g.ExpandDims(g.Cast(regularizer, DstT=a.dtype), int32_constant(g, -1))
        square = g.MatrixSetDiag(square, g.AddV2(g.MatrixDiagPart(square), weight))
    if tall:
        z = g.MatrixSolve(square, dz)
        residual = g.Sub(b, matrix_product(g, a, x))
        rhs_gradient = matrix_product(g, a, z)
        matrix_gradient = g.Sub(
            matrix_product(g, residual, z, adj_y=True),
            matrix_product(g, rhs_gradient, x, adj_y=True),
        )
        return matrix_gradient, rhs_gradient, lambda: _regularizer_gradient(g, node, z, x)
    rhs_gradient = g.MatrixSolve(square, matrix_product(g, a, dz))
    residual = g.Sub(dz, matrix_product(g, a, rhs_gradient, adj_x=True))
    w = g.MatrixSolve(square, b)
    matrix_gradient = g.Sub(
        matrix_product(g, w, residual, adj_y=True), matrix_product(g, rhs_gradient, x, adj_y=True)
    )
    return matrix_gradient, rhs_gradient, lambda: _regularizer_gradient(g, node, rhs_gradient, w)


def _regularizer_gradient(g: GradientBuilder, node: Node, x: Output, y: Output) -> Output | None:
    regularizer = node.inputs[2]
    if not node.attr("fast"):
        return None
    change = g.Neg(sum_all(g, g.Mul(x, conjugate(g, y))))
    return change if change.dtype == regularizer.dtype else g.Cast(change, DstT=regularizer.dtype)


def tridiagonal_solve_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of a tridiagonal solve.

    For the right-hand side, the solution of the adjoint system; for a diagonal, its products with
    the shifted solution.
    """
    diagonals, x = node.inputs[0], node.output()
    above, main, below = _three_bands(g, diagonals)
    flipped = [_shift(g, below, -1, axis=-1), main, _shift(g, above, 1, axis=-1)]
    attrs = {key: node.attr(key) for key in ("partial_pivoting", "perturb_singular")}
    back = g.TridiagonalSolve(conjugate(g, g.Pack(flipped, axis=-2)), dz, **attrs)

    def diagonals_gradient() -> Output:
        solution = conjugate(g, x)
        neighbors = [_shift_rows(g, solution, -1), solution, _shift_rows(g, solution, 1)]
        return g.Neg(
            g.Pack([g.Sum(g.Mul(back, s), int32_constant(g, -1)) for s in neighbors], axis=-2)
        )

    return diagonals_gradient, back


def tridiagonal_product_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of a tridiagonal product: row-wise products for diagonals, the adjoint for rhs."""
    above, main, below, rhs = node.inputs

    def band_gradient(by: int) -> Output:
        factor = conjugate(g, _shift_rows(g, rhs, by) if by else rhs)
        return g.ExpandDims(g.Sum(g.Mul(dz, factor), int32_constant(g, -1)), int32_constant(g, -2))

    def rhs_gradient() -> Output:
        flipped = (_shift(g, below, -1, axis=-1), main, _shift(g, above, 1, axis=-1))
        return g.TridiagonalMatMul(*(conjugate(g, band) for band in flipped), dz)

    return (
        lambda: band_gradient(-1),
        lambda: band_gradient(0),
        lambda: band_gradient(1),
        rhs_gradient,
    )


def _three_bands(g: GradientBuilder, diagonals: Output) -> list[Output]:
    parts = g.Unpack(diagonals, num=3, axis=-2).node
    return [parts.output(port) for port in range(3)]


def _shift(g: GradientBuilder, x: Output, by: int, *, axis: int) -> Output:
    return g.Roll(x, int32_constant(g, by), int32_constant(g, axis))


def _shift_rows(g: GradientBuilder, x: Output, by: int) -> Output:
    """Shift rows by one and fill with zeros."""
    begin, end = ([0, 1], [0, 0]) if by < 0 else ([0, 0], [0, -1])
    bounds = [int32_constant(g, [*bound, 0]) for bound in (begin, end)]
    steps = int32_constant(g, [1, 1, 1])
    masks = {"ellipsis_mask": 1, "begin_mask": 4 + 2 * (by > 0), "end_mask": 4 + 2 * (by < 0)}
    rows = g.StridedSlice(x, *bounds, steps, **masks)
    masks = {"ellipsis_mask": 1, "begin_mask": 4 + 2 * (by < 0), "end_mask": 4 + 2 * (by > 0)}
    bounds = [
        int32_constant(g, [*bound, 0])
        for bound in (([0, 0], [0, -1]) if by < 0 else ([0, 1], [0, 0]))
    ]
    return g.StridedSliceGrad(g.shape(x), *bounds, steps, rows, **masks)
