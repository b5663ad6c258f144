"""The gradients of diagonals of matrices taken out, laid into new matrices, and replaced.

`align` says how short diagonals lie in their rows; what else is in a row has no gradient.
"""

from __future__ import annotations

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials, index, total


def of_part(g: Adjoint, node: Node, dz: Output, align: bytes) -> Partials:
    """Zeros with the gradients of the diagonals in their places."""
    zeros = g.zeros_like(node.inputs[0])
    return _with_padding(g, node, dz, g.MatrixSetDiagV3(zeros, dz, _band(g, node, 1), align=align))


def of_matrices(g: Adjoint, node: Node, dz: Output, align: bytes) -> Partials:
    """The same diagonals of the gradient."""
    return _with_padding(g, node, dz, _taken(g, node, dz, _band(g, node, 1), align))


def of_replaced(g: Adjoint, node: Node, dz: Output, align: bytes) -> Partials:
    """The gradient without these diagonals, and these."""
    diagonal, k = node.inputs[1], _band(g, node, 2)
    return [
        lambda: g.MatrixSetDiagV3(dz, g.zeros_like(diagonal), k, align=align),
        lambda: _taken(g, node, dz, k, align),
        *[None] * (len(node.inputs) - 2),
    ]


def _taken(g: Adjoint, node: Node, x: Output, k: Output, align: bytes) -> Output:
    return g.MatrixDiagPartV3(x, k, g.const(0, node.attr("T")), align=align)


def _with_padding(g: Adjoint, node: Node, dz: Output, dx: Output) -> Partials:
    """What is not the gradient of the first input is that of the padding, the last input."""
    count = len(node.inputs)
    if count == 1:
        return [dx]
    return [dx, *[None] * (count - 2), lambda: g.Sub(total(g, dz), total(g, dx))]


def _band(g: Adjoint, node: Node, slot: int) -> Output:
    return node.inputs[slot] if len(node.inputs) > slot else index(g, 0)
