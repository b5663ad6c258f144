"""Jacobians and Hessians are those of jax, and the slopes of finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph

jax = pytest.importorskip("jax", reason="needs the extra `xla`")

W = np.array([[0.5, -0.8], [0.3, 0.9]])
X = np.array([[0.4, -0.7], [1.1, 0.2], [-0.3, 0.6]])


def straight(x: Any, xp: Any) -> Any:
    return xp.exp(xp.tanh(x @ W.astype(x.dtype))) * x


def branch(x: Any, xp: Any, i: int) -> Any:
    return xp.sin(x) * x if i % 2 else straight(x, xp)


def looped(x: Any, xp: Any) -> Any:
    """Four steps, every second of which takes the other branch."""
    if xp is np:
        for i in range(4):
            x = branch(x, xp, i)
        return x
    return jax.lax.fori_loop(
        0,
        4,
        lambda i, v: jax.lax.cond(
            i % 2 == 1, lambda u: branch(u, xp, 1), lambda u: branch(u, xp, 0), v
        ),
        x,
    )


def straight_graph(b: cfgraph.Builder, x: Any) -> Any:
    w = b.const(W, "float64" if x.dtype.name == "float64" else "float32")
    return b.Mul(b.Exp(b.Tanh(b.MatMul(x, w))), x)


def looped_graph(b: cfgraph.Builder, x: Any) -> Any:
    def body(i: Any, v: Any) -> Any:
        is_odd = b.Equal(b.FloorMod(i, 2), 1)
        return b.AddV2(i, 1), b.cond(
            is_odd, lambda: b.Mul(b.Sin(v), v), lambda: straight_graph(b, v)
        )

    return b.while_loop(lambda i, v: b.Less(i, 4), body, [b.const(0), x])[1]


CASES: dict[str, Any] = {"straight": (straight, straight_graph), "looped": (looped, looped_graph)}


def derivative(case: str, kind: Any, dtype: str, mode: str) -> Any:
    """The Jacobian, or the Hessian of the sum, of a case in cfgraph."""
    b = cfgraph.Builder()
    y = CASES[case][1](b, b.placeholder("x", dtype, [None, 2]))
    b.Identity(y, name="y")
    ((name,),) = kind(b.graph, "y:0", "x:0", mode=mode, rows_in_flight=4)
    return cfgraph.Session(b.graph).run([name], {"x:0": X.astype(dtype)})[0]


@pytest.mark.parametrize("mode", ["reverse", "forward"])
@pytest.mark.parametrize("case", CASES)
def test_jacobians_are_those_of_jax(case: str, mode: str) -> None:
    expected = jax.jacobian(lambda x: CASES[case][0](x, jax.numpy))(X.astype(np.float32))
    found = derivative(case, cfgraph.jacobian, "float32", mode)
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_hessians_are_those_of_jax(case: str) -> None:
    # jax differentiates such a loop backward, and its gradient forward
    expected = jax.hessian(lambda x: CASES[case][0](x, jax.numpy).sum())(X.astype(np.float32))
    found = derivative(case, cfgraph.hessian, "float32", "auto")
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
@pytest.mark.parametrize("case", CASES)
def test_jacobians_are_slopes_of_the_values(case: str, mode: str) -> None:
    found, step = derivative(case, cfgraph.jacobian, "float64", mode), 1e-6
    slopes = np.empty((*X.shape, *X.shape))
    for place in np.ndindex(X.shape):
        move = np.zeros(X.shape)
        move[place] = step
        ahead, behind = (CASES[case][0](X + sign * move, np) for sign in (1, -1))
        slopes[(..., *place)] = (ahead - behind) / (2 * step)
    np.testing.assert_allclose(found, slopes, rtol=1e-6, atol=1e-8)
