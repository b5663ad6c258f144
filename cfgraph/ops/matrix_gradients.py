"""The gradients of inverses, determinants and solutions, and what those of other functions of
matrices are made of.
"""

from __future__ import annotations

from cfgraph.errors import Unsupported
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials, conj, index, reduced, total


def product(
    g: Adjoint, x: Output, y: Output, *, adj_x: bool = False, adj_y: bool = False
) -> Output:
    """The products of matrices, of either one or its adjoint."""
    return g.BatchMatMulV2(x, y, adj_x=adj_x, adj_y=adj_y)


def turned(g: Adjoint, x: Output) -> Output:
    """The adjoint of each matrix."""
    rank = g.known_shape(x).rank
    if rank is None:
        count = g.Rank(x)
        last = [g.Sub(count, 1), g.Sub(count, 2)]
        outer = g.Range(index(g, 0), last[1], index(g, 1))
        return g.ConjugateTranspose(x, g.ConcatV2(outer, g.Pack(last), index(g, 0)))
    order = index(g, [*range(rank - 2), rank - 1, rank - 2])
    is_complex = x.dtype is not None and x.dtype.is_complex
    return (g.ConjugateTranspose if is_complex else g.Transpose)(x, order)


def triangle(g: Adjoint, x: Output, *, lower: bool = True) -> Output:
    """Matrices with zeros above the diagonal, or below it."""
    return g.MatrixBandPart(x, index(g, -1 if lower else 0), index(g, 0 if lower else -1))


def diagonal(g: Adjoint, x: Output) -> Output:
    """Matrices with zeros beside the diagonal."""
    return g.MatrixBandPart(x, index(g, 0), index(g, 0))


def as_matrices(g: Adjoint, x: Output) -> Output:
    """Numbers as matrices of one element."""
    return g.ExpandDims(g.ExpandDims(x, index(g, -1)), index(g, -1))


def of_inverse(g: Adjoint, node: Node, dz: Output) -> Partials:
    """With y the inverse: minus y^H dz y^H; where it is that of the adjoint, minus y dz^H y."""
    y, turns = node.output(), node.attr("adjoint")
    right = product(g, dz, y, adj_x=turns, adj_y=not turns)
    return [g.Neg(product(g, y, right, adj_x=not turns))]


def of_determinant(g: Adjoint, node: Node, dz: Output) -> Partials:
    """The determinant times the adjoint of the inverse."""
    inverse = g.MatrixInverse(node.inputs[0], adjoint=True)
    return [g.Mul(as_matrices(g, g.Mul(dz, conj(g, node.output()))), inverse)]


def of_log_determinant(
    g: Adjoint, node: Node, of_sign: Output | None, dz: Output | None
) -> Partials:
    """The adjoint of the inverse; the sign is flat, but turns where it is complex."""
    x = node.inputs[0]
    assert x.dtype is not None
    if x.dtype.is_complex:
        part, zero = x.dtype.real, g.const(0, x.dtype.real)
        along = zero if dz is None else g.Real(dz, Tout=part)
        turn = None if of_sign is None else g.Mul(of_sign, g.Conj(node.output()))
        across = zero if turn is None else g.Imag(turn, Tout=part)
        dz = g.Complex(along, across, Tout=x.dtype)
    if dz is None:
        return [None]
    return [g.Mul(as_matrices(g, dz), g.MatrixInverse(x, adjoint=True))]


def of_solve(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Of the right-hand side the solution of the adjoint equations, of the matrix its outer
    product with the solution.
    """
    matrix, turns = node.inputs[0], node.attr("adjoint")
    of_rhs = g.MatrixSolve(matrix, dz, adjoint=not turns)
    return lambda: _outer(g, of_rhs, node.output(), turns=turns), of_rhs


def of_triangular_solve(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Likewise, of one triangle; what was broadcast is summed."""
    matrix, rhs = node.inputs
    turns, lower = node.attr("adjoint"), node.attr("lower")
    back = g.MatrixTriangularSolve(matrix, dz, adjoint=not turns, lower=lower)

    def of_matrix() -> Output:
        dx = triangle(g, _outer(g, back, node.output(), turns=turns), lower=lower)
        return reduced(g, dx, matrix, rhs, fixed=2)

    return of_matrix, lambda: reduced(g, back, rhs, matrix, fixed=2)


def of_banded_solve(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Likewise, of the diagonals in use."""
    bands, rhs = node.inputs
    turns, lower = node.attr("adjoint"), node.attr("lower")
    back = g.BandedTriangularSolve(bands, dz, adjoint=not turns, lower=lower)

    def of_bands() -> Output:
        last = g.Sub(_row_count(g, bands), 1)
        ends = [g.Neg(last), index(g, 0)] if lower else [index(g, 0), last]
        dx = _outer(g, back, node.output(), turns=turns)
        zero = g.const(0, node.attr("T"))
        dx = g.MatrixDiagPartV3(dx, g.Pack(ends), zero, align="LEFT_RIGHT")
        return reduced(g, dx, bands, rhs, fixed=2)

    return of_bands, lambda: reduced(g, back, rhs, bands, fixed=2)


def _outer(g: Adjoint, back: Output, solution: Output, *, turns: bool) -> Output:
    pair = (solution, back) if turns else (back, solution)
    return g.Neg(product(g, *pair, adj_y=True))


def _row_count(g: Adjoint, x: Output) -> Output:
    rows = g.known_shape(x)[-2:-1].elements
    if rows is not None:
        return index(g, rows)
    bounds = (index(g, [item]) for item in (-2, -1, 1))
    return g.StridedSlice(g.shape(x), *bounds, shrink_axis_mask=1)


def of_least_squares(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Through the equations that are solved, of which there are as many as the smaller size.

    Raises Unsupported where it is not known which size that is.
    """
    a, b, regularizer = node.inputs
    x, sizes = node.output(), g.known_shape(a)[-2:]
    if not sizes.is_full:
        message = "MatrixSolveLs has a gradient only where the sizes of the matrix are known"
        raise Unsupported(message, node=node, code="CFG502")
    rows, columns = sizes
    tall = (rows or 0) >= (columns or 0)
    square = product(g, a, a, adj_x=tall, adj_y=not tall)
    if node.attr("fast"):  # else the regularizer is not read
        weight = g.ExpandDims(g.Cast(regularizer, DstT=a.dtype), index(g, -1))
        square = g.MatrixSetDiag(square, g.AddV2(g.MatrixDiagPart(square), weight))
    if tall:
        z = g.MatrixSolve(square, dz)
        rest = g.Sub(b, product(g, a, x))
        of_b = product(g, a, z)
        of_a = g.Sub(product(g, rest, z, adj_y=True), product(g, of_b, x, adj_y=True))
        return of_a, of_b, lambda: _of_weight(g, node, z, x)
    of_b = g.MatrixSolve(square, product(g, a, dz))
    rest = g.Sub(dz, product(g, a, of_b, adj_x=True))
    w = g.MatrixSolve(square, b)
    of_a = g.Sub(product(g, w, rest, adj_y=True), product(g, of_b, x, adj_y=True))
    return of_a, of_b, lambda: _of_weight(g, node, of_b, w)


def _of_weight(g: Adjoint, node: Node, one: Output, other: Output) -> Output | None:
    regularizer = node.inputs[2]
    if not node.attr("fast"):
        return None
    change = g.Neg(total(g, g.Mul(one, conj(g, other))))
    return change if change.dtype == regularizer.dtype else g.Cast(change, DstT=regularizer.dtype)


def of_tridiagonal_solve(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Of the right-hand side the solution of the adjoint equations, of a diagonal the product of
    that with the solution.
    """
    diagonals, x = node.inputs[0], node.output()
    above, main, below = _bands(g, diagonals)
    flipped = [_shifted(g, below, -1, axis=-1), main, _shifted(g, above, 1, axis=-1)]
    attrs = {key: node.attr(key) for key in ("partial_pivoting", "perturb_singular")}
    back = g.TridiagonalSolve(conj(g, g.Pack(flipped, axis=-2)), dz, **attrs)

    def of_diagonals() -> Output:
        seen = conj(g, x)
        seen_by = [_inside(g, seen, -1), seen, _inside(g, seen, 1)]
        return g.Neg(g.Pack([g.Sum(g.Mul(back, s), index(g, -1)) for s in seen_by], axis=-2))

    return of_diagonals, back


def of_tridiagonal_product(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Of a diagonal the product with the other factor, of that the product of the adjoint."""
    above, main, below, rhs = node.inputs

    def of_band(by: int) -> Output:
        seen = conj(g, _inside(g, rhs, by) if by else rhs)
        return g.ExpandDims(g.Sum(g.Mul(dz, seen), index(g, -1)), index(g, -2))

    def of_rhs() -> Output:
        flipped = (_shifted(g, below, -1, axis=-1), main, _shifted(g, above, 1, axis=-1))
        return g.TridiagonalMatMul(*(conj(g, band) for band in flipped), dz)

    return lambda: of_band(-1), lambda: of_band(0), lambda: of_band(1), of_rhs


def _bands(g: Adjoint, diagonals: Output) -> list[Output]:
    parts = g.Unpack(diagonals, num=3, axis=-2).node
    return [parts.output(port) for port in range(3)]


def _shifted(g: Adjoint, x: Output, by: int, *, axis: int) -> Output:
    return g.Roll(x, index(g, by), index(g, axis))


def _inside(g: Adjoint, x: Output, by: int) -> Output:
    """The rows shifted by one, a row of zeros where nothing comes in."""
    begin, end = ([0, 1], [0, 0]) if by < 0 else ([0, 0], [0, -1])
    bounds = [index(g, [*item, 0]) for item in (begin, end)]
    steps = index(g, [1, 1, 1])
    masks = {"ellipsis_mask": 1, "begin_mask": 4 + 2 * (by > 0), "end_mask": 4 + 2 * (by < 0)}
    rows = g.StridedSlice(x, *bounds, steps, **masks)
    masks = {"ellipsis_mask": 1, "begin_mask": 4 + 2 * (by < 0), "end_mask": 4 + 2 * (by > 0)}
    bounds = [index(g, [*item, 0]) for item in (([0, 0], [0, -1]) if by < 0 else ([0, 1], [0, 0]))]
    return g.StridedSliceGrad(g.shape(x), *bounds, steps, rows, **masks)
