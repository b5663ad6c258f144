"""A step of a gated recurrent unit as one op, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops import recurrent_gradients
from cfgraph.ops.inference import InferenceContext
from cfgraph.ops.op import Op, OpError
from cfgraph.ops.recurrent import sigmoid

_STATE = "x: T, h_prev: T, w_ru: T, w_c: T, b_ru: T, b_c: T"


def check_step(x: Any, h: Any, w_ru: Any, w_c: Any, b_ru: Any, b_c: Any) -> None:
    """Refuse a step whose shapes do not fit the weights."""
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
        message = f"shapes of x, h_prev, w_ru, w_c, b_ru, b_c do not fit: {shapes}"
        raise OpError(message)


class GRUBlockCell(Op):
    """One step: the reset gate, the update gate, the candidate and the new state."""

    gradient = staticmethod(recurrent_gradients.gated)

    signature = f"{_STATE} -> r: T, u: T, c: T, h: T"
    attrs = "T: {float32}"
    compiled = False

    @staticmethod
    def kernel(
        xp: ModuleType, x: Any, h: Any, w_ru: Any, w_c: Any, b_ru: Any, b_c: Any
    ) -> tuple[Any, ...]:
        check_step(x, h, w_ru, w_c, b_ru, b_c)
        r, u = xp.split(sigmoid(xp, xp.concatenate([x, h], axis=1) @ w_ru + b_ru), 2, axis=1)
        c = xp.tanh(xp.concatenate([x, h * r], axis=1) @ w_c + b_c)
        return r, u, c, u * h + (1 - u) * c

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        return [context.inputs[1]] * 4


class GRUBlockCellGrad(Op):
    """Gradient of GRUBlockCell with respect to the input, the state and the gates."""

    signature = (
        f"{_STATE}, r: T, u: T, c: T, d_h: T -> d_x: T, d_h_prev: T, d_c_bar: T, d_r_bar_u_bar: T"
    )
    attrs = "T: {float32}"
    compiled = False

    @staticmethod
    def kernel(xp: ModuleType, x: Any, h: Any, w_ru: Any, w_c: Any, *rest: Any) -> Any:
        b_ru, b_c, r, u, c, dh = rest
        check_step(x, h, w_ru, w_c, b_ru, b_c)
        dc = dh * (1 - u) * (1 - c * c)
        du = dh * (h - c) * u * (1 - u)
        through_c = dc @ w_c.T
        wide = x.shape[1]
        dhr = through_c[:, wide:]
        gates = xp.concatenate([dhr * h * r * (1 - r), du], axis=1)
        through_ru = gates @ w_ru.T
        dx = through_c[:, :wide] + through_ru[:, :wide]
        return dx, through_ru[:, wide:] + dhr * r + dh * u, dc, gates

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        x, h, both = context.inputs[0], context.inputs[1], UNKNOWN_SHAPE
        if h.rank == 2:
            batch, units = h
            both = Shape((batch, None if units is None else 2 * units))
        return [x, h, h, both]
