"""The gradients of sparse tensors: by their values, and by what is dense beside them."""

from __future__ import annotations

import numpy as np

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials, conj, index, reduced


def of_dense(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Of a tensor with values at coordinates, by them and by what is elsewhere."""
    places, _, values, _ = node.inputs
    found = g.GatherNd(dz, _rows(g, places, node.inputs[1]))

    def of_default() -> Output:
        return g.Sub(_total(g, g.Reshape(dz, index(g, [-1]))), _total(g, found))

    return None, None, lambda: reduced(g, found, values, found), of_default


def _rows(g: Adjoint, places: Output, shape: Output) -> Output:
    """Coordinates as a matrix, whether they are one, a vector or a scalar."""
    if g.known_shape(places).rank == 2:
        return places
    return g.Reshape(places, g.ConcatV2(index(g, [-1]), g.shape(shape), index(g, 0)))


def _total(g: Adjoint, x: Output) -> Output:
    return g.Sum(x, index(g, [0]))


def of_product(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Of a sparse matrix times a dense one."""
    places, values, shape, b = node.inputs
    adjoint_a, adjoint_b = node.attr("adjoint_a"), node.attr("adjoint_b")
    swap = index(g, [1, 0])

    def of_values() -> Output:
        row, column = (g.Unpack(places, num=2, axis=1).node.output(port) for port in (0, 1))
        if adjoint_a:
            row, column = column, row
        other = g.Transpose(b, swap) if adjoint_b else conj(g, b)
        factors = (g.GatherV2(x, at, index(g, 0)) for x, at in ((dz, row), (other, column)))
        found = g.Sum(g.Mul(*factors), index(g, [1]))
        return conj(g, found) if adjoint_a else found

    def of_b() -> Output:
        product = g.SparseTensorDenseMatMul(places, values, shape, dz, adjoint_a=not adjoint_a)
        return g.ConjugateTranspose(product, swap) if adjoint_b else product

    return None, of_values, None, of_b


def of_sum(g: Adjoint, node: Node, dz: Output) -> Partials:
    """Of a sparse and a dense tensor added."""
    return None, lambda: g.GatherNd(dz, node.inputs[0]), None, dz


def of_order(g: Adjoint, node: Node, dplaces: Output | None, dvalues: Output) -> Partials:
    """Of values put in order: the numbers 0, 1, … put in order as they are say where each went."""
    places, values, shape = node.inputs

    def of_values() -> Output:
        origin = g.SparseReorder(places, _numbers(g, values), shape).node.output(1)
        return g.GatherV2(dvalues, g.InvertPermutation(origin), index(g, 0))

    return None, of_values, None


def _numbers(g: Adjoint, x: Output) -> Output:
    """0, 1, … for each element of a vector."""
    known = g.known_shape(x)
    if known.is_full:
        return index(g, np.arange(*known))
    count = g.Reshape(g.shape(x), index(g, np.zeros(0)))
    return g.Range(index(g, 0), count, index(g, 1))


def of_filled(g: Adjoint, node: Node, *grads: Output | None) -> Partials:
    """Of values with others put in between."""
    dvalues = grads[1]
    if dvalues is None:
        return [None] * len(node.inputs)
    found = g.SparseFillEmptyRowsGrad(node.output(3), dvalues).node
    return None, found.output(0), None, found.output(1)


def of_filled_gradient(
    g: Adjoint, node: Node, kept: Output | None, filled: Output | None
) -> Partials:
    """Of that gradient, by the gradient that it is given."""
    back, dvalues = node.inputs
    whole = g.ZerosLike(dvalues) if filled is None else g.BroadcastTo(filled, g.shape(dvalues))
    here = g.ZerosLike(node.output(0)) if kept is None else kept
    return None, g.TensorScatterUpdate(whole, g.ExpandDims(back, index(g, 1)), here)
