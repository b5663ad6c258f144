"""LSTMs with their gradients: as a loop, unrolled, and with layers on several GPUs."""

from __future__ import annotations

from typing import Any

from cfgraph.build.builder import Builder
from cfgraph.ir.graph import Graph
from cfgraph.passes.derivatives import gradients


def lstm(units: int, batch: int) -> Graph:
    """The loop of an LSTM: inputs of ones, `length` of them, and the sum of the last state."""
    b = Builder()
    length = b.placeholder("length", "int32", [])
    weights = b.placeholder("weights", "float32", [2 * units, 4 * units])
    inputs = b.Fill(b.Pack([length, b.const(batch), b.const(units)]), b.const(1.0, "float32"))
    state = b.Fill(b.const([batch, units]), b.const(0.0, "float32"))

    def body(i: Any, h: Any, c: Any) -> Any:
        x = b.GatherV2(inputs, i, b.const(0))
        return b.AddV2(i, b.const(1)), *lstm_cell(b, x, h, c, weights)

    shapes = [[], [batch, units], [batch, units]]
    start = [b.const(0), state, state]
    _, h, _ = b.while_loop(lambda i, h, c: b.Less(i, length), body, start, shape_invariants=shapes)
    b.Sum(h, b.const([0, 1]), name="loss")
    return b.graph


def unrolled_lstm(units: int, batch: int, steps: int) -> Graph:
    """The graph of `lstm` without a loop: a copy of the cell per step."""
    b = Builder()
    weights = b.placeholder("weights", "float32", [2 * units, 4 * units])
    sizes = b.Pack([b.const(steps), b.const(batch), b.const(units)])
    inputs = b.Fill(sizes, b.const(1.0, "float32"))
    h: Any = b.Fill(b.const([batch, units]), b.const(0.0, "float32"))
    c: Any = h
    for step in range(steps):
        x = b.GatherV2(inputs, b.const(step), b.const(0))
        h, c = lstm_cell(b, x, h, c, weights)
    b.Sum(h, b.const([0, 1]), name="loss")
    return b.graph


def layered_lstm(gpus: int, *, layers: int, units: int, batch: int, parallel: int) -> Graph:
    """A loop of LSTM layers, divided among GPUs; a layer reads the one below in each iteration.

    `weights0` and so on are the weights of the layers, `length` is the number of steps.
    """
    b = Builder()
    devices = [f"/device:GPU:{layer * gpus // layers}" for layer in range(layers)]
    weights, states = [], []
    for layer, device in enumerate(devices):
        with b.device(device):
            shape = [2 * units, 4 * units]
            weights.append(b.placeholder(f"weights{layer}", "float32", shape))
            states += [b.Fill(b.const([batch, units]), b.const(0.0, "float32")) for _ in "hc"]
    with b.device(devices[0]):
        x = b.Fill(b.const([batch, units]), b.const(1.0, "float32"))
    with b.device("/device:CPU:0"):
        length, start = b.placeholder("length", "int32", []), b.const(0)

    def body(i: Any, *before: Any) -> list[Any]:
        after, below = [], x
        for layer, device in enumerate(devices):
            with b.device(device):
                h, c = before[2 * layer : 2 * layer + 2]
                below, c = lstm_cell(b, below, h, c, weights[layer])
                after += [below, c]
        with b.device("/device:CPU:0"):
            return [b.AddV2(i, b.const(1)), *after]

    def cond(i: Any, *states: Any) -> Any:
        with b.device("/device:CPU:0"):
            return b.Less(i, length)

    results = b.while_loop(cond, body, [start, *states], parallel_iterations=parallel)
    with b.device(devices[-1]):
        b.Sum(results[2 * layers - 1], b.const([0, 1]), name="loss")
    return b.graph


def lstm_cell(b: Builder, x: Any, h: Any, c: Any, weights: Any) -> tuple[Any, Any]:
    """The next states of an LSTM."""
    z = b.MatMul(b.ConcatV2([x, h], b.const(1)), weights)
    enter, forget, leave, new = b.Split(b.const(1), z, num_split=4)
    c = b.AddV2(b.Mul(b.Sigmoid(forget), c), b.Mul(b.Sigmoid(enter), b.Tanh(new)))
    return b.Mul(b.Sigmoid(leave), b.Tanh(c)), c


def with_gradient(graph: Graph, *, layers: int | None = None, swap_memory: bool = False) -> Graph:
    """The graph with the gradient of its loss, in the node `gradient`, or one for each layer."""
    suffixes = [""] if layers is None else [str(layer) for layer in range(layers)]
    xs = [f"weights{suffix}:0" for suffix in suffixes]
    made = gradients(graph, ys=["loss:0"], xs=xs, swap_memory=swap_memory)
    for suffix, dx in zip(suffixes, made, strict=True):
        graph.add("Identity", graph.tensor(str(dx)), name=f"gradient{suffix}")
    return graph
