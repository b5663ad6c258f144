"""The gradient of TensorFlow's LSTM: value, size, and memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np

import cfgraph
from benchmarks.gradients import saved_values
from benchmarks.running import GRAPHS
from cfgraph.passes.widen import widen

BATCH, UNITS = 32, 256


def feeds(steps: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {
        "W:0": (random.standard_normal((2 * UNITS, 4 * UNITS)) * 0.05).astype(np.float32),
        "x:0": random.standard_normal((steps, BATCH, UNITS)).astype(np.float32),
    }


def with_gradient() -> tuple[cfgraph.Graph, str]:
    graph = cfgraph.load(GRAPHS / "lstm.pb")
    (name,) = cfgraph.gradients(graph, ["loss:0"], ["W:0"])
    assert name is not None
    return graph, name


def test_the_gradient_is_that_of_tensorflow_in_no_more_nodes_and_stacks() -> None:
    graph, name = with_gradient()
    tensorflow_graph = cfgraph.load(GRAPHS / "lstm_grad.pb")
    inputs = feeds(5)
    have = cfgraph.Session(graph).run(["loss:0", name], inputs)
    want = cfgraph.Session(tensorflow_graph).run(["loss:0", "dW:0"], inputs)
    assert have[0] == want[0]
    assert np.allclose(have[1], want[1], 1e-5, 1e-6)
    assert len(graph) <= len(tensorflow_graph)
    assert saved_values(graph) <= saved_values(tensorflow_graph)


def test_a_step_takes_the_memory_of_what_it_saves_and_no_more() -> None:
    graph, name = with_gradient()
    session = cfgraph.Session(graph)

    def peak(steps: int) -> int:
        inputs = feeds(steps)
        session.run(name, inputs)
        tracemalloc.start()
        session.run(name, inputs)
        results = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return results

    # the first runs also fill what later ones keep
    for _ in range(2):
        session.run(name, feeds(2))
    # the products of 12 steps are added together: the second sum is there from the 13th on
    each = (peak(24) - peak(16)) / 8
    state, joined = BATCH * UNITS * 4, 2 * BATCH * UNITS * 4
    # six activations, the row of the input, and the input of the product
    assert each <= 1.03 * (7 * state + joined)


def test_a_product_with_its_hessian_is_the_slope_of_the_gradient() -> None:
    graph, name = with_gradient()
    widen(graph)
    graph.add("Placeholder", name="v", dtype=graph.tensor("W:0").dtype)
    product = graph.add("Mul", graph.tensor(name), graph["v"])
    axes = graph["Const"]
    dot = graph.add("Sum", product, axes, name="dot")
    (second,) = cfgraph.gradients(graph, [f"{dot.name}:0"], ["W:0"])
    assert second is not None
    inputs = {key: value.astype(np.float64) for key, value in feeds(3).items()}
    direction = np.random.default_rng(1).standard_normal(inputs["W:0"].shape)
    session = cfgraph.Session(graph)
    (have,) = session.run([second], {**inputs, "v:0": direction})
    step = 1e-5
    ends = [
        session.run(name, {**inputs, "W:0": inputs["W:0"] + sign * step * direction})[0]
        for sign in (1, -1)
    ]
    want = (ends[0] - ends[1]) / (2 * step)
    assert np.abs(have - want).max() < 1e-6 * np.abs(want).max()
