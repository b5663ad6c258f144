"""Gradients of matrix decompositions (Giles 2008, Walter and Lehmann 2018, Murray 2016)."""

from __future__ import annotations

from collections.abc import Sequence

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.families.gather import matrix_row_gather_gradient
from cfgraph.ops.families.matrix_calculus import (
    adjoint_matrix,
    diagonal_part,
    matrix_product,
    triangular_part,
)
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    dimension_size,
    int32_constant,
)


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
    count = dimension_size(g, s, -1)
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
        count = g.Minimum(dimension_size(g, adjoint_matrix(g, x), -1), dimension_size(g, x, -1))
        if columns is not None:
            count = int32_constant(g, columns)
        (q, q2), (dq, dq2) = (_split_at(g, tensor, count, -1) for tensor in (q, dq))
        r, dr = (_split_at(g, tensor, count, -2)[0] for tensor in (r, dr))
        dq = g.Sub(dq, matrix_product(g, q2, matrix_product(g, dq2, q, adj_x=True)))
    if rows is not None and columns is not None and rows >= columns:
        return [_tall_qr_gradient(g, q, r, dq, dr)]
    count = dimension_size(g, q, -1)
    (_, x2), (r1, _), (dr1, dr2) = (_split_at(g, tensor, count, -1) for tensor in (x, r, dr))
    dq = g.AddV2(dq, matrix_product(g, x2, dr2, adj_y=True))
    return [
        g.ConcatV2(
            _tall_qr_gradient(g, q, r1, dq, dr1), matrix_product(g, q, dr2), int32_constant(g, -1)
        )
    ]


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
