"""Derivatives that people asked for in public, where TensorFlow had none, as commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import cfgraph

RANDOM = np.random.default_rng(0)
W, V = (RANDOM.normal(size=shape).astype("f") for shape in ((4, 3), (3, 2)))
X = RANDOM.normal(size=(1, 4)).astype("f")
MEAN, VARIANCE = np.array([0.1, 0.2, 0.3], "f"), np.array([0.5, 0.6, 0.7], "f")
IMAGE = np.arange(1.0, 5.0, dtype="f").reshape(1, 2, 2, 1)


class Report(NamedTuple):
    """A graph, the options of its derivative, inputs, and the values in Python."""

    source: str
    build: Callable[[Any], Any]
    options: tuple[str, ...]
    feeds: dict[str, Any]
    expected: Any


def batch_norm(b: Any) -> Any:
    d = b.MatMul(b.placeholder("x", "float32", [None, 4]), W)
    training = b.placeholder("training", "bool", [])
    mean, variance = b.cond(
        training,
        lambda: (b.Mean(d, [0]), b.Mean(b.Square(b.Sub(d, b.Mean(d, [0]))), [0])),
        lambda: (b.Identity(MEAN), b.Identity(VARIANCE)),
    )
    return b.Mul(b.Sub(d, mean), b.Rsqrt(variance))


def leaky_layers(b: Any) -> Any:
    x = b.placeholder("x", "float32", [None, 4])
    return b.MatMul(b.LeakyRelu(b.MatMul(x, W), alpha=0.3), V)


def rotated(b: Any) -> Any:
    x = b.placeholder("x", "float32", [1, 2, 2, 1])
    return b.ReverseV2(b.Transpose(x, [0, 2, 1, 3]), [2])


def dilated(b: Any) -> Any:
    x = b.placeholder("x", "float32", [1, 2, 2, 1])
    apart = b.SpaceToBatchND(x, [2, 2], [[0, 0], [0, 0]])
    return b.BatchToSpaceND(b.Square(apart), [2, 2], [[0, 0], [0, 0]])


def convolved(b: Any) -> Any:
    """The sum of the cubes of x[i] + 2 x[i+1]."""
    x = b.placeholder("x", "float32", [1, 1, 3, 1])
    weights = np.array([1, 2], "f").reshape(1, 2, 1, 1)
    y = b.Conv2D(x, weights, strides=[1, 1, 1, 1], padding="VALID")
    return b.Sum(b.Mul(b.Square(y), y), [0, 1, 2, 3])


BLOCK = np.array([[1, 2], [2, 4]], "f")
# 6 y times the weights of y = [3 + 4, 2 - 2] at x = [3, 2, -1]
CURVED = np.zeros((3, 3), "f")
CURVED[:2, :2] = 6 * 7 * BLOCK
SLOPES = np.where(X @ W > 0, 1, 0.3)[0]
JACOBIAN = ("--jacobian", "--rows-in-flight", "3")

REPORTS = [
    Report(
        "tensorflow#25469: no converter for Switch",
        batch_norm,
        ("--jacobian", "--per-example"),
        {"x": X, "training": np.False_},
        (W / np.sqrt(VARIANCE)).T[None],
    ),
    Report(
        "tensorflow#36256: LeakyRelu",
        leaky_layers,
        JACOBIAN,
        {"x": X},
        ((W * SLOPES) @ V).T.reshape(1, 2, 1, 4),
    ),
    Report(
        "tensorflow#57705: rotated image",
        rotated,
        JACOBIAN,
        {"x": IMAGE},
        np.stack([np.rot90(row.reshape(2, 2), 3).ravel() for row in np.eye(4)], 1),
    ),
    Report("tensorflow#33919: dilation", dilated, JACOBIAN, {"x": IMAGE}, np.diag([2, 4, 6, 8])),
    Report(
        "tensorflow#38391: Hessian of a convolution",
        convolved,
        ("--hessian",),
        {"x": np.array([3, 2, -1], "f").reshape(1, 1, 3, 1)},
        CURVED,
    ),
]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.source.split(":")[0])
def test_a_reported_derivative_has_its_value(report: Report, command: Any, tmp_path: Path) -> None:
    b = cfgraph.Builder()
    b.Identity(report.build(b), name="y")
    path, out = tmp_path / "graph.pb", tmp_path / "out.pb"
    cfgraph.save(b.graph, path)
    done = command("grad", path, *report.options, "--ys", "y", "--xs", "x", "-o", out)
    assert done.code == 0, done.err
    graph = cfgraph.load(out)
    (name,) = [name for name in graph.nodes if name in ("jacobian/y/x", "hessian/x/x")]
    value = cfgraph.Session(graph).run(
        [f"{name}:0"], {f"{k}:0": v for k, v in report.feeds.items()}
    )[0]
    np.testing.assert_allclose(value.ravel(), np.ravel(report.expected), rtol=1e-4, atol=1e-5)
