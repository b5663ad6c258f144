"""Zeros for a tensor that a conditional does not use are dead where the tensor is dead.

A live zero in a branch that is not taken would reach a Merge together with the other gradient.
The predicate of the inner conditional is live everywhere: it does not pass the outer one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.ir.role import Role
from cfgraph.ops.opdef.op import role_of, strip_identities

X, W = np.array([0.2, 0.7]), np.array([1.5, 0.3])


def branches(b: cfgraph.Builder, v: Any, read: Callable[[], Any]) -> Any:
    """`(v * w if q else sin v) if p else w * cos v`"""
    p, q = b.placeholder("p", "bool", []), b.placeholder("q", "bool", [])

    def chosen(v: Any) -> Any:
        return b.cond(
            p,
            lambda: b.cond(q, lambda: b.Mul(v, read()), lambda: b.Sin(v)),
            lambda: b.Mul(read(), b.Cos(v)),
        )

    return chosen


def switch_on_what_is_live(graph: cfgraph.Graph) -> None:
    """Make the inner Switches read their predicate from outside the outer conditional."""
    cfgraph.lower(graph)
    for node in graph:
        before = strip_identities(node.inputs[1]) if role_of(node) is Role.SWITCH else None
        if before is not None and role_of(before.node) is Role.SWITCH:
            graph.set_input(node, 1, before.node.inputs[0])


def slopes(p: bool, q: bool) -> list[Any]:
    """The derivatives with respect to x and w."""
    if p:
        return [W, X] if q else [np.cos(X), 0 * W]
    return [-W * np.sin(X), np.cos(X)]


@pytest.mark.parametrize("shape", [[2], [None], None], ids=str)
@pytest.mark.parametrize("loop", [False, True])
def test_zeros_of_a_branch_not_taken_are_dead(shape: Any, loop: bool) -> None:
    b = cfgraph.Builder()
    x, w = b.placeholder("x", "float64", shape), b.placeholder("w", "float64", shape)
    chosen = branches(b, x, lambda: w)
    if loop:
        results = b.while_loop(
            lambda i, v: b.Less(i, 1),
            lambda i, v: (b.AddV2(i, 1), chosen(v)),
            (b.const(0), x),
            shape_invariants=(None, shape),
        )
        b.Identity(results[1], name="y")
    else:
        b.Identity(chosen(x), name="y")
    switch_on_what_is_live(b.graph)
    names = [str(name) for name in cfgraph.gradients(b.graph, ["y:0"], ["x:0", "w:0"])]
    for p, q in itertools.product([False, True], repeat=2):
        feeds = {"x:0": X, "w:0": W, "p:0": p, "q:0": q}
        assert np.allclose(cfgraph.Session(b.graph).run(names, feeds), slopes(p, q)), (p, q)


def test_zeros_of_a_variable_in_a_branch_not_taken_are_dead() -> None:
    b = cfgraph.Builder()
    x, w = b.placeholder("x", "float64", [2]), b.variable(W, name="w")
    b.Identity(branches(b, x, w.read)(x), name="y")
    b.initializer("init")
    switch_on_what_is_live(b.graph)
    (name,) = cfgraph.gradients(b.graph, ["y:0"], ["w:0"])
    for p, q in itertools.product([False, True], repeat=2):
        session = cfgraph.Session(b.graph, schedule="random")
        session.run(targets=["init"])
        have = session.run(str(name), {"x:0": X, "p:0": p, "q:0": q})
        assert np.allclose(have, slopes(p, q)[1]), (p, q)
