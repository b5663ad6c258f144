"""The graphs in fixtures/graphs, written by TensorFlow, run and return the right values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.runtime.session import Session

GRAPHS = Path(__file__).parents[2] / "fixtures" / "graphs"
STEPS = 5


def run(name: str, fetches: list[str], feeds: dict[str, Any] | None = None) -> list[Any]:
    return Session(cfgraph.load(GRAPHS / name)).run(fetches, feeds)


@pytest.mark.parametrize(
    ("name", "fetch", "feeds", "value"),
    [
        ("counter.pb", "count:0", {}, 20000),
        ("counter.pb", "count:0", {"n": 7}, 7),
        ("nested.pb", "sum:0", {}, 10000),
        ("cond_functional.pb", "out:0", {"x": 1, "y": 2, "z": 5}, 6),
        ("cond_functional.pb", "out:0", {"x": 3, "y": 2, "z": 5}, 4),
        ("while_functional.pb", "out:0", {"n": 10}, 10),
        ("eight_devices.pb", "out7:0", {"n": 20}, 20),
        ("eight_devices_barrier.pb", "out0:0", {"n": 20}, 20),
    ],
)
def test_a_graph_returns_its_value(
    name: str, fetch: str, feeds: dict[str, Any], value: int
) -> None:
    assert run(name, [fetch], feeds) == [value]


def lstm(x: Any, w: Any) -> Any:
    """The sum of the last hidden state, in float64."""
    c = h = np.zeros((x.shape[1], w.shape[1] // 4))
    for row in x.astype(np.float64):
        z = np.concatenate([row, h], 1) @ w.astype(np.float64)
        forget_gate, input_gate, new, output_gate = np.split(z, 4, 1)
        c = sigmoid(forget_gate) * c + sigmoid(input_gate) * np.tanh(new)
        h = sigmoid(output_gate) * np.tanh(c)
    return h.sum()


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def fed() -> dict[str, Any]:
    random = np.random.default_rng(1)
    return {
        "W:0": (random.standard_normal((512, 1024)) * 0.05).astype(np.float32),
        "x:0": random.standard_normal((STEPS, 32, 256)).astype(np.float32),
    }


def test_the_lstm_is_that_of_numpy() -> None:
    feeds = fed()
    (loss,) = run("lstm.pb", ["loss:0"], feeds)
    assert loss == pytest.approx(lstm(feeds["x:0"], feeds["W:0"]), rel=1e-4)


def test_the_gradient_of_the_lstm_is_that_of_finite_differences() -> None:
    feeds = fed()
    loss, slope = run("lstm_grad.pb", ["loss:0", "dW:0"], feeds)
    assert loss == pytest.approx(lstm(feeds["x:0"], feeds["W:0"]), rel=1e-4)
    random = np.random.default_rng(2)
    for direction in (slope, random.standard_normal(slope.shape)):
        unit = direction / np.linalg.norm(direction)
        step = 1e-4
        above, below = (
            lstm(feeds["x:0"], feeds["W:0"] + sign * step * unit) for sign in (1.0, -1.0)
        )
        along = float((slope.astype(np.float64) * unit).sum())
        assert (above - below) / (2 * step) == pytest.approx(along, rel=1e-3, abs=1e-3)
