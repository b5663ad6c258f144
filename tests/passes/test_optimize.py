"""Each rule of `optimize` applies where its proof holds, and nowhere else."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph
from tests.analysis.graph_text import graph

PREDICATES = ("p", "q")


def ops(found: Graph) -> dict[str, str]:
    return {node.name: node.op for node in found}


def runs(found: Graph, fetches: list[str], feeds: dict[str, Any]) -> list[list[Any]]:
    """The values of the fetches, None for dead ones, under all values of the predicates."""
    names = [name for name in PREDICATES if name in found]
    return [
        cfgraph.Session(found, engine="tokens").run(
            fetches,
            feeds | dict(zip(names, map(np.bool_, values), strict=True)),
            allow_dead=True,
        )
        for values in product([False, True], repeat=len(names))
    ]


def optimized(text: str, feeds: dict[str, Any] | None = None, **options: Any) -> Graph:
    """The optimized graph of a text, whose outputs have the same values and liveness."""
    before = graph(text)
    after = copy_graph(before)
    cfgraph.optimize(after, **options)
    fetches = [node.name for node in before if not node.uses and node.op != "NoOp"]
    expected, actual = (runs(item, fetches, feeds or {}) for item in (before, after))
    for want, have in zip(expected, actual, strict=True):
        for a, b in zip(want, have, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                assert a.dtype == b.dtype
                assert a.tobytes() == b.tobytes()
    return after


# -- constant folding --------------------------------------------------------------------------


def test_a_node_with_constant_inputs_is_folded() -> None:
    after = optimized("""
        a = Const() {dtype=float32, value=float32[]:2}
        b = Const() {dtype=float32, value=float32[2]:[3, 4]}
        m = Mul(a, b)
        y = Neg(m)
    """)
    assert ops(after) == {"y": "Const"}


BRANCH = """
    p = Placeholder() {dtype=bool, shape=[]}
    x = Placeholder() {dtype=float32, shape=[]}
    s = Switch(x, p)
    t = Identity(s:1)
"""


def test_a_constant_of_a_branch_stays_in_it() -> None:
    after = optimized(
        BRANCH
        + """
    a = Const(^t) {dtype=float32, value=float32[]:2}
    b = Const() {dtype=float32, value=float32[]:3}
    y = Mul(a, b)
    """,
        {"x": np.float32(5)},
    )
    assert ops(after)["y"] == "Const"
    assert [node.name for node in after["y"].controls] == ["t"]


def test_the_shape_of_a_branch_is_live_in_it() -> None:
    after = optimized(BRANCH + "n = Neg(t)\n    y = Shape(n)\n", {"x": np.float32(5)})
    assert ops(after)["y"] == "Const"
    # no control edge from a Switch says which side is live
    after = optimized(BRANCH + "y = Shape(s:1)\n", {"x": np.float32(5)})
    assert ops(after)["y"] == "Shape"


@pytest.mark.parametrize(
    "text",
    [
        # fails in a run, and only there
        """
        a = Const() {dtype=int32, value=int32[]:1}
        b = Const() {dtype=int32, value=int32[]:0}
        y = FloorDiv(a, b)
        """,
        # random, and stateful
        """
        a = Const() {dtype=int32, value=int32[1]:[2]}
        y = RandomUniform(a) {dtype=float32, seed=1, seed2=2}
        """,
        # large
        """
        a = Const() {dtype=int32, value=int32[2]:[1000, 1000]}
        b = Const() {dtype=float32, value=float32[]:1}
        y = Fill(a, b)
        """,
    ],
)
def test_a_node_is_not_folded(text: str) -> None:
    before = graph(text)
    assert not cfgraph.optimize(before)


def test_a_fed_constant_is_not_folded() -> None:
    text = """
        a = Const() {dtype=float32, value=float32[]:2}
        m = Neg(a)
        y = Neg(m)
    """
    after = graph(text)
    assert not cfgraph.optimize(after, feeds=["a"])
    after = graph(text)
    cfgraph.optimize(after, feeds=["m"])
    assert ops(after) == {"a": "Const", "m": "Neg", "y": "Neg"}
    assert cfgraph.Session(after).run(["y"], {"m": 7}) == [-7]


# -- common subexpressions ---------------------------------------------------------------------


def test_equal_nodes_become_one() -> None:
    after = optimized(
        """
        x = Placeholder() {dtype=float32, shape=[]}
        one = Const() {dtype=float32, value=float32[]:1}
        uno = Const() {dtype=float32, value=float32[]:1}
        a = AddV2(x, one)
        b = AddV2(uno, x)
        y = Mul(a, b)
        """,
        {"x": np.float32(3)},
    )
    assert ops(after) == {"x": "Placeholder", "one": "Const", "a": "AddV2", "y": "Mul"}


@pytest.mark.parametrize(
    "second",
    [
        "b = Neg(x, ^e)",
        'b = Neg(x) @"/device:CPU:1"',
        'b = Neg(x) {_gradient_op_type="Mine"}',
        "b = Abs(x)",
    ],
)
def test_nodes_that_differ_remain(second: str) -> None:
    found = graph(f"""
        x = Placeholder() {{dtype=float32, shape=[]}}
        e = NoOp()
        a = Neg(x)
        {second}
        y = Mul(a, b)
    """)
    assert not cfgraph.optimize(found, only=["cse"])


def test_readers_of_references_and_random_nodes_remain() -> None:
    found = graph("""
        v = VariableV2() {dtype=float32, shape=[]}
        one = Const() {dtype=float32, value=float32[]:1}
        a = Neg(v)
        add = AssignAdd(v, one, ^a) {T=float32}
        b = Neg(v, ^add)
        c = Neg(v)
        y = AddN(a, b, c)
        n = Const() {dtype=int32, value=int32[1]:[2]}
        r = RandomUniform(n) {dtype=float32}
        s = RandomUniform(n) {dtype=float32}
        z = Sub(r, s)
    """)
    assert not cfgraph.optimize(found)


def test_zero_and_negative_zero_remain() -> None:
    found = graph("""
        x = Placeholder() {dtype=float32, shape=[]}
        a = Const() {dtype=float32, value=float32[]:0}
        b = Const() {dtype=float32, value=float32[]:-0.0}
        c = RealDiv(x, a)
        d = RealDiv(x, b)
        y = Sub(c, d)
    """)
    assert not cfgraph.optimize(found)


# -- what stays --------------------------------------------------------------------------------


def test_fetches_remain_and_what_they_do_not_need_goes() -> None:
    found = graph("""
        x = Placeholder() {dtype=float32, shape=[]}
        a = Neg(x)
        b = Neg(x)
        y = Mul(a, b)
        z = Exp(y)
    """)
    report = cfgraph.optimize(found, fetches=["a", "b:0"], feeds=["x"])
    assert ops(found) == {"x": "Placeholder", "a": "Neg", "b": "Neg"}
    assert report.rules == {**dict.fromkeys(report.rules, 0), "prune": 2}


def test_an_unknown_rule_or_name_changes_nothing() -> None:
    found = graph("a = Const() {dtype=float32, value=float32[]:2}\ny = Neg(a)")
    with pytest.raises(cfgraph.UsageError, match="unknown rule 'folding'"):
        cfgraph.optimize(found, only=["folding"])
    with pytest.raises(cfgraph.UsageError, match="no rule remains"):
        cfgraph.optimize(found, only=["cse"], skip=["cse"])
    with pytest.raises(cfgraph.UsageError, match="no node 'z'"):
        cfgraph.optimize(found, fetches=["z"])
    assert ops(found) == {"a": "Const", "y": "Neg"}


def test_a_partitioned_graph_is_rejected() -> None:
    found = graph("""
        x = Placeholder() {dtype=float32, shape=[]}
        y = Neg(x)
    """)
    cfgraph.place(found, devices=["cpu:0", "cpu:1"], rules={"x": "cpu:0", "y": "cpu:1"})
    cfgraph.partition(found)
    with pytest.raises(cfgraph.Unsupported, match="partitioned"):
        cfgraph.optimize(found)
