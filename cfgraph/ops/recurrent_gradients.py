"""The gradients of recurrent cells that are one op.

They come back through the state and the output of a cell; the gates are there for the gradient
itself, and none comes back through them.
"""

from __future__ import annotations

from cfgraph.ir.graph import Node, Output
from cfgraph.ops.adjoint import Adjoint, Partials, alike, index, refuse

_GATES = "the gates of the cell"


def cell(g: Adjoint, node: Node, *arrived: Output | None) -> Partials:
    """Of a step of long short-term memory."""
    x, _, h, w, *_ = node.inputs
    values = [node.output(port) for port in range(6)]
    back = alike(g, "LSTMBlockCellGrad", node, *node.inputs, *values, *_state(g, node, arrived))
    state, gates, *peepholes = (back.node.output(port) for port in range(5))
    into = g.MatMul(gates, w, transpose_b=True)
    read = g.ConcatV2(x, h, index(g, 1))
    return (
        lambda: _columns(g, into, x, h)[0],
        state,
        lambda: _columns(g, into, x, h)[1],
        lambda: g.MatMul(read, gates, transpose_a=True),
        *peepholes,
        lambda: g.BiasAddGrad(gates),
    )


def sequence(g: Adjoint, node: Node, *arrived: Output | None) -> Partials:
    """Of long short-term memory over a sequence."""
    op = node.op.replace("LSTM", "LSTMGrad")
    values = [node.output(port) for port in range(7)]
    back = alike(g, op, node, *node.inputs, *values, *_state(g, node, arrived))
    return None, *(back.node.output(port) for port in range(8))


def gated(g: Adjoint, node: Node, *arrived: Output | None) -> Partials:
    """Of a step of a gated recurrent unit."""
    x, h, *_ = node.inputs
    refuse(node, arrived[:3], _GATES)
    r, u, c, _ = (node.output(port) for port in range(4))
    back = alike(g, "GRUBlockCellGrad", node, *node.inputs, r, u, c, *filter(None, arrived[3:]))
    dx, dh, candidate, gates = (back.node.output(port) for port in range(4))
    return (
        dx,
        dh,
        lambda: g.MatMul(g.ConcatV2(x, h, index(g, 1)), gates, transpose_a=True),
        lambda: g.MatMul(g.ConcatV2(x, g.Mul(h, r), index(g, 1)), candidate, transpose_a=True),
        lambda: g.BiasAddGrad(gates),
        lambda: g.BiasAddGrad(candidate),
    )


def _state(g: Adjoint, node: Node, arrived: tuple[Output | None, ...]) -> tuple[Output, Output]:
    """The gradients of state and output, zeros where one is missing."""
    _, state, *gates, output = arrived
    refuse(node, [arrived[0], *gates], _GATES)
    present = state or output
    assert present is not None
    return state or g.ZerosLike(present), output or g.ZerosLike(present)


def _columns(g: Adjoint, both: Output, x: Output, h: Output) -> tuple[Output, Output]:
    """What belongs to the input, and what belongs to the state before."""
    widths = g.known_shape(x)[1:] + g.known_shape(h)[1:]
    if widths.is_full:
        sizes = index(g, list(widths))
    else:
        second = [g.Slice(g.shape(item), index(g, [1]), index(g, [1])) for item in (x, h)]
        sizes = g.ConcatV2(*second, index(g, 0))
    parts = g.SplitV(both, sizes, index(g, 1), num_split=2).node
    return parts.output(0), parts.output(1)
