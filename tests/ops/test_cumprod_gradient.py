from __future__ import annotations

import numpy as np

import cfgraph


def test_the_gradient_of_an_element_that_is_zero_is_zero_as_in_tensorflow() -> None:
    text = """
x = Placeholder() {dtype=float32, shape=[3]}
axis = Const() {dtype=int32, value=int32[]:0}
y = Cumprod(x, axis) {T=float32, Tidx=int32, exclusive=false, reverse=false}
"""
    graph = cfgraph.loads(text.encode(), "graph")
    (dx,) = cfgraph.gradients(graph, ["y:0"], ["x:0"])
    (value,) = cfgraph.Session(graph).run([dx], {"x:0": np.float32([2, 0, 3])})
    assert value.tolist() == [1, 0, 0]
