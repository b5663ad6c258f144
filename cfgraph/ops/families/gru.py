"""Fused cells of a gated recurrent unit (GRU), with their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.families.lstm import GATES, check_equal_shapes, gates_shape, sigmoid
from cfgraph.ops.opdef.facts import CompilerSupport
from cfgraph.ops.opdef.gradient_api import (
    GradientBuilder,
    InputGradients,
    int32_constant,
    reject_gradients,
    same_attrs,
)
from cfgraph.ops.opdef.op import Op, OpError
from cfgraph.ops.opdef.shape_functions import InferenceContext


def gru_gradient(g: GradientBuilder, node: Node, *output_grads: Output | None) -> InputGradients:
    """Gradients of GRUBlockCell."""
    x, h, *_ = node.inputs
    reject_gradients(node, output_grads[:3], GATES)
    r, u, c, _ = (node.output(port) for port in range(4))
    backprop = same_attrs(
        g, "GRUBlockCellGrad", node, *node.inputs, r, u, c, *filter(None, output_grads[3:])
    )
    dx, dh, candidate, gates = (backprop.node.output(port) for port in range(4))
    return (
        dx,
        dh,
        lambda: g.MatMul(g.ConcatV2(x, h, int32_constant(g, 1)), gates, transpose_a=True),
        lambda: g.MatMul(
            g.ConcatV2(x, g.Mul(h, r), int32_constant(g, 1)), candidate, transpose_a=True
        ),
        lambda: g.BiasAddGrad(gates),
        lambda: g.BiasAddGrad(candidate),
    )


_GRU = "x: T, h_prev: T, w_ru: T, w_c: T, b_ru: T, b_c: T"


def check_gru_shapes(x: Any, h: Any, w_ru: Any, w_c: Any, b_ru: Any, b_c: Any) -> None:
    """Raise OpError unless the inputs of one step fit the weights."""
    units, rows = h.shape[-1], x.shape[-1] + h.shape[-1]
    fits = (
        x.ndim == h.ndim == 2
        and len(x) == len(h)
        and w_ru.shape == (rows, 2 * units)
        and w_c.shape == (rows, units)
        and b_ru.shape == (2 * units,)
        and b_c.shape == (units,)
    )
    if not fits:
        shapes = ", ".join(str(list(v.shape)) for v in (x, h, w_ru, w_c, b_ru, b_c))
        raise OpError(f"shapes of x, h_prev, w_ru, w_c, b_ru, b_c do not fit: {shapes}")


class GRUBlockCell(Op):
    """One step of a gated recurrent unit (GRU): reset gate, update gate, candidate, new state."""

    gradient = staticmethod(gru_gradient)
    signature = f"{_GRU} -> r: T, u: T, c: T, h: T"
    attrs = "T: {float32}"
    compilation = CompilerSupport(compiled=False)

    @staticmethod
    def kernel(
        xp: ModuleType, x: Any, h: Any, w_ru: Any, w_c: Any, b_ru: Any, b_c: Any
    ) -> tuple[Any, ...]:
        check_gru_shapes(x, h, w_ru, w_c, b_ru, b_c)
        r, u = xp.split(sigmoid(xp, xp.concatenate([x, h], axis=1) @ w_ru + b_ru), 2, axis=1)
        c = xp.tanh(xp.concatenate([x, h * r], axis=1) @ w_c + b_c)
        return r, u, c, u * h + (1 - u) * c

    shape = staticmethod(lambda context: [context.inputs[1]] * 4)


class GRUBlockCellGrad(Op):
    """Gradient of GRUBlockCell with respect to input, state, and gates."""

    signature = (
        f"{_GRU}, r: T, u: T, c: T, d_h: T -> d_x: T, d_h_prev: T, d_c_bar: T, d_r_bar_u_bar: T"
    )
    attrs = "T: {float32}"
    compilation = CompilerSupport(compiled=False)

    @staticmethod
    def kernel(xp: ModuleType, x: Any, h: Any, w_ru: Any, w_c: Any, *rest: Any) -> Any:
        b_ru, b_c, r, u, c, dh = rest
        check_gru_shapes(x, h, w_ru, w_c, b_ru, b_c)
        check_equal_shapes(h, r, u, c, dh)
        dc = dh * (1 - u) * (1 - c * c)
        du = dh * (h - c) * u * (1 - u)
        through_c = dc @ w_c.T
        width = x.shape[1]
        dhr = through_c[:, width:]
        gates = xp.concatenate([dhr * h * r * (1 - r), du], axis=1)
        through_ru = gates @ w_ru.T
        dx = through_c[:, :width] + through_ru[:, :width]
        return dx, through_ru[:, width:] + dhr * r + dh * u, dc, gates

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        x, h, *_ = context.inputs
        return [x, h, h, gates_shape(h, 2)]
