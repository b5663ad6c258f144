"""Work on loop invariants runs once, and only if the loop does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.ir.graph import Graph
from tests.runtime.compiled.agreement import Pair
from tests.runtime.compiled.test_generated_code import source


def powers() -> Graph:
    """Products of x and the transposed square of w, n of them."""
    b = cfgraph.Builder()
    w, x = (b.placeholder(name, "float32", [3, 3]) for name in "wx")
    n = b.placeholder("n", "int32", [])

    def body(i: Any, v: Any) -> Any:
        return b.AddV2(i, 1), b.MatMul(v, b.Transpose(b.Mul(w, w), b.const([1, 0])))

    result = b.while_loop(lambda i, v: b.Less(i, n), body, (b.const(0), x))[1]
    b.Identity(result, name="y")
    return b.graph


def inner_loops() -> Graph:
    """A loop in a loop, whose body reshapes w to the shape s in each iteration."""
    b = cfgraph.Builder()
    w, s = b.placeholder("w", "float32", [None]), b.placeholder("s", "int32", [None])
    n, scalar = b.placeholder("n", "int32", []), b.const(np.zeros(0, np.int32))

    def inner_body(i: Any, v: Any) -> Any:
        total = b.Reshape(b.Sum(b.Reshape(w, s), b.const([0])), scalar)
        return b.AddV2(i, 1), b.AddV2(v, total)

    def body(j: Any, u: Any) -> Any:
        inner = b.while_loop(lambda i, v: b.Less(i, j), inner_body, (b.const(0), u))
        return b.AddV2(j, 1), inner[1]

    result = b.while_loop(lambda j, u: b.Less(j, n), body, (b.const(0), b.const(1.0)))[1]
    b.Identity(result, name="y")
    return b.graph


def test_invariant_work_of_a_body_is_in_its_first_iteration() -> None:
    lines = source(powers(), ["y:0"], ["w:0", "x:0", "n:0"]).splitlines()
    indents = [len(line) - len(line.lstrip()) for line in lines if "= k" in line or " * " in line]
    assert indents == [12, 12, 8]


@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_loop_with_invariant_work_gives_the_values_of_tokens(count: int) -> None:
    random = np.random.default_rng(0)
    w, x = random.standard_normal((2, 3, 3)).astype(np.float32)
    pair = Pair(powers)
    (y,) = pair.run(["y:0"], {"w:0": w, "x:0": x, "n:0": np.int32(count)})
    expected = x @ np.linalg.matrix_power((w * w).T, count)
    np.testing.assert_allclose(y, expected, rtol=1e-4)
    assert not pair.fallback


@pytest.mark.parametrize("count", [0, 1, 2, 3])
@pytest.mark.parametrize("size", [5, 6])
def test_an_error_of_invariant_work_names_the_first_iteration(count: int, size: int) -> None:
    pair = Pair(inner_loops)
    feeds = {"w:0": np.ones(6, np.float32), "s:0": np.int32([size]), "n:0": np.int32(count)}
    outcome = pair.run(["y:0"], feeds)
    if size == 6 or count < 2:
        assert outcome == [1 + 6 * (count * (count - 1) // 2)]
    else:
        assert outcome[4] == "/while[1]/while/body/while[0]"
    assert not pair.fallback
