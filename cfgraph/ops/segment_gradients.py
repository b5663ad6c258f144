"""The gradients of rows combined by segment: each row has that of its segment, or its share.

A segment number that is negative drops its row, which has no gradient then.
"""

from __future__ import annotations

from typing import ClassVar

from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials, conj, index, row_shape
from cfgraph.ops.op import Op


class BySegment(Op, abstract=True):
    """An op that makes one row of all those of a segment."""

    sums: ClassVar[str]  # the op that sums by segment, of the same further inputs
    drops: ClassVar[bool] = False  # a row may have a negative number


def of_sum(cls: type[BySegment], g: Adjoint, node: Node, dz: Output) -> Partials:
    """Each row has the gradient of its sum."""
    return [_rows(cls, g, node, dz), *[None] * (len(node.inputs) - 1)]


def of_mean(cls: type[BySegment], g: Adjoint, node: Node, dz: Output) -> Partials:
    """Each row has its share of the gradient of its mean."""
    ids = node.inputs[1]
    counts = g.Cast(g.Maximum(g.SegmentSum(g.OnesLike(ids), ids), 1), DstT=dz.dtype)
    return of_sum(cls, g, node, g.RealDiv(dz, _column(g, counts, dz)))


def of_extreme(cls: type[BySegment], g: Adjoint, node: Node, dz: Output) -> Partials:
    """Those elements that are the largest, or smallest, of their segment share alike."""
    x = node.inputs[0]
    chosen = g.Cast(g.Equal(x, _rows(cls, g, node, node.output())), DstT=x.dtype)
    # where no row is, nothing is chosen
    share = g.RealDiv(dz, g.Maximum(getattr(g, cls.sums)(chosen, *node.inputs[1:]), 1))
    return [g.Mul(_rows(cls, g, node, share), chosen), *[None] * (len(node.inputs) - 1)]


def of_prod(cls: type[BySegment], g: Adjoint, node: Node, dz: Output) -> Partials:
    """Each element has the product of the others of its segment; of two zeros none has any."""
    x = node.inputs[0]
    assert x.dtype is not None
    is_zero = g.Equal(x, 0)
    zeros = getattr(g, cls.sums)(g.Cast(is_zero, DstT=dtypes.int32), *node.inputs[1:])
    factor = g.SelectV2(is_zero, g.const(1, x.dtype), x)
    others = g.SelectV2(
        is_zero,
        _rows(cls, g, node, getattr(g, cls.name)(factor, *node.inputs[1:])),
        g.RealDiv(_rows(cls, g, node, node.output()), factor),
    )
    dz = g.SelectV2(g.Greater(zeros, 1), g.const(0, x.dtype), dz)
    return [g.Mul(_rows(cls, g, node, dz), conj(g, others)), *[None] * (len(node.inputs) - 1)]


def _rows(cls: type[BySegment], g: Adjoint, node: Node, y: Output) -> Output:
    """For each row that of its segment, zero where the row is dropped."""
    ids = node.inputs[1]
    known = g.known_value(ids)
    if not cls.drops or (known is not None and (known >= 0).all()):
        return g.GatherV2(y, ids, index(g, 0))
    # the row of all negative numbers comes first
    assert y.dtype is not None
    dims = row_shape(g, y)
    known = g.known_value(dims)
    sizes = g.ConcatV2(index(g, [1]), dims, index(g, 0)) if known is None else index(g, [1, *known])
    padded = g.ConcatV2(g.Fill(sizes, g.const(0, y.dtype)), y, index(g, 0))
    return g.GatherV2(padded, g.AddV2(g.Maximum(ids, -1), 1), index(g, 0))


def _column(g: Adjoint, x: Output, y: Output) -> Output:
    """The tensor with a dimension of 1 for each that y has beside its first."""
    shape, rank = g.known_shape(x), g.known_shape(y).rank
    if rank == 1:
        return x
    if rank is None:
        rest = (index(g, [item]) for item in (1, 0, 1))
        ones = g.OnesLike(g.StridedSlice(g.shape(y), *rest, end_mask=1))
    elif shape.is_full:
        return g.Reshape(x, index(g, [*shape, *[1] * (rank - 1)]))
    else:
        ones = index(g, [1] * (rank - 1))
    return g.Reshape(x, g.ConcatV2(g.shape(x), ones, index(g, 0)))
