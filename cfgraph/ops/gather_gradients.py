"""The gradient of slices that indices pick: a dense tensor in which each slice sums what it was
used for. Slices of a tensor, or of a variable that is given by its handle.
"""

from __future__ import annotations

from typing import Any

from cfgraph.errors import Unsupported
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials, index

Size = int | Output


def of_gather(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Of Gather, GatherV2 and ResourceGather."""
    params, indices = node.inputs[:2]
    batch = _batch(g, node)
    axis = node.inputs[2] if len(node.inputs) > 2 else index(g, batch)
    place = g.known_value(axis)
    rank = g.known_shape(params).rank
    if place is not None and (place == 0 or (rank is not None and int(place) % rank == 0)):
        dx = g.UnsortedSegmentSum(dz, indices, _tensor(g, _extent(g, params, 0, 1)))
    else:
        many = _extent(g, indices, batch, None)
        dx = _summed(g, params, indices, dz, [*_around(g, params, axis, batch), many])
    return [dx, *[None] * (len(node.inputs) - 1)]


def of_rows(g: Adjoint, x: Output, indices: Output, dz: Output) -> Output:
    """The gradient of x, of each row of which some elements were picked."""
    if g.known_shape(x).rank == 1:
        return g.UnsortedSegmentSum(dz, indices, _tensor(g, _extent(g, x, 0, 1)))
    outer, size, many = _extent(g, x, 0, -1), _extent(g, x, -1, None), _extent(g, dz, -1, None)
    return _summed(g, x, indices, dz, [outer, 1, size, 1, many])


def of_matrix_rows(g: Adjoint, x: Output, indices: Output, dz: Output) -> Output:
    """The gradient of matrices, of each of which some rows were picked."""
    batch, rows = _extent(g, x, 0, -2), _extent(g, x, -2, -1)
    columns, many = _extent(g, x, -1, None), _extent(g, dz, -2, -1)
    return _summed(g, x, indices, dz, [batch, 1, rows, columns, many])


def of_gather_nd(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Of GatherNd and ResourceGatherNd."""
    params, indices = node.inputs[0], wide(g, node.inputs[1])
    shape = g.known_shape(indices)
    if shape.rank and shape[-1:].elements == 0:
        return g.Sum(dz, index(g, range(shape.rank - 1))), None  # each is all of it
    if shape.rank == 1:
        indices, dz = (g.ExpandDims(item, index(g, 0)) for item in (indices, dz))
    policy = {key: value for key, value in node.attrs.items() if key == "bad_indices_policy"}
    return g.ScatterNd(indices, dz, g.shape(params, indices.dtype or dtypes.int32), **policy), None


def wide(g: Adjoint, indices: Output) -> Output:
    """The indices in a type that all ops take."""
    enough = indices.dtype in (dtypes.int32, dtypes.int64)
    return indices if enough else g.Cast(indices, DstT=dtypes.int32)


def _batch(g: Adjoint, node: Node) -> int:
    """How many of the first dimensions go together, counted from the front."""
    batch: int = node.attrs.get("batch_dims", 0)
    rank = g.known_shape(node.inputs[1]).rank
    if batch < 0 and rank is None:
        message = f"batch_dims {batch} counts from the end of indices of unknown rank"
        hint = "give batch_dims from the front"
        raise Unsupported(message, node=node, hint=hint, code="CFG502")
    return batch + (rank or 0) if batch < 0 else batch


def _around(g: Adjoint, params: Output, axis: Output, batch: int) -> list[Size]:
    """The sizes of the batch, of what is between it and the axis, of the axis, of what follows."""
    known, rank = g.known_value(axis), g.known_shape(params).rank
    if known is not None and (rank is not None or known >= 0):
        place = int(known) if rank is None else int(known) % rank
        spans = ((0, batch), (batch, place), (place, place + 1), (place + 1, None))
        return [_extent(g, params, *span) for span in spans]
    sizes = g.shape(params)
    if axis.dtype != dtypes.int32:
        axis = g.Cast(axis, DstT=dtypes.int32)
    at = g.Reshape(g.FloorMod(axis, g.Size(sizes)), index(g, [1]))
    first, one, rest = (index(g, [item]) for item in (batch, 1, -1))
    parts = (index(g, [0]), first), (first, g.Sub(at, first)), (at, one), (g.AddV2(at, one), rest)
    return [_product(g, g.Slice(sizes, start, length)) for start, length in parts]


def _summed(g: Adjoint, params: Output, indices: Output, dz: Output, sizes: list[Size]) -> Output:
    """The gradient where every slice but those along one axis has indices, or a place, of its own.

    `sizes` are those of the batch, of what is between it and the axis, of the axis, of what
    follows, and the number of indices in each batch.
    """
    batch, between, size, after, many = sizes
    rows = g.Reshape(dz, _vector(g, batch, between, many, after))
    groups = _tensor(g, _times(g, batch, between))
    starts = g.Mul(g.Range(index(g, 0), groups, index(g, 1)), _tensor(g, size))
    if starts.dtype != indices.dtype:
        starts = g.Cast(starts, DstT=indices.dtype)
    column = g.Reshape(starts, _vector(g, batch, between, 1))
    places = g.AddV2(column, g.Reshape(indices, _vector(g, batch, 1, many)))
    total = _tensor(g, _times(g, _times(g, batch, between), size))
    return g.Reshape(g.UnsortedSegmentSum(rows, places, total), g.shape(params))


def _extent(g: Adjoint, x: Output, start: int, end: int | None) -> Size:
    """The product of some dimensions."""
    known = g.known_shape(x)[start:end]
    if known.elements is not None:
        return known.elements
    bounds = (index(g, [item]) for item in (start, end or 0, 1))
    return _product(g, g.StridedSlice(g.shape(x), *bounds, end_mask=int(end is None)))


def _product(g: Adjoint, sizes: Output) -> Output:
    return g.Prod(sizes, index(g, 0))


def _times(g: Adjoint, one: Size, other: Size) -> Size:
    if isinstance(one, int) and isinstance(other, int):
        return one * other
    if 1 in (one, other):
        return other if one == 1 else one
    return g.Mul(_tensor(g, one), _tensor(g, other))


def _tensor(g: Adjoint, size: Size) -> Output:
    return index(g, size) if isinstance(size, int) else size


def _vector(g: Adjoint, *sizes: Size) -> Output:
    known: list[Any] = [size for size in sizes if isinstance(size, int)]
    return index(g, known) if len(known) == len(sizes) else g.Pack([_tensor(g, s) for s in sizes])
