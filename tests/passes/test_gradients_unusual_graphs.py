"""Gradients of graphs in forms that no front end writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import Unsupported
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.shape_inference import infer_node_shapes
from cfgraph.passes.gradients import context

X, W = 0.7, 0.3


def placeholder(graph: cfgraph.Graph, name: str, dtype: Any = dtypes.float64) -> Output:
    return graph.add("Placeholder", name=name, dtype=dtype, shape=Shape([])).output()


def gradients_at(graph: cfgraph.Graph, xs: list[str], feeds: dict[str, Any]) -> list[Any]:
    names = [str(name) for name in cfgraph.gradients(graph, ["y:0"], xs)]
    return cfgraph.Session(graph, schedule="random").run(names, feeds)


def three_times(b: cfgraph.Builder, step: Any, x: Any) -> Any:
    results = b.while_loop(
        lambda i, v: b.Less(i, 3), lambda i, v: (b.AddV2(i, 1), step(v)), (b.const(0), x)
    )
    return results[1]


def test_a_loop_whose_merges_list_the_back_edge_first_has_the_same_gradient() -> None:
    b = cfgraph.Builder()
    x, w = b.placeholder("x", "float64", []), b.placeholder("w", "float64", [])
    b.Identity(three_times(b, lambda v: b.Mul(v, w), x), name="y")
    cfgraph.lower(b.graph)
    for merge in [node for node in b.graph if node.op == "Merge"]:
        first, second = merge.inputs
        b.graph.set_input(merge, 0, second)
        b.graph.set_input(merge, 1, first)
    have = gradients_at(b.graph, ["x:0", "w:0"], {"x:0": X, "w:0": W})
    assert np.allclose(have, [W**3, 3 * X * W**2])


@pytest.mark.parametrize("flag", [True, False])
def test_a_loop_that_a_control_edge_holds_in_a_branch_is_differentiated_in_it(flag: bool) -> None:
    b = cfgraph.Builder()
    x, p = b.placeholder("x", "float64", []), b.placeholder("p", "bool", [])
    done = three_times(b, lambda v: b.Mul(v, v), x)
    b.Identity(done, name="done")
    graph = b.graph
    cfgraph.lower(graph)
    switch = graph.add("Switch", graph["p"], graph["p"], name="switch")
    pivots = [graph.add("Identity", Output(switch, port), name="pivot") for port in range(2)]
    for node in [node for node in graph if node.op == "Enter"]:
        graph.add_control(node, pivots[1])
    second = graph.add("Sin", graph["x"], controls=[pivots[0]])
    graph.add("Identity", graph.add("Merge", second, graph["done"]), name="y")
    have = gradients_at(graph, ["x:0"], {"x:0": X, p.name: flag})
    assert np.allclose(have, 8 * X**7 if flag else np.cos(X))


@pytest.mark.parametrize("flag", [True, False])
def test_where_two_inputs_of_a_merge_are_live_only_the_one_that_it_took_has_a_gradient(
    flag: bool,
) -> None:
    graph = cfgraph.Graph()
    x, w = placeholder(graph, "x"), placeholder(graph, "w")
    switch = graph.add("Switch", w, placeholder(graph, "p", dtypes.bool_))
    graph.add("Merge", graph.add("Sin", x), graph.add("Sin", Output(switch, 1)), name="merge")
    graph.add("Identity", graph["merge"], name="y")
    names = [str(name) for name in cfgraph.gradients(graph, ["y:0"], ["x:0", "w:0"])]
    for seed in range(5):
        session = cfgraph.Session(graph, schedule="random", schedule_seed=seed)
        feeds = {"x:0": X, "w:0": W, "p:0": flag}
        dx, dw, taken = session.run([*names, "merge:1"], feeds)
        assert np.allclose([dx, dw], [0, np.cos(W)] if taken else [np.cos(X), 0])


def test_what_reads_a_tensor_of_unknown_type_has_no_gradient() -> None:
    graph = cfgraph.Graph()
    x = placeholder(graph, "x")
    graph.add("Mul", x, graph.add("Strange", x, name="u"), name="y", T=dtypes.float64)
    with pytest.raises(Unsupported, match="reads u:0, whose type is unknown") as caught:
        cfgraph.gradients(graph, ["y:0"], ["x:0"])
    assert caught.value.node == "y"


def test_what_comes_from_x_by_an_unknown_op_alone_is_refused_too() -> None:
    graph = cfgraph.Graph()
    strange = graph.add("Strange", placeholder(graph, "x"), name="u")
    graph.add("Sin", strange, name="y", T=dtypes.float64)
    with pytest.raises(Unsupported, match="reads u:0, whose type is unknown"):
        cfgraph.gradients(graph, ["y:0"], ["x:0"])


def test_a_body_may_be_as_long_as_it_likes() -> None:
    b = cfgraph.Builder()
    x, p = b.placeholder("x", "float64", []), b.placeholder("p", "bool", [])

    def step(v: Any) -> Any:
        v = b.cond(p, lambda: b.Sin(v), lambda: b.Cos(v))
        for _ in range(1500):
            v = b.Neg(v)
        return v

    b.Identity(three_times(b, step, x), name="y")
    (have,) = gradients_at(b.graph, ["x:0"], {"x:0": X, p.name: True})
    assert np.isclose(have, np.cos(X) * np.cos(np.sin(X)) * np.cos(np.sin(np.sin(X))))


def test_what_is_no_number_has_no_gradient() -> None:
    b = cfgraph.Builder()
    i = b.placeholder("i", "int32", [])
    b.Sin(b.Cast(i, DstT="float32"), name="y")
    assert cfgraph.gradients(b.graph, ["y:0"], ["i:0"]) == [None]


@pytest.mark.parametrize(
    ("xs", "stops", "wanted"),
    [
        (["s:1", "x:0"], [], [[0], [1, 0]]),
        (["s:1"], [], [None]),
        (["s:1", "x:0"], ["s:1"], [None, None]),
    ],
)
def test_an_unused_sibling_output_has_zeros_where_the_gradient_continues(
    xs: list[str], stops: list[str], wanted: list[list[float] | None]
) -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float64", [2])
    first, _ = b.Split(b.const(0), x, num_split=2, name="s")
    b.Identity(first, name="y")
    names = cfgraph.gradients(b.graph, ["y:0"], xs, stop_gradients=stops)
    session, feeds = cfgraph.Session(b.graph), {"x:0": [X, W]}
    have = [None if name is None else session.run([name], feeds)[0].tolist() for name in names]
    assert have == wanted


def test_a_node_that_is_read_many_times_is_inferred_once(monkeypatch: pytest.MonkeyPatch) -> None:
    inferred: list[Node] = []

    def infer(node: Node, *known: Any) -> Any:
        inferred.append(node)
        return infer_node_shapes(node, *known)

    monkeypatch.setattr(context, "infer_node_shapes", infer)
    graph = cfgraph.Graph()
    x = placeholder(graph, "x")
    static = context.StaticInfo(graph)
    part = graph.add("Identity", x)
    total = graph.add("AddN", *[part] * 20)
    for node in (part, total):
        static.infer(node)
    assert static.shape(total.output()) == Shape([])
    assert inferred == [part, total]


def test_a_declared_shape_refines_an_inferred_one() -> None:
    graph = cfgraph.Graph()
    x = graph.add("Placeholder", name="x", dtype=dtypes.float32, shape=UNKNOWN_SHAPE)
    static = context.StaticInfo(graph)
    node = graph.add("Identity", x)
    static.infer(node)
    static.set_shape(node.output(), Shape([2, None]))
    static.set_shape(node.output(), Shape([None, 3]))
    assert static.shape(node.output()) == Shape([2, 3])
