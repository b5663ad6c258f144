from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import Unsupported


def gradients_of(
    b: cfgraph.Builder, y: str, xs: list[str], feeds: dict[str, Any], **options: Any
) -> list[Any]:
    names = cfgraph.gradients(b.graph, [y], xs, **options)
    return cfgraph.Session(b.graph).run([name for name in names if name], feeds)


@pytest.mark.parametrize("flag", [True, False])
def test_zeros_for_the_other_branch_do_not_start_one_more_iteration(flag: bool) -> None:
    b = cfgraph.Builder()
    x, w = b.placeholder("x", "float64", []), b.placeholder("w", "float64", [])
    flags = b.placeholder("flag", "bool", [])

    def body(i: Any, v: Any) -> Any:
        return b.AddV2(i, 1), b.cond(flags, lambda: b.Mul(w, w), lambda: b.Sin(v))

    b.Identity(b.while_loop(lambda i, v: b.Less(i, 3), body, (b.const(0), x))[1], name="y")
    feeds = {"x:0": 0.5, "w:0": 2.0, "flag:0": flag}
    have = gradients_of(b, "y:0", ["x:0", "w:0"], feeds)
    slope = np.cos(0.5) * np.cos(np.sin(0.5)) * np.cos(np.sin(np.sin(0.5)))
    assert np.allclose(have, [0, 4] if flag else [slope, 0])


def test_a_loop_that_does_not_run_passes_the_gradient_through() -> None:
    b = cfgraph.Builder()
    x, w = b.placeholder("x", "float64", []), b.placeholder("w", "float64", [])
    results = b.while_loop(
        lambda i, v: b.Less(i, 0), lambda i, v: (b.AddV2(i, 1), b.Mul(v, w)), (b.const(0), x)
    )
    b.Identity(results[1], name="y")
    assert gradients_of(b, "y:0", ["x:0", "w:0"], {"x:0": 2.0, "w:0": 3.0}) == [1.0, 0.0]


def saved(graph: cfgraph.Graph) -> int:
    """The number of values that loops save."""
    return sum(node.op == "StackPushV2" for node in graph)


def test_what_is_the_same_in_all_iterations_is_not_saved() -> None:
    b = cfgraph.Builder()
    x, w = b.placeholder("x", "float64", []), b.placeholder("w", "float64", [])

    def body(i: Any, v: Any, same: Any) -> Any:
        return b.AddV2(i, 1), b.Mul(b.Mul(v, w), same), same

    results = b.while_loop(lambda i, v, s: b.Less(i, 3), body, (b.const(0), x, w))
    b.Identity(results[1], name="y")
    assert gradients_of(b, "y:0", ["x:0"], {"x:0": 1.0, "w:0": 1.0}) == [1.0]
    assert saved(b.graph) == 0


def test_a_value_that_several_gradients_need_is_saved_once() -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float64", [])
    results = b.while_loop(lambda v: b.Less(v, 100.0), lambda v: b.Mul(v, v), x)
    b.Identity(results, name="y")
    assert gradients_of(b, "y:0", ["x:0"], {"x:0": 2.0}) == [1024.0]
    assert saved(b.graph) == 1


def test_only_the_shape_is_saved_of_a_value_whose_shape_is_needed() -> None:
    b = cfgraph.Builder()
    x, w = b.placeholder("x", "float64", [None]), b.placeholder("w", "float64", [None])
    results = b.while_loop(
        lambda i, v: b.Less(i, 3),
        lambda i, v: (b.AddV2(i, 1), b.AddV2(v, w)),
        (b.const(0), x),
        shape_invariants=(None, [None]),
    )
    b.Identity(results[1], name="y")
    feeds = {"x:0": [1.0, 2.0], "w:0": [3.0]}
    have = gradients_of(b, "y:0", ["x:0", "w:0"], feeds)
    assert np.array_equal(have[0], [1, 1])
    assert np.array_equal(have[1], [6])
    kinds = {node.attr("T").name for node in b.graph if node.op == "StackPushV2"}
    assert kinds == {"int32"}


def test_a_tensor_inside_a_loop_is_refused_and_its_exits_are_named() -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float64", [])
    b.while_loop(lambda v: b.Less(v, 100.0), lambda v: b.Mul(v, v), x)
    cfgraph.lower(b.graph)
    inside = next(node for node in b.graph if node.op == "Mul")
    before = cfgraph.dumps(b.graph)
    with pytest.raises(Unsupported, match="is inside the loop") as caught:
        cfgraph.gradients(b.graph, [f"{inside.name}:0"], ["x:0"])
    assert "Exit" in str(caught.value.hint)
    assert cfgraph.dumps(b.graph) == before


def test_what_cannot_be_differentiated_leaves_the_graph_as_it_is() -> None:
    b = cfgraph.Builder()
    x = b.placeholder("x", "float64", [])
    results = b.while_loop(lambda v: b.Less(v, 100.0), lambda v: b.Mul(v, b.IgammaGradA(v, v)), x)
    b.Identity(results, name="y")
    cfgraph.lower(b.graph)
    before = cfgraph.dumps(b.graph)
    with pytest.raises(Unsupported, match="IgammaGradA has no gradient"):
        cfgraph.gradients(b.graph, ["y:0"], ["x:0"])
    assert cfgraph.dumps(b.graph) == before


def test_the_same_graph_gets_the_same_gradients_byte_for_byte() -> None:
    def written() -> bytes:
        b = cfgraph.Builder()
        x, w = b.placeholder("x", "float64", []), b.placeholder("w", "float64", [])
        results = b.while_loop(
            lambda v: b.Less(v, 9.0),
            lambda v: b.cond(b.Less(w, v), lambda: v * w, lambda: v * v),
            x,
        )
        b.Identity(results, name="y")
        cfgraph.gradients(b.graph, ["y:0"], ["x:0", "w:0"])
        return cfgraph.dumps(b.graph)

    assert written() == written()


def test_a_case_of_two_branches_in_a_loop_is_differentiated() -> None:
    b = cfgraph.Builder()
    x, k = b.placeholder("x", "float64", []), b.placeholder("k", "int32", [])

    def body(i: Any, v: Any) -> Any:
        return b.AddV2(i, 1), b.case(k, [lambda: b.Mul(v, v), lambda: b.Sin(v)])

    b.Identity(b.while_loop(lambda i, v: b.Less(i, 2), body, (b.const(0), x))[1], name="y")
    names = cfgraph.gradients(b.graph, ["y:0"], ["x:0"])
    session = cfgraph.Session(b.graph)
    have = [session.run(names, {"x:0": 0.5, "k:0": np.int32(k)})[0] for k in range(2)]
    assert np.allclose(have, [4 * 0.5**3, np.cos(0.5) * np.cos(np.sin(0.5))])


def test_a_partitioned_graph_is_refused() -> None:
    b = cfgraph.Builder()
    with b.device("/cpu:0"):
        x = b.placeholder("x", "float64", [])
    with b.device("/cpu:1"):
        b.Sin(x, name="y")
    cfgraph.place(b.graph, devices="cpu:0-1")
    cfgraph.partition(b.graph)
    with pytest.raises(Unsupported, match="partitioned"):
        cfgraph.gradients(b.graph, ["y:0"], ["x:0"])
