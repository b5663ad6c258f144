"""Gradients of higher orders through inputs and outputs of TensorArrays."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import cfgraph
from tests.sampled import sampled

COUNT = 4
X = np.linspace(0.3, 1.2, COUNT)
W = np.float64(0.7)


def through_arrays() -> cfgraph.Graph:
    """y = sum of s_i², where s_i = s_(i-1) * w + x_i³: x is unstacked, all s_i are stacked."""
    b = cfgraph.Builder()
    x, w = b.placeholder("x", "float64", [COUNT]), b.placeholder("w", "float64", [])
    places = b.Range(0, COUNT, 1)
    array, flow = b.TensorArrayV3(COUNT, dtype="float64", clear_after_read=False)
    filled = b.TensorArrayScatterV3(array, places, x, flow)
    made, out = b.TensorArrayV3(COUNT, dtype="float64")

    def body(i: Any, s: Any, flow: Any) -> Any:
        twice, once = (b.TensorArrayReadV3(array, i, filled, dtype="float64") for _ in range(2))
        after = b.EnsureShape(b.AddV2(b.Mul(s, w), b.Mul(b.Square(twice), once)), shape=[])
        return b.AddV2(i, 1), after, b.TensorArrayWriteV3(made, i, after, flow)

    results = b.while_loop(
        lambda i, s, flow: b.Less(i, COUNT), body, (b.const(0), b.const(0.0, "float64"), out)
    )
    rows = b.TensorArrayGatherV3(made, places, results[2], dtype="float64", element_shape=[])
    b.Sum(b.Square(rows), [0], name="y")
    return b.graph


def by_x(x: np.ndarray) -> np.ndarray:
    """dy/dx, by the chain rule."""
    s, total = [], 0.0
    for value in x:
        total = total * W + value**3
        s.append(total)
    powers = np.array(
        [[W ** (j - i) if j >= i else 0.0 for j in range(COUNT)] for i in range(COUNT)]
    )
    slope: np.ndarray = 3 * x**2 * (powers @ (2 * np.array(s)))
    return slope


def differences(function: Any, x: np.ndarray) -> np.ndarray:
    """The derivative of the sum of a vector function, by central differences."""
    step = 1e-5
    results = [
        (function(x + step * unit) - function(x - step * unit)).sum() / (2 * step)
        for unit in np.eye(len(x))
    ]
    return np.array(results)


@functools.cache
def with_three_orders() -> tuple[bytes, list[str]]:
    """A graph with three orders of gradients, as a file, and their names."""
    graph, names = through_arrays(), ["y:0"]
    for _ in range(3):
        (name,) = cfgraph.gradients(graph, names[-1:], ["x:0"])
        names.append(str(name))
    return cfgraph.dumps(graph), names[1:]


@pytest.mark.parametrize("seed", [None, *sampled([1, 2, 3], 3)])
@pytest.mark.parametrize("devices", [None, "cpu:0,cpu:1,gpu:0"])
def test_an_array_has_gradients_of_any_order(seed: int | None, devices: str | None) -> None:
    data, names = with_three_orders()
    graph = cfgraph.loads(data)
    if devices is not None:
        cfgraph.place(graph, devices=devices, seed=seed or 0)
    order: dict[str, Any] = {} if seed is None else {"schedule": "random", "schedule_seed": seed}
    session = cfgraph.Session(graph, devices=devices, **order)
    have = session.run(names, {"x:0": X, "w:0": W})

    def by_x_twice(x: np.ndarray) -> np.ndarray:
        return differences(by_x, x)

    assert np.allclose(have[0], by_x(X), rtol=1e-12)
    assert np.allclose(have[1], by_x_twice(X), rtol=1e-8)
    assert np.allclose(have[2], differences(by_x_twice, X), rtol=1e-3)


def test_an_empty_array_of_a_loop_has_gradients_of_second_order() -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float64", [0])

    def body(i: Any, v: Any) -> Any:
        array, flow = b.TensorArrayV3(0, dtype="float64")
        places = b.Range(0, 0, 1)
        filled = b.TensorArrayScatterV3(array, places, b.Square(v), flow)
        after = b.TensorArrayGatherV3(array, places, filled, dtype="float64", element_shape=[])
        return b.AddV2(i, 1), b.EnsureShape(b.Mul(after, b.Sin(v)), shape=[0])

    result = b.while_loop(lambda i, v: b.Less(i, 2), body, (b.const(0), x))[1]
    b.Sum(result, [0], name="y")
    first = cfgraph.gradients(b.graph, ["y:0"], ["x:0"])
    second = cfgraph.gradients(b.graph, first, ["x:0"], unconnected="zero")
    values = cfgraph.Session(b.graph).run([*first, *second], {"x:0": np.zeros(0)})
    assert [value.shape for value in values] == [(0,), (0,)]
