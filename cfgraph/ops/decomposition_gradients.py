"""The gradients of decompositions of matrices (Giles 2008; Walter and Lehmann 2018; Murray 2016).

Of factors that are unique only up to a phase, the gradient is that of anything that is not changed
by the phase. Where two eigenvalues or singular values are equal, those of their vectors are left
out.
"""

from __future__ import annotations

from collections.abc import Sequence

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials, index
from cfgraph.ops.gather_gradients import of_matrix_rows
from cfgraph.ops.matrix_gradients import diagonal, product, triangle, turned


def of_cholesky(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Of the matrix as if it were known to be self-adjoint."""
    lower = node.output()
    inner = product(g, lower, dz, adj_x=True)
    half = g.Mul(_half(g, inner), diagonal(g, inner))
    middle = g.Sub(triangle(g, inner), half)
    right = g.MatrixTriangularSolve(lower, turned(g, middle), adjoint=True)
    whole = g.MatrixTriangularSolve(lower, turned(g, right), adjoint=True)
    return [g.Mul(_half(g, whole), g.AddV2(whole, turned(g, whole)))]


def of_eigen(g: Adjoint, node: Node, de: Output | None, dv: Output | None) -> Partials:
    """Of self-adjoint matrices; only the lower triangle is read, and has a gradient."""
    values, vectors = node.output(0), node.output(1)
    if not node.attr("compute_v"):
        again = g.SelfAdjointEigV2(node.inputs[0], compute_v=True).node
        values, vectors, dv = again.output(0), again.output(1), None
    middle = None if de is None else g.MatrixDiag(de)
    if dv is not None:
        gaps = g.Sub(_row(g, values), _column(g, values))
        inner = g.Mul(_reciprocal(g, gaps), product(g, vectors, dv, adj_x=True))
        middle = inner if middle is None else g.AddV2(middle, inner)
    if middle is None:
        return [None]
    whole = product(g, product(g, vectors, middle), vectors, adj_y=True)
    both = triangle(g, g.AddV2(whole, turned(g, whole)))
    return [g.Sub(both, g.Mul(_half(g, both), diagonal(g, both)))]


def of_general_eigen(g: Adjoint, node: Node, de: Output | None, dv: Output | None) -> Partials:
    """Of any square matrices, whose eigenvectors have the length 1."""
    x, dtype = node.inputs[0], node.attr("Tout")
    values, vectors = node.output(0), node.output(1)
    if not node.attr("compute_v"):
        again = g.Eig(x, compute_v=True, Tout=dtype).node
        values, vectors, dv = again.output(0), again.output(1), None
    middle = None if de is None else g.MatrixDiag(de)
    if dv is not None:
        inner = product(g, vectors, dv, adj_x=True)
        along = g.Cast(g.Real(g.MatrixDiagPart(inner), Tout=dtype.real), DstT=dtype)
        lengths = g.Mul(product(g, vectors, vectors, adj_x=True), _row(g, along))
        gaps = g.Conj(g.Sub(_row(g, values), _column(g, values)))
        turns = g.Mul(_reciprocal(g, gaps), g.Sub(inner, lengths))
        middle = turns if middle is None else g.AddV2(middle, turns)
    if middle is None:
        return [None]
    dx = g.MatrixSolve(vectors, product(g, middle, vectors, adj_y=True), adjoint=True)
    return [dx if x.dtype == dtype else g.Real(dx, Tout=x.dtype)]


def of_svd(
    g: Adjoint, node: Node, ds: Output | None, du: Output | None, dv: Output | None
) -> Partials:
    """Of the matrix u diag(s) v^H; further columns of u and v only complete the others."""
    x, full = node.inputs[0], node.attr("full_matrices")
    if not node.attr("compute_uv"):
        node, full, du, dv = g.Svd(x, compute_uv=True).node, False, None, None
    if ds is None and du is None and dv is None:
        return [None]
    s = node.output(0)
    count = _last_size(g, s)
    left, right = (
        _Factor(g, node.output(port), dy, count if full else None)
        for port, dy in ((1, du), (2, dv))
    )
    middle = [] if ds is None else [g.MatrixDiag(ds)]
    for factor in (left, right):
        if factor.gradient is not None:
            squares = g.Mul(s, s)
            weights = _reciprocal(g, g.Sub(_row(g, squares), _column(g, squares)))
            inner = g.Mul(weights, product(g, factor.own, factor.gradient, adj_x=True))
            both = g.AddV2(inner, turned(g, inner))
            middle.append(g.Mul(both, _row(g, s)) if factor is left else g.Mul(_column(g, s), both))
    dx = [product(g, product(g, left.own, _sum(g, middle)), right.own, adj_y=True)]
    if (rest := left.beyond(g)) is not None:
        dx.append(product(g, g.Mul(rest, _row(g, g.Reciprocal(s))), right.own, adj_y=True))
    if (rest := right.beyond(g)) is not None:
        dx.append(product(g, g.Mul(left.own, _row(g, g.Reciprocal(s))), rest, adj_y=True))
    return [_sum(g, dx)]


class _Factor:
    """Orthonormal columns: the first `count` of them, what completes them, and their gradient."""

    def __init__(self, g: Adjoint, y: Output, dy: Output | None, count: Output | None) -> None:
        self.own, self.gradient = y, dy
        self.other = self.of_other = None
        if count is not None:
            self.own, self.other = _cut(g, y, count, -1)
            if dy is not None:
                self.gradient, self.of_other = _cut(g, dy, count, -1)

    def beyond(self, g: Adjoint) -> Output | None:
        """The part of the gradient that is orthogonal to the columns."""
        dy, shape = self.gradient, g.known_shape(self.own)[-2:]
        if dy is None or (shape.is_full and shape[:1] == shape[1:]):
            return None
        if self.other is None or self.of_other is None:
            return g.Sub(dy, product(g, self.own, product(g, self.own, dy, adj_x=True)))
        along = product(g, self.other, dy, adj_x=True)
        return product(g, self.other, g.Sub(along, product(g, self.of_other, self.own, adj_x=True)))


def of_qr(g: Adjoint, node: Node, dq: Output | None, dr: Output | None) -> Partials:
    """Of the first columns as of a square or tall matrix, to which the others are a product."""
    x, q, r = node.inputs[0], node.output(0), node.output(1)
    sizes = g.known_shape(x)[-2:]
    rows, columns = sizes if sizes.is_full else (None, None)
    dq = g.zeros_like(q) if dq is None else dq
    dr = g.zeros_like(r) if dr is None else dr
    if node.attr("full_matrices") and (rows is None or columns is None or rows > columns):
        count = g.Minimum(_last_size(g, turned(g, x)), _last_size(g, x))
        if columns is not None:
            count = index(g, columns)
        (q, q2), (dq, dq2) = (_cut(g, item, count, -1) for item in (q, dq))
        r, dr = (_cut(g, item, count, -2)[0] for item in (r, dr))
        dq = g.Sub(dq, product(g, q2, product(g, dq2, q, adj_x=True)))
    if rows is not None and columns is not None and rows >= columns:
        return [_of_tall_qr(g, q, r, dq, dr)]
    count = _last_size(g, q)
    (_, x2), (r1, _), (dr1, dr2) = (_cut(g, item, count, -1) for item in (x, r, dr))
    dq = g.AddV2(dq, product(g, x2, dr2, adj_y=True))
    return [g.ConcatV2(_of_tall_qr(g, q, r1, dq, dr1), product(g, q, dr2), index(g, -1))]


def _last_size(g: Adjoint, x: Output) -> Output:
    known = g.known_shape(x)[-1:].elements
    if known is not None:
        return index(g, known)
    bounds = (index(g, [item]) for item in (-1, 0, 1))
    return g.StridedSlice(g.shape(x), *bounds, shrink_axis_mask=1)


def _cut(g: Adjoint, x: Output, count: Output, axis: int) -> tuple[Output, Output]:
    """The first places along an axis, and the rest."""
    known = g.known_value(count)
    sizes = g.Pack(count, index(g, -1)) if known is None else index(g, [int(known), -1])
    parts = g.SplitV(x, sizes, index(g, axis), num_split=2).node
    return parts.output(0), parts.output(1)


def _sum(g: Adjoint, parts: Sequence[Output]) -> Output:
    return parts[0] if len(parts) == 1 else g.AddN(parts)


def _of_tall_qr(g: Adjoint, q: Output, r: Output, dq: Output, dr: Output) -> Output:
    inner = g.Sub(product(g, r, dr, adj_y=True), product(g, dq, q, adj_x=True))
    strict = g.Sub(triangle(g, inner), g.Mul(_half(g, inner), diagonal(g, inner)))
    # the lower triangle on both sides, the diagonal once
    middle = g.AddV2(strict, turned(g, strict))
    whole = g.AddV2(dq, product(g, q, middle))
    return turned(g, g.MatrixTriangularSolve(r, turned(g, whole), lower=False))


def of_lu(g: Adjoint, node: Node, dz: Output, _: Output | None) -> Partials:
    """Of the matrix whose rows are permuted to the product of both factors."""
    both, rows = node.output(0), node.output(1)
    lower = triangle(g, g.MatrixSetDiag(both, g.OnesLike(g.MatrixDiagPart(both))))
    upper = triangle(g, both, lower=False)
    of_upper = triangle(g, dz, lower=False)
    of_lower = product(g, lower, g.Sub(dz, of_upper), adj_x=True)
    of_lower = g.Sub(of_lower, triangle(g, of_lower, lower=False))
    middle = g.AddV2(of_lower, triangle(g, product(g, of_upper, upper, adj_y=True), lower=False))
    left = g.MatrixTriangularSolve(lower, middle, adjoint=True)
    dx = turned(g, g.MatrixTriangularSolve(upper, turned(g, left), lower=False))
    return [of_matrix_rows(g, node.inputs[0], rows, dx)]


def _half(g: Adjoint, like: Output) -> Output:
    assert like.dtype is not None
    return g.const(0.5, like.dtype)


def _row(g: Adjoint, x: Output) -> Output:
    return g.ExpandDims(x, index(g, -2))


def _column(g: Adjoint, x: Output) -> Output:
    return g.ExpandDims(x, index(g, -1))


def _reciprocal(g: Adjoint, gaps: Output) -> Output:
    """1 over the gaps, 0 where there is none."""
    return g.DivNoNan(g.OnesLike(gaps), gaps)
