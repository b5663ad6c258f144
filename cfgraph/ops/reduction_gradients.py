"""The gradients of reductions: what came out is spread over what went in."""

from __future__ import annotations

from functools import reduce
from math import prod

from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials, conj, index


def of_sum(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Each element has the gradient of its sum."""
    return _everywhere(g, node, _spread(g, node, dz)), None


def of_mean(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Each element has its share of the gradient of its mean."""
    share = g.RealDiv(dz, _count(g, node, dz))
    return _everywhere(g, node, _spread(g, node, share)), None


def of_extreme(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Those elements that are the largest, or smallest, share alike."""
    x, axes = node.inputs
    chosen = g.Cast(g.Equal(_spread(g, node, node.output()), x), DstT=x.dtype)
    share = g.RealDiv(chosen, g.Sum(chosen, axes, keep_dims=True))
    return g.Mul(share, _spread(g, node, dz)), None


def of_euclidean_norm(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Each element in proportion to itself; NaN where all are zero."""
    norm, x = node.output(), node.inputs[0]
    if x.dtype is not None and x.dtype.is_complex:
        dz, norm = (g.Real(item, Tout=x.dtype.real) for item in (dz, norm))
        share = g.Cast(g.RealDiv(dz, norm), DstT=x.dtype)
        return g.Mul(x, _spread(g, node, share)), None
    return g.RealDiv(x, _spread(g, node, g.RealDiv(norm, dz))), None


def of_prod(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Each element has the product of all others, which a division would not find among zeros."""
    x, dx, places = node.inputs[0], _spread(g, node, dz), _static_axes(g, node)
    if places is None:
        return g.Mul(dx, conj(g, _others_anywhere(g, node))), None
    others, rest, dims = [], x, list(g.known_shape(x))
    places = [place for place in places if dims[place] != 1]
    if not places:
        return _everywhere(g, node, dx), None
    for place in places:
        axis = index(g, place)
        others.append(_others(g, rest, axis))
        if place != places[-1]:
            rest = g.Prod(rest, axis, keep_dims=True)
    return g.Mul(dx, conj(g, reduce(g.Mul, reversed(others)))), None


def _static_axes(g: Adjoint, node: Node) -> list[int] | None:
    """The reduced axes in order; None where they, or the rank, are not known."""
    x, axes = node.inputs
    known, rank = g.known_value(axes), g.known_shape(x).rank
    if known is None or rank is None:
        return None
    return sorted(int(axis) % rank for axis in known.flat)


def _spread(g: Adjoint, node: Node, y: Output) -> Output:
    """What has the shape of the result, such that it broadcasts against the input."""
    x, places = node.inputs[0], _static_axes(g, node)
    if node.attr("keep_dims") or (places is not None and places == list(range(len(places)))):
        return y
    if places is None:
        return g.Reshape(y, _kept_sizes(g, node))
    shape = g.known_shape(x)
    if shape.is_full:
        sizes = [1 if place in places else size for place, size in enumerate(shape)]
        return g.Reshape(y, index(g, sizes))
    for place in places:
        y = g.ExpandDims(y, index(g, place))
    return y


def _kept_sizes(g: Adjoint, node: Node) -> Output:
    """The shape of the input with ones for the reduced axes."""
    sizes, places = g.shape(node.inputs[0]), _measured_axes(g, node)
    return g.DynamicStitch(_axes_of(g, sizes), places, sizes, g.OnesLike(places))


def _measured_axes(g: Adjoint, node: Node) -> Output:
    """The reduced axes, none of them negative."""
    x, axes = node.inputs
    if axes.dtype != dtypes.int32:
        axes = g.Cast(axes, DstT=dtypes.int32)
    return g.FloorMod(axes, g.Size(g.shape(x)))


def _axes_of(g: Adjoint, sizes: Output) -> Output:
    return g.Range(index(g, 0), g.Size(sizes), index(g, 1))


def _everywhere(g: Adjoint, node: Node, y: Output) -> Output:
    """The value repeated to the shape of the input."""
    x = node.inputs[0]
    shape = g.known_shape(x)
    return y if shape.is_full and g.known_shape(y) == shape else g.BroadcastTo(y, g.shape(x))


def _count(g: Adjoint, node: Node, dz: Output) -> Output | int:
    """How many elements each result is made of, in the type of the results."""
    x, places = node.inputs[0], _static_axes(g, node)
    dims = list(g.known_shape(x)) if places is not None else []
    sizes = [size for place in places or () if (size := dims[place]) is not None]
    if places is not None and len(sizes) == len(places):
        return max(prod(sizes), 1)
    before, after = (g.Prod(g.shape(item), index(g, 0)) for item in (x, dz))
    return g.Cast(g.FloorDiv(before, g.Maximum(after, 1)), DstT=dz.dtype)


def _others(g: Adjoint, x: Output, axis: Output) -> Output:
    """For each element the product of all others along an axis."""
    before = g.Cumprod(x, axis, exclusive=True)
    return g.Mul(before, g.Cumprod(x, axis, exclusive=True, reverse=True))


def _others_anywhere(g: Adjoint, node: Node) -> Output:
    """The same along axes that are known at the run: they are moved to the front and made one."""
    x, sizes = node.inputs[0], g.shape(node.inputs[0])
    places = g.Reshape(_measured_axes(g, node), index(g, [-1]))
    rest = g.ListDiff(_axes_of(g, sizes), places)
    order = g.ConcatV2(places, rest, index(g, 0))
    moved = g.Transpose(x, order)
    both = [g.Prod(g.GatherV2(sizes, part, index(g, 0)), index(g, 0)) for part in (places, rest)]
    flat = _others(g, g.Reshape(moved, g.Pack(both)), index(g, 0))
    return g.Transpose(g.Reshape(flat, g.shape(moved)), g.InvertPermutation(order))
