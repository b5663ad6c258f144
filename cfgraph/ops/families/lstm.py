"""Fused LSTM cells and LSTM sequences, with their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.kernels.array_namespace import in_float32
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

GATES = "the gates of the cell"


def lstm_cell_gradient(
    g: GradientBuilder, node: Node, *output_grads: Output | None
) -> InputGradients:
    """Gradients of LSTMBlockCell."""
    x, _, h, w, *_ = node.inputs
    values = [node.output(port) for port in range(6)]
    backprop = same_attrs(
        g,
        "LSTMBlockCellGrad",
        node,
        *node.inputs,
        *values,
        *_state_gradients(g, node, output_grads),
    )
    state, gates, *peepholes = (backprop.node.output(port) for port in range(5))
    inputs_grad = g.MatMul(gates, w, transpose_b=True)
    inputs = g.ConcatV2(x, h, int32_constant(g, 1))
    return (
        lambda: _split_columns(g, inputs_grad, x, h)[0],
        state,
        lambda: _split_columns(g, inputs_grad, x, h)[1],
        lambda: g.MatMul(inputs, gates, transpose_a=True),
        *peepholes,
        lambda: g.BiasAddGrad(gates),
    )


def lstm_sequence_gradient(
    g: GradientBuilder, node: Node, *output_grads: Output | None
) -> InputGradients:
    """Gradients of BlockLSTM and BlockLSTMV2."""
    op = node.op.replace("LSTM", "LSTMGrad")
    values = [node.output(port) for port in range(7)]
    backprop = same_attrs(
        g, op, node, *node.inputs, *values, *_state_gradients(g, node, output_grads)
    )
    return None, *(backprop.node.output(port) for port in range(8))


def _state_gradients(
    g: GradientBuilder, node: Node, output_grads: tuple[Output | None, ...]
) -> tuple[Output, Output]:
    """The gradients of cell state and output, with zeros for a missing one."""
    _, state, *gates, output = output_grads
    reject_gradients(node, [output_grads[0], *gates], GATES)
    present = state or output
    assert present is not None
    return state or g.ZerosLike(present), output or g.ZerosLike(present)


def _split_columns(
    g: GradientBuilder, columns: Output, x: Output, h: Output
) -> tuple[Output, Output]:
    """Split columns into the part of the input and the part of the previous output."""
    widths = g.known_shape(x)[1:] + g.known_shape(h)[1:]
    if widths.is_full:
        sizes = int32_constant(g, list(widths))
    else:
        second_dims = [
            g.Slice(g.shape(tensor), int32_constant(g, [1]), int32_constant(g, [1]))
            for tensor in (x, h)
        ]
        sizes = g.ConcatV2(*second_dims, int32_constant(g, 0))
    pieces = g.SplitV(columns, sizes, int32_constant(g, 1), num_split=2).node
    return pieces.output(0), pieces.output(1)


_LSTM_STATE = "x: T, cs_prev: T, h_prev: T, w: T, wci: T, wcf: T, wco: T, b: T"
_LSTM_OUTPUTS = "i: T, cs: T, f: T, o: T, ci: T, co: T, h: T"
_LSTM_TYPES = "use_peephole: bool = false, T: {float16, float32}"


class LstmCell(NamedTuple):
    """An LSTM cell's parameters; `order` is the order of the four gates in the columns of `w`."""

    xp: ModuleType
    w: Any
    peepholes: tuple[Any, Any, Any] | None
    b: Any
    forget_bias: float
    clip: float
    order: str

    def gates(self, x: Any, h: Any) -> dict[str, Any]:
        """The pre-activations of the input, forget, cell, and output gates, by letter."""
        activations = self.xp.concatenate([x, h], axis=1) @ self.w
        activations = activations if self.b is None else activations + self.b
        return dict(zip(self.order, self.xp.split(activations, 4, axis=1), strict=True))

    def forward(self, x: Any, cs_prev: Any, h_prev: Any) -> tuple[Any, ...]:
        """One forward step: i, cs, f, o, ci, co, h."""
        xp, gate = self.xp, self.gates(x, h_prev)
        wci, wcf, wco = self.peepholes or (0, 0, 0)
        i = sigmoid(xp, gate["i"] + cs_prev * wci)
        f = sigmoid(xp, gate["f"] + self.forget_bias + cs_prev * wcf)
        ci = xp.tanh(gate["c"])
        cs = ci * i + cs_prev * f
        if self.clip > 0:
            cs = xp.clip(cs, -self.clip, self.clip)
        o = sigmoid(xp, gate["o"] + cs * wco)
        co = xp.tanh(cs)
        return i, cs, f, o, ci, co, o * co

    def backward(self, cs_prev: Any, values: Sequence[Any], cs_grad: Any, h_grad: Any) -> Any:
        """One backward step: the gradients of cs_prev, of the gates, and of the peepholes."""
        xp, (i, cs, f, o, ci, co) = self.xp, values
        do = o * (1 - o) * h_grad * co
        dcs = (1 - co * co) * h_grad * o + cs_grad
        if self.peepholes:
            dcs = dcs + do * self.peepholes[2]
        dci, df = (1 - ci * ci) * dcs * i, f * (1 - f) * dcs * cs_prev
        di = i * (1 - i) * dcs * ci
        cs_prev_grad = dcs * f
        if self.peepholes:
            cs_prev_grad = cs_prev_grad + di * self.peepholes[0] + df * self.peepholes[1]
            sums = tuple(xp.sum(g * c, axis=0) for g, c in ((di, cs_prev), (df, cs_prev), (do, cs)))
        else:
            sums = (xp.zeros(cs.shape[1], dtype=cs.dtype),) * 3
        gates = {"i": di, "f": df, "c": dci, "o": do}
        return cs_prev_grad, xp.concatenate([gates[g] for g in self.order], axis=1), sums


def sigmoid(xp: ModuleType, x: Any) -> Any:
    """The logistic function 1 / (1 + exp(-x))."""
    return 1 / (1 + xp.exp(-x))


class LstmOp(Op, abstract=True):
    """An op that computes with an LstmCell."""

    attrs = "forget_bias: float = 1.0, cell_clip: float = 3.0, " + _LSTM_TYPES
    compilation = CompilerSupport(compiled=False)
    order: ClassVar[str] = "icfo"
    adapter = in_float32

    @classmethod
    def cell(cls, node: Node, xp: ModuleType, w: Any, peepholes: Any, b: Any) -> LstmCell:
        """The LSTM cell with the attributes of a node."""
        declared = cls.parsed().attrs
        bias = node.attr("forget_bias") if "forget_bias" in declared else 0.0
        clip = node.attr("cell_clip") if "cell_clip" in declared else 0.0
        used = tuple(peepholes) if node.attr("use_peephole") else None
        return LstmCell(xp, w, used, b, bias, clip, cls.order)


def check_peephole_vectors(peepholes: Any) -> None:
    """Raise OpError unless all peepholes are vectors; unused ones may have any size."""
    for name, peephole in zip(("wci", "wcf", "wco"), peepholes, strict=True):
        if peephole.ndim != 1:
            raise OpError(f"{name} must be a vector, but it has shape {list(peephole.shape)}")


def check_lstm_shapes(x: Any, cs_prev: Any, h_prev: Any, w: Any, peepholes: Any, b: Any) -> None:
    """Raise OpError unless the inputs of one step fit the weights and the peepholes, if any."""
    if cs_prev.ndim != 2:
        raise OpError(f"cs_prev must be a matrix, but it has shape {list(cs_prev.shape)}")
    batch, units = cs_prev.shape
    for name, peephole in zip(("wci", "wcf", "wco"), peepholes, strict=False):
        if peephole.shape != (units,):
            message = f"{name} must have the shape [{units}], but it has {list(peephole.shape)}"
            raise OpError(message)
    rows = x.shape[-1] + units
    fits = (
        x.shape[-2] == batch
        and h_prev.shape == cs_prev.shape
        and w.shape == (rows, 4 * units)
        and b.shape == (4 * units,)
    )
    if not fits:
        raise OpError(
            f"shapes do not fit: x {list(x.shape)}, cs_prev {list(cs_prev.shape)}, "
            f"h_prev {list(h_prev.shape)}, w {list(w.shape)}, b {list(b.shape)}"
        )


def check_equal_shapes(state: Any, *values: Any) -> None:
    """Raise OpError unless gates, states, and their gradients have one shape."""
    shapes = [list(value.shape) for value in values]
    if any(shape != list(state.shape) for shape in shapes):
        raise OpError(f"all values of a step must have shape {list(state.shape)}, got {shapes}")


def gates_shape(state: Shape, count: int) -> Shape:
    """The shape of the columns of `count` gates, for the shape of a state."""
    if state.rank != 2:
        return UNKNOWN_SHAPE
    batch, units = state
    return Shape((batch, None if units is None else count * units))


class LSTMBlockCell(LstmOp):
    """One step of a long short-term memory (LSTM) cell."""

    gradient = staticmethod(lstm_cell_gradient)
    signature = f"{_LSTM_STATE} -> {_LSTM_OUTPUTS}"

    @classmethod
    def kernel(
        cls, xp: ModuleType, node: Node, /, x: Any, cs: Any, h: Any, w: Any, *rest: Any
    ) -> Any:
        *peepholes, b = rest
        if not cs.size:
            raise OpError(f"cs_prev is empty: it has shape {list(cs.shape)}")
        check_peephole_vectors(peepholes)
        check_lstm_shapes(x, cs, h, w, peepholes if node.attr("use_peephole") else (), b)
        return cls.cell(node, xp, w, peepholes, b).forward(x, cs, h)

    shape = staticmethod(lambda context: [context.inputs[1]] * 7)


class LSTMBlockCellGrad(LstmOp):
    """Gradient of LSTMBlockCell with respect to state, gates, and peepholes."""

    signature = (
        f"{_LSTM_STATE}, i: T, cs: T, f: T, o: T, ci: T, co: T, cs_grad: T, h_grad: T -> "
        "cs_prev_grad: T, dicfo: T, wci_grad: T, wcf_grad: T, wco_grad: T"
    )
    attrs = "use_peephole: bool, T: {float16, float32}"

    @classmethod
    def kernel(cls, xp: ModuleType, use_peephole: bool, node: Node, /, *inputs: Any) -> Any:
        x, cs_prev, h_prev, w, *rest = inputs
        peepholes, b, values, (cs_grad, h_grad) = rest[:3], rest[3], rest[4:10], rest[10:]
        check_peephole_vectors(peepholes)
        check_lstm_shapes(x, cs_prev, h_prev, w, peepholes if use_peephole else (), b)
        check_equal_shapes(cs_prev, *values, cs_grad, h_grad)
        cell = cls.cell(node, xp, w, peepholes, b)
        cs_prev_grad, gates, sums = cell.backward(cs_prev, values, cs_grad, h_grad)
        if not use_peephole:
            sums = tuple(xp.zeros_like(peephole) for peephole in peepholes)
        return (cs_prev_grad, gates, *sums)

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        state, peephole = context.inputs[1], context.inputs[4]
        return [state, gates_shape(state, 4), *[peephole] * 3]


class BlockLSTM(LstmOp):
    """LSTM over a sequence [time, batch, input]; outputs are zero from `seq_len_max` on."""

    gradient = staticmethod(lstm_sequence_gradient)
    signature = f"seq_len_max: const int64, {_LSTM_STATE} -> {_LSTM_OUTPUTS}"

    @classmethod
    def kernel(
        cls, xp: ModuleType, node: Node, /, length: Any, x: Any, cs: Any, h: Any, w: Any, *rest: Any
    ) -> Any:
        check_sequence_length(length, x)
        check_lstm_shapes(x, cs, h, w, rest[:3], rest[3])
        cell = cls.cell(node, xp, w, rest[:3], rest[3])
        steps = []
        for t in range(int(length)):
            steps.append(cell.forward(x[t], cs, h))
            cs, h = steps[-1][1], steps[-1][6]
        zeros = xp.zeros_like(cs)
        rows = [*steps, *[(zeros,) * 7] * (len(x) - len(steps))]
        if not rows:
            return (xp.zeros((0, *cs.shape), dtype=cs.dtype),) * 7
        return tuple(xp.stack(column) for column in zip(*rows, strict=True))

    @classmethod
    def shape(cls, context: InferenceContext) -> Sequence[Shape]:
        x, b = context.inputs[1], context.inputs[8]
        if x.rank != 3:
            return [UNKNOWN_SHAPE] * 7
        units = None if not b.dims or b.dims[0] is None else b.dims[0] // 4
        return [x[:2] + Shape((units,))] * 7


def check_sequence_length(length: Any, x: Any) -> None:
    """Raise OpError unless `x` is a sequence of at least `length` steps."""
    if x.ndim != 3:
        raise OpError("x must be 3D")
    if length > len(x) or length < 0:
        raise OpError(f"seq_len_max must be in [0, {len(x)}], got {length}")


class BlockLSTMV2(BlockLSTM):
    """BlockLSTM with gate order input, forget, cell, output, and without forget bias."""

    attrs = "cell_clip: float = 0.0, " + _LSTM_TYPES
    order = "ifco"


class BlockLSTMGrad(LstmOp):
    """Gradient of BlockLSTM."""

    signature = (
        f"seq_len_max: const int64, {_LSTM_STATE}, {_LSTM_OUTPUTS}, cs_grad: T, h_grad: T -> "
        "x_grad: T, cs_prev_grad: T, h_prev_grad: T, w_grad: T, wci_grad: T, wcf_grad: T, "
        "wco_grad: T, b_grad: T"
    )
    attrs = "use_peephole: bool, T: {float16, float32}"

    @classmethod
    def kernel(cls, xp: ModuleType, node: Node, /, *inputs: Any) -> Any:
        length, x, cs_prev, h_prev, w, *rest = inputs
        check_sequence_length(length, x)
        check_lstm_shapes(x, cs_prev, h_prev, w, rest[:3], rest[3])
        peepholes, (i, cs, f, o, ci, co, h) = rest[:3], rest[4:11]
        check_equal_shapes(i, *rest[5:])
        if i.shape != (len(x), *cs_prev.shape):
            raise OpError(f"i has shape {list(i.shape)}, expected {[len(x), *cs_prev.shape]}")
        cell, width = cls.cell(node, xp, w, peepholes, None), x.shape[2]
        cs_back, h_back = xp.zeros_like(cs_prev), xp.zeros_like(h_prev)
        w_grad, b_grad = xp.zeros_like(w), xp.zeros_like(rest[3])
        sums = tuple(xp.zeros_like(p) for p in peepholes)
        x_grads = [xp.zeros_like(x[0])] * len(x)
        for t in reversed(range(int(length))):
            before = (cs[t - 1], h[t - 1]) if t else (cs_prev, h_prev)
            values = (i[t], cs[t], f[t], o[t], ci[t], co[t])
            cs_back, gates, peephole_grads = cell.backward(
                before[0], values, rest[11][t] + cs_back, rest[12][t] + h_back
            )
            inputs_grad = gates @ w.T
            x_grads[t], h_back = inputs_grad[:, :width], inputs_grad[:, width:]
            w_grad = w_grad + xp.concatenate([x[t], before[1]], axis=1).T @ gates
            b_grad = b_grad + xp.sum(gates, axis=0)
            sums = tuple(a + b for a, b in zip(sums, peephole_grads, strict=True))
        return (xp.stack(x_grads), cs_back, h_back, w_grad, *sums, b_grad)

    shape = staticmethod(lambda context: list(context.inputs[1:9]))


class BlockLSTMGradV2(BlockLSTMGrad):
    """Gradient of BlockLSTMV2."""

    order = "ifco"
