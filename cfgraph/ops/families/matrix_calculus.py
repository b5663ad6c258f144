"""Gradients of inverses, determinants, linear solves, and matrix decompositions.

Decompositions follow Giles 2008, Walter and Lehmann 2018, and Murray 2016.
"""

from __future__ import annotations

from collections.abc import Sequence

from cfgraph.errors import Unsupported
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.families.gather import matrix_row_gather_gradient
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    conjugate,
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
        last = g.Sub(_row_count(g, bands), 1)
        ends = [g.Neg(last), int32_constant(g, 0)] if lower else [int32_constant(g, 0), last]
        dx = _outer_product(g, back, node.output(), adjoint=adjoint)
        zero = g.const(0, node.attr("T"))
        dx = g.MatrixDiagPartV3(dx, g.Pack(ends), zero, align="LEFT_RIGHT")
        return sum_to_shape(g, dx, bands, rhs, fixed=2)

    return bands_gradient, lambda: sum_to_shape(g, back, rhs, bands, fixed=2)


def _outer_product(g: GradientBuilder, back: Output, solution: Output, *, adjoint: bool) -> Output:
    pair = (solution, back) if adjoint else (back, solution)
    return g.Neg(matrix_product(g, *pair, adj_y=True))


def _row_count(g: GradientBuilder, x: Output) -> Output:
    rows = g.known_shape(x)[-2:-1].elements
    if rows is not None:
        return int32_constant(g, rows)
    bounds = (int32_constant(g, [bound]) for bound in (-2, -1, 1))
    return g.StridedSlice(g.shape(x), *bounds, shrink_axis_mask=1)


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


def cholesky_gradient(g: GradientBuilder, node: Node, dz: Output) -> InputGradients:
    """Gradient of the Cholesky factor, for a symmetric variation of the matrix."""
    lower = node.output()
    inner = matrix_product(g, lower, dz, adj_x=True)
    half = g.Mul(_one_half(g, inner), diagonal_part(g, inner))
    middle = g.Sub(triangular_part(g, inner), half)
    right = g.MatrixTriangularSolve(lower, adjoint_matrix(g, middle), adjoint=True)
    whole = g.MatrixTriangularSolve(lower, adjoint_matrix(g, right), adjoint=True)
    return [g.Mul(_one_half(g, whole), g.AddV2(whole, adjoint_matrix(g, whole)))]


def self_adjoint_eigen_gradient(
    g: GradientBuilder, node: Node, de: Output | None, dv: Output | None
) -> InputGradients:
    """Gradient of a self-adjoint eigendecomposition, in the lower triangle, which alone is read."""
    values, vectors = node.output(0), node.output(1)
    if not node.attr("compute_v"):
        complete = g.SelfAdjointEigV2(node.inputs[0], compute_v=True).node
        values, vectors, dv = complete.output(0), complete.output(1), None
    middle = None if de is None else g.MatrixDiag(de)
    if dv is not None:
        gaps = g.Sub(_row(g, values), _column(g, values))
        inner = g.Mul(_reciprocal_or_zero(g, gaps), matrix_product(g, vectors, dv, adj_x=True))
        middle = inner if middle is None else g.AddV2(middle, inner)
    if middle is None:
        return [None]
    whole = matrix_product(g, matrix_product(g, vectors, middle), vectors, adj_y=True)
    both = triangular_part(g, g.AddV2(whole, adjoint_matrix(g, whole)))
    return [g.Sub(both, g.Mul(_one_half(g, both), diagonal_part(g, both)))]


def eigen_gradient(
    g: GradientBuilder, node: Node, de: Output | None, dv: Output | None
) -> InputGradients:
    """Gradient of an eigendecomposition with eigenvectors of unit length."""
    x, dtype = node.inputs[0], node.attr("Tout")
    values, vectors = node.output(0), node.output(1)
    if not node.attr("compute_v"):
        complete = g.Eig(x, compute_v=True, Tout=dtype).node
        values, vectors, dv = complete.output(0), complete.output(1), None
    middle = None if de is None else g.MatrixDiag(de)
    if dv is not None:
        inner = matrix_product(g, vectors, dv, adj_x=True)
        along = g.Cast(g.Real(g.MatrixDiagPart(inner), Tout=dtype.real), DstT=dtype)
        lengths = g.Mul(matrix_product(g, vectors, vectors, adj_x=True), _row(g, along))
        gaps = g.Conj(g.Sub(_row(g, values), _column(g, values)))
        turns = g.Mul(_reciprocal_or_zero(g, gaps), g.Sub(inner, lengths))
        middle = turns if middle is None else g.AddV2(middle, turns)
    if middle is None:
        return [None]
    dx = g.MatrixSolve(vectors, matrix_product(g, middle, vectors, adj_y=True), adjoint=True)
    return [dx if x.dtype == dtype else g.Real(dx, Tout=x.dtype)]


def svd_gradient(
    g: GradientBuilder, node: Node, ds: Output | None, du: Output | None, dv: Output | None
) -> InputGradients:
    """Gradient of the SVD x = u diag(s) v^H, including columns that only complete u and v."""
    x, full = node.inputs[0], node.attr("full_matrices")
    if not node.attr("compute_uv"):
        node, full, du, dv = g.Svd(x, compute_uv=True).node, False, None, None
    if ds is None and du is None and dv is None:
        return [None]
    s = node.output(0)
    count = _last_size(g, s)
    left, right = (
        _OrthonormalFactor(g, node.output(port), dy, count if full else None)
        for port, dy in ((1, du), (2, dv))
    )
    middle = [] if ds is None else [g.MatrixDiag(ds)]
    for factor in (left, right):
        if factor.gradient is not None:
            squares = g.Mul(s, s)
            weights = _reciprocal_or_zero(g, g.Sub(_row(g, squares), _column(g, squares)))
            inner = g.Mul(weights, matrix_product(g, factor.basis, factor.gradient, adj_x=True))
            both = g.AddV2(inner, adjoint_matrix(g, inner))
            middle.append(g.Mul(both, _row(g, s)) if factor is left else g.Mul(_column(g, s), both))
    dx = [
        matrix_product(
            g, matrix_product(g, left.basis, _sum_parts(g, middle)), right.basis, adj_y=True
        )
    ]
    if (orthogonal := left.orthogonal_gradient(g)) is not None:
        dx.append(
            matrix_product(g, g.Mul(orthogonal, _row(g, g.Reciprocal(s))), right.basis, adj_y=True)
        )
    if (orthogonal := right.orthogonal_gradient(g)) is not None:
        dx.append(
            matrix_product(g, g.Mul(left.basis, _row(g, g.Reciprocal(s))), orthogonal, adj_y=True)
        )
    return [_sum_parts(g, dx)]


class _OrthonormalFactor:
    """Orthonormal columns of a factor (the first `count`), their completion, and the gradients."""

    def __init__(
        self, g: GradientBuilder, y: Output, dy: Output | None, count: Output | None
    ) -> None:
        self.basis, self.gradient = y, dy
        self.completion = self.completion_gradient = None
        if count is not None:
            self.basis, self.completion = _split_at(g, y, count, -1)
            if dy is not None:
                self.gradient, self.completion_gradient = _split_at(g, dy, count, -1)

    def orthogonal_gradient(self, g: GradientBuilder) -> Output | None:
        """Component of the gradient orthogonal to the columns."""
        dy, shape = self.gradient, g.known_shape(self.basis)[-2:]
        if dy is None or (shape.is_full and shape[:1] == shape[1:]):
            return None
        if self.completion is None or self.completion_gradient is None:
            return g.Sub(
                dy, matrix_product(g, self.basis, matrix_product(g, self.basis, dy, adj_x=True))
            )
        along = matrix_product(g, self.completion, dy, adj_x=True)
        return matrix_product(
            g,
            self.completion,
            g.Sub(along, matrix_product(g, self.completion_gradient, self.basis, adj_x=True)),
        )


def qr_gradient(
    g: GradientBuilder, node: Node, dq: Output | None, dr: Output | None
) -> InputGradients:
    """Gradient of QR; a wide matrix is a tall factorization and a product for the other columns."""
    x, q, r = node.inputs[0], node.output(0), node.output(1)
    sizes = g.known_shape(x)[-2:]
    rows, columns = sizes if sizes.is_full else (None, None)
    dq = g.zeros_like(q) if dq is None else dq
    dr = g.zeros_like(r) if dr is None else dr
    if node.attr("full_matrices") and (rows is None or columns is None or rows > columns):
        count = g.Minimum(_last_size(g, adjoint_matrix(g, x)), _last_size(g, x))
        if columns is not None:
            count = int32_constant(g, columns)
        (q, q2), (dq, dq2) = (_split_at(g, tensor, count, -1) for tensor in (q, dq))
        r, dr = (_split_at(g, tensor, count, -2)[0] for tensor in (r, dr))
        dq = g.Sub(dq, matrix_product(g, q2, matrix_product(g, dq2, q, adj_x=True)))
    if rows is not None and columns is not None and rows >= columns:
        return [_tall_qr_gradient(g, q, r, dq, dr)]
    count = _last_size(g, q)
    (_, x2), (r1, _), (dr1, dr2) = (_split_at(g, tensor, count, -1) for tensor in (x, r, dr))
    dq = g.AddV2(dq, matrix_product(g, x2, dr2, adj_y=True))
    return [
        g.ConcatV2(
            _tall_qr_gradient(g, q, r1, dq, dr1), matrix_product(g, q, dr2), int32_constant(g, -1)
        )
    ]


def _last_size(g: GradientBuilder, x: Output) -> Output:
    known = g.known_shape(x)[-1:].elements
    if known is not None:
        return int32_constant(g, known)
    bounds = (int32_constant(g, [bound]) for bound in (-1, 0, 1))
    return g.StridedSlice(g.shape(x), *bounds, shrink_axis_mask=1)


def _split_at(g: GradientBuilder, x: Output, count: Output, axis: int) -> tuple[Output, Output]:
    """Split a tensor along an axis after `count` elements."""
    known = g.known_value(count)
    sizes = (
        g.Pack(count, int32_constant(g, -1))
        if known is None
        else int32_constant(g, [int(known), -1])
    )
    parts = g.SplitV(x, sizes, int32_constant(g, axis), num_split=2).node
    return parts.output(0), parts.output(1)


def _sum_parts(g: GradientBuilder, parts: Sequence[Output]) -> Output:
    return parts[0] if len(parts) == 1 else g.AddN(parts)


def _tall_qr_gradient(g: GradientBuilder, q: Output, r: Output, dq: Output, dr: Output) -> Output:
    inner = g.Sub(matrix_product(g, r, dr, adj_y=True), matrix_product(g, dq, q, adj_x=True))
    strict = g.Sub(triangular_part(g, inner), g.Mul(_one_half(g, inner), diagonal_part(g, inner)))
    # mirror the lower triangle; the diagonal counts once
    middle = g.AddV2(strict, adjoint_matrix(g, strict))
    whole = g.AddV2(dq, matrix_product(g, q, middle))
    return adjoint_matrix(g, g.MatrixTriangularSolve(r, adjoint_matrix(g, whole), lower=False))


def lu_gradient(g: GradientBuilder, node: Node, dz: Output, _: Output | None) -> InputGradients:
    """Gradient of the LU decomposition, with the row permutation undone."""
    both, rows = node.output(0), node.output(1)
    lower = triangular_part(g, g.MatrixSetDiag(both, g.OnesLike(g.MatrixDiagPart(both))))
    upper = triangular_part(g, both, lower=False)
    upper_gradient = triangular_part(g, dz, lower=False)
    lower_gradient = matrix_product(g, lower, g.Sub(dz, upper_gradient), adj_x=True)
    lower_gradient = g.Sub(lower_gradient, triangular_part(g, lower_gradient, lower=False))
    middle = g.AddV2(
        lower_gradient,
        triangular_part(g, matrix_product(g, upper_gradient, upper, adj_y=True), lower=False),
    )
    left = g.MatrixTriangularSolve(lower, middle, adjoint=True)
    dx = adjoint_matrix(g, g.MatrixTriangularSolve(upper, adjoint_matrix(g, left), lower=False))
    return [matrix_row_gather_gradient(g, node.inputs[0], rows, dx)]


def _one_half(g: GradientBuilder, like: Output) -> Output:
    assert like.dtype is not None
    return g.const(0.5, like.dtype)


def _row(g: GradientBuilder, x: Output) -> Output:
    return g.ExpandDims(x, int32_constant(g, -2))


def _column(g: GradientBuilder, x: Output) -> Output:
    return g.ExpandDims(x, int32_constant(g, -1))


def _reciprocal_or_zero(g: GradientBuilder, gaps: Output) -> Output:
    """Reciprocal of each gap, 0 for a gap of 0."""
    return g.DivNoNan(g.OnesLike(gaps), gaps)
