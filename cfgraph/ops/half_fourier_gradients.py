"""The gradients of the transforms between real blocks and one half of their Fourier transform.

What the transform cropped from its input has zeros.
"""

from __future__ import annotations

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials, index


def of_half(g: Adjoint, node: Node, dz: Output, inverse: str, dims: int) -> Partials:
    """Of a transform to the half: the inverse one over `dims` axes, the other half zero."""
    x, length = node.inputs
    sizes = g.shape(dz)
    whole = _joined(g, _part(g, sizes, None, -1), _part(g, length, -1, None))
    back = getattr(g, inverse)(_placed(g, dz, whole, 1))
    dx = g.Mul(g.Real(back, Tout=x.dtype), _many(g, node, x))
    return _uncropped(g, dx, x, dims), None


def of_whole(g: Adjoint, node: Node, dz: Output, forward: str, dims: int) -> Partials:
    """Of a transform from the half: what stands for both halves counts twice."""
    x, length = node.inputs
    half = getattr(g, forward)(dz, length, Tcomplex=x.dtype)
    weights = g.RealDiv(_weights(g, length, dz), _many(g, node, dz))
    dx = g.Mul(half, g.Cast(weights, DstT=x.dtype))
    return _uncropped(g, dx, x, dims), None


def _weights(g: Adjoint, length: Output, like: Output) -> Output:
    """2 for each column, 1 for those that are their own mirror image: the first and the middle."""
    assert like.dtype is not None
    known = g.known_value(length)
    if known is not None:
        last = int(known[-1])
        column = range(last // 2 + 1)
        return g.const([1 if place in (0, last - place) else 2 for place in column], like.dtype)
    size = g.Reshape(_part(g, length, -1, None), index(g, []))
    place = g.Range(index(g, 0), g.AddV2(g.FloorDiv(size, 2), 1), index(g, 1))
    own = g.LogicalOr(g.Equal(place, 0), g.Equal(g.AddV2(place, place), size))
    return g.SelectV2(own, g.const(1, like.dtype), g.const(2, like.dtype))


def _many(g: Adjoint, node: Node, like: Output) -> Output:
    """The number of elements of the real block, in the type of another tensor."""
    length = node.inputs[1]
    known = g.known_value(length)
    assert like.dtype is not None
    if known is not None:
        return g.const(known.prod(), like.dtype)
    return g.Cast(g.Prod(length, index(g, 0)), DstT=like.dtype)


def _uncropped(g: Adjoint, y: Output, x: Output, dims: int) -> Output:
    have, want = g.known_shape(y)[-dims:], g.known_shape(x)[-dims:]
    return y if have.is_full and have == want else _placed(g, y, g.shape(x), dims)


def _placed(g: Adjoint, y: Output, sizes: Output, dims: int) -> Output:
    """Zeros of a shape with `y` in the first corner of the last dimensions."""
    begin, steps = (index(g, [item] * (dims + 1)) for item in (0, 1))
    end = _joined(g, index(g, [0]), _part(g, g.shape(y), -dims, None))
    return g.StridedSliceGrad(sizes, begin, end, steps, y, ellipsis_mask=1)


def _part(g: Adjoint, sizes: Output, start: int | None, end: int | None) -> Output:
    known = g.known_value(sizes)
    if known is not None:
        return index(g, known[start:end])
    bounds = (index(g, [item]) for item in (start or 0, end or 0, 1))
    masks = {"begin_mask": int(start is None), "end_mask": int(end is None)}
    return g.StridedSlice(sizes, *bounds, **masks)


def _joined(g: Adjoint, *parts: Output) -> Output:
    known = [value for part in parts if (value := g.known_value(part)) is not None]
    if len(known) == len(parts):
        return index(g, [size for value in known for size in value.tolist()])
    return g.ConcatV2(parts, index(g, 0))
