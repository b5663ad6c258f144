"""The gradient of rows that indices pick: a dense tensor in which each row sums what it was used
for. Rows of a tensor, or of a variable that is given by its handle.
"""

from __future__ import annotations

from cfgraph.ir import dtypes
from cfgraph.ir.graph import Output
from cfgraph.ops.adjoint import Adjoint


def summed_rows(g: Adjoint, params: Output, indices: Output, dz: Output, batch: int = 0) -> Output:
    """The gradient of `params`, whose rows along axis `batch` were picked, by that of the rows.

    The first `batch` dimensions of both go together; it is not negative.
    """
    shape = g.shape(params)
    rows, places = _flat(g, params, indices, dz, batch)
    if not batch:
        return g.UnsortedSegmentSum(rows, places, _size(g, params, 0))
    sums = g.UnsortedSegmentSum(rows, places, _count(g, params, batch + 1))
    return g.Reshape(sums, shape)


def _flat(
    g: Adjoint, params: Output, indices: Output, dz: Output, batch: int
) -> tuple[Output, Output]:
    """The rows one below the other, and the place of each, counted over all batches."""
    if not batch and g.known_shape(indices).rank == 1:
        return dz, indices
    count = g.known_shape(indices).elements
    if count is None:
        many = g.Reshape(g.Size(indices), g.const([1], dtypes.int32))
    else:
        many = g.const([count], dtypes.int32)
    rows = g.Reshape(dz, _joined(g, many, _part(g, params, batch + 1, None)))
    if batch:
        indices = _numbered(g, params, indices, batch)
    return rows, g.Reshape(indices, many)


def _numbered(g: Adjoint, params: Output, indices: Output, batch: int) -> Output:
    """The places in the rows of all batches: those of batch n begin behind n times the rows."""
    assert indices.dtype is not None
    batches, size = _count(g, params, batch), _size(g, params, batch)
    start = g.Mul(g.Range(g.const(0, dtypes.int32), batches, g.const(1, dtypes.int32)), size)
    column = g.Reshape(start, _joined(g, g.Reshape(batches, _one(g)), _one(g)))
    ones = g.Reshape(indices, _joined(g, g.Reshape(batches, _one(g)), _rest(g, indices, batch)))
    return g.AddV2(ones, _cast(g, column, indices))


def _rest(g: Adjoint, indices: Output, batch: int) -> Output:
    """The number of indices in one batch."""
    return g.Reshape(_count(g, indices, None, start=batch), _one(g))


def _cast(g: Adjoint, x: Output, like: Output) -> Output:
    return x if x.dtype is like.dtype else g.Cast(x, DstT=like.dtype)


def _count(g: Adjoint, x: Output, end: int | None, start: int = 0) -> Output:
    """The product of some dimensions of a tensor."""
    known = g.known_shape(x)[start:end]
    if known.elements is not None:
        return g.const(known.elements, dtypes.int32)
    return g.Prod(_part(g, x, start, end), g.const([0], dtypes.int32))


def _size(g: Adjoint, x: Output, axis: int) -> Output:
    """One dimension of a tensor."""
    return _count(g, x, axis + 1, start=axis)


def _part(g: Adjoint, x: Output, start: int, end: int | None) -> Output:
    """Some dimensions of a tensor."""
    known = g.known_shape(x)[start:end]
    if known.is_full:
        return g.const(list(known), dtypes.int32)
    length = -1 if end is None else end - start
    begin, size = g.const([start], dtypes.int32), g.const([length], dtypes.int32)
    return g.Slice(g.shape(x), begin, size)


def _joined(g: Adjoint, *parts: Output) -> Output:
    """Dimensions one after the other."""
    values = [value for part in parts if (value := g.known_value(part)) is not None]
    if len(values) < len(parts):
        return g.ConcatV2(parts, g.const(0, dtypes.int32))
    return g.const([size for value in values for size in value.tolist()], dtypes.int32)


def _one(g: Adjoint) -> Output:
    return g.const([1], dtypes.int32)
