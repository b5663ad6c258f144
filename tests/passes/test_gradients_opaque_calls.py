"""Gradients of gradients of functional graphs: zeros where TensorFlow has zeros, None elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.passes.derivatives import DerivativeRequest, derivatives
from tests.passes.functional_graphs import graph_of

FEEDS = {"x:0": 3.0, "a:0": 1.5, "z:0": 0.75}
INPUTS = "".join(f"{name[0]} = Placeholder() {{dtype=float32, shape=[]}}\n" for name in FEEDS)
NAMES = ("x", "a", "z")
ARGUMENTS = "x: float32, a: float32, z: float32"
RETURNS = "rx: float32, ra: float32, rz: float32"
CONSTANTS = """
  one = Const() {dtype=int32, value=int32[]: 1}
  two = Const() {dtype=float32, value=float32[]: 2.0}
"""
COND = f"""
function cond(i: int32, {ARGUMENTS}) -> (r: bool) {{
  three = Const() {{dtype=int32, value=int32[]: 3}}
  less = Less(i, three:output:0) {{T=int32}}
  return r = less:z:0
}}
"""
NONE = [None, None, None]


def body(steps: str, results: str) -> str:
    """A function of a counter and three numbers; `results` are a new value for each number."""
    returns = zip(("rx", "ra", "rz"), results.split(), strict=True)
    lines = "".join(f"  return {name} = {value}\n" for name, value in returns)
    return (
        f"function body(i: int32, {ARGUMENTS}) -> (ri: int32, {RETURNS}) {{{CONSTANTS}"
        f"  next = AddV2(i, one:output:0) {{T=int32}}\n{steps}  return ri = next:z:0\n{lines}}}\n"
    )


def while_graph(steps: str, results: str, tail: str = "y = Identity(while:1) {T=float32}") -> str:
    start = "zero = Const() {dtype=int32, value=int32[]: 0}\n"
    loop = "while = StatelessWhile(zero, x, a, z) {cond=@cond, body=@body}\n"
    return f"{INPUTS}{start}{loop}{tail}\n{COND}{body(steps, results)}"


def call_graph(steps: str, result: str) -> str:
    arguments = "x: float32, a: float32"
    function = f"function f({arguments}) -> (r: float32) {{{CONSTANTS}{steps}  return r = {result}"
    types = "Tin=(float32, float32), Tout=(float32)"
    return f"{INPUTS}y = PartitionedCall(x, a) {{{types}, f=@f}}\n{function}\n}}\n"


def op(name: str, kind: str, *inputs: str) -> str:
    return f"  {name} = {kind}({', '.join(inputs)}) {{T=float32}}\n"


DOUBLED = op("v", "Mul", "x", "two:output:0")
# what TensorFlow returns for the gradients of orders 1 and 2 by x, a, and z
RECORDED = {
    "multiplied by a constant": (
        while_graph(DOUBLED, "v:z:0 a z"),
        [[8, 0, 0], [0, 0, 0], [0, 0, 0]],
    ),
    "added to itself": (while_graph(op("v", "AddV2", "x", "x"), "v:z:0 a z"), [[8, 0, 0], NONE]),
    "negated": (while_graph(op("v", "Neg", "x"), "v:y:0 a z"), [[-1, 0, 0], NONE]),
    "multiplied by an input": (
        while_graph(op("v", "Mul", "x", "a"), "v:z:0 a z"),
        [[3.375, 20.25, 0], [6.75, 33.75, 0], [9, 36, 0]],
    ),
    "an unread product": (
        while_graph(op("v", "Neg", "x") + op("w", "Mul", "z", "a"), "v:y:0 a w:z:0"),
        [[-1, 0, 0], [0, 0, 0], [0, 0, 0]],
    ),
    "times an input after the loop": (
        while_graph(DOUBLED, "v:z:0 a z", "y = Mul(while:1, a) {T=float32}"),
        [[12, 24, 0], [8, 8, 0], [0, 0, 0]],
    ),
    "a call that multiplies": (
        call_graph(DOUBLED + op("w", "AddV2", "v:z:0", "a"), "w:z:0"),
        [[2, 1, None], [0, 0, None]],
    ),
    "a call that adds": (call_graph(op("v", "AddV2", "x", "a"), "v:z:0"), [[1, 1, None], NONE]),
}


@pytest.mark.parametrize("case", RECORDED.values(), ids=RECORDED.keys())
def test_orders_of_a_functional_node_have_zeros_where_tensorflow_has(case: Any) -> None:
    text, expected = case
    graph = graph_of(text)
    orders = derivatives(
        graph, DerivativeRequest(["y:0"], [f"{name}:0" for name in NAMES], order=len(expected))
    )
    session = cfgraph.Session(graph)
    feeds = {name: np.float32(value) for name, value in FEEDS.items()}
    found = [
        [None if name is None else session.run(name, feeds)[0] for name in order.names]
        for order in orders
    ]
    assert found == expected


def looped(tf: Any, step: Any, x: Any, *others: Any) -> Any:
    """The first variable of a loop of three iterations."""
    start = (tf.constant(0), x, *others)
    return tf.while_loop(lambda i, *v: i < 3, lambda i, *v: (i + 1, *step(*v)), start)[1]


# y as a function of x, a, and z in TensorFlow, for each case above
PROGRAMS = {
    "multiplied by a constant": lambda tf, x, a, z: looped(
        tf, lambda v, a, z: (2 * v, a, z), x, a, z
    ),
    "added to itself": lambda tf, x, a, z: looped(tf, lambda v, a, z: (v + v, a, z), x, a, z),
    "negated": lambda tf, x, a, z: looped(tf, lambda v, a, z: (-v, a, z), x, a, z),
    "multiplied by an input": lambda tf, x, a, z: looped(
        tf, lambda v, a, z: (v * a, a, z), x, a, z
    ),
    "an unread product": lambda tf, x, a, z: looped(tf, lambda v, a, z: (-v, a, z * a), x, a, z),
    "times an input after the loop": lambda tf, x, a, z: (
        looped(tf, lambda v, a, z: (2 * v, a, z), x, a, z) * a
    ),
    "a call that multiplies": lambda tf, x, a, z: tf.function(lambda v, a: 2 * v + a)(x, a),
    "a call that adds": lambda tf, x, a, z: tf.function(lambda v, a: v + a)(x, a),
}


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_tensorflow_has_the_recorded_values(name: str) -> None:
    tf = pytest.importorskip("tensorflow", reason="needs the extra `interop`")
    _, expected = RECORDED[name]
    v1 = tf.compat.v1
    v1.enable_control_flow_v2()
    found = []
    with v1.Graph().as_default():
        xs = [v1.placeholder(tf.float32, [], name) for name in NAMES]
        ys = [PROGRAMS[name](tf, *xs)]
        for _ in expected:
            found.append(v1.gradients(ys, xs))
            ys = [dx for dx in found[-1] if dx is not None]
        with v1.Session() as session:
            values = [
                [None if dx is None else session.run(dx, FEEDS) for dx in order] for order in found
            ]
    assert values == expected
