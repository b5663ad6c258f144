"""Stacks and arrays as lists: what they hold is what they held, or they stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph import Builder
from cfgraph.analysis.reachability import ancestors
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.library import copy_graph
from tests.passes.test_functionalize import counter_text, region_rejections

Array = tuple[Builder, Output, Output, Output]


def lowered_subgraph(b: Builder, *fetches: str) -> Graph:
    """What the fetches need, in primitives."""
    cfgraph.lower(b.graph)
    return copy_graph(b.graph, ancestors(b.graph, [b.graph[name] for name in fetches]))


def array() -> Array:
    """A builder with n, and an array of four elements."""
    b = Builder()
    n = b.placeholder("n", "int32", [])
    handle, flow = b.TensorArrayV3(
        4, dtype="float32", element_shape=[2], clear_after_read=False, name="array"
    )
    return b, n, handle, flow


def flow_loop(b: Builder, n: Output, flow: Output, body: Callable[[Output, Output], Output]) -> Any:
    """A loop in which a flow goes round n times."""
    zero = b.const(0)
    _, after = b.while_loop(
        lambda i, _: b.Less(i, n), lambda i, f: (i + 1, body(i, f)), [zero, flow]
    )
    return after


def row(b: Builder, i: Output) -> Output:
    """The element i of a test: [i, i]."""
    return b.Fill([2], b.Cast(i, DstT="float32"))


def checked_rejections(graph: Graph, fetches: list[str], feeds: dict[str, Any]) -> dict[str, str]:
    """Hold the values with regions to those without; the reasons against regions."""
    data = cfgraph.dumps(graph)
    plain = cfgraph.Session(cfgraph.loads(data)).run(fetches, feeds, allow_dead=True)
    session = cfgraph.Session(cfgraph.loads(data), jit="numpy", regions=True)
    found = session.run(fetches, feeds, allow_dead=True)
    for have, want in zip(found, plain, strict=True):
        assert (have is None) == (want is None)
        np.testing.assert_array_equal(have, want)
    return region_rejections(cfgraph.cluster(cfgraph.loads(data), fetches=fetches, regions=True))


@pytest.mark.parametrize("limit", [3, 4])
def test_a_gather_of_part_of_an_array_gives_that_part(limit: int) -> None:
    b, n, handle, flow = array()
    after = flow_loop(b, n, flow, lambda i, f: b.TensorArrayWriteV3(handle, i, row(b, i), f))
    b.TensorArrayGatherV3(
        handle, b.Range(0, limit, 1), after, dtype="float32", element_shape=[2], name="y"
    )
    assert checked_rejections(lowered_subgraph(b, "y"), ["y"], {"n": np.int32(4)}) == {}


@pytest.mark.parametrize(("rows", "stays"), [(3, True), (4, False)])
def test_an_array_that_is_filled_in_part_stays(rows: int, stays: bool) -> None:
    b, n, handle, flow = array()
    x = b.placeholder("x", "float32", [rows, 2])
    full = b.TensorArrayScatterV3(handle, b.Range(0, rows, 1), x, flow)
    _, total = b.while_loop(
        lambda i, _: b.Less(i, n),
        lambda i, t: (i + 1, t + b.TensorArrayReadV3(handle, i, full, dtype="float32")),
        [b.const(0), b.const([0.0, 0.0])],
        shape_invariants=[[], None],
    )
    b.Identity(total, name="y")
    feeds = {"n": np.int32(3), "x": np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)}
    reasons = checked_rejections(lowered_subgraph(b, "y"), ["y"], feeds)
    assert (reasons.get("array") == "list") is stays


def test_an_array_whose_flow_forks_behind_a_write_stays() -> None:
    b, n, handle, flow = array()
    first = b.TensorArrayWriteV3(handle, 0, row(b, n), flow)
    second = b.TensorArrayWriteV3(handle, 1, row(b, n * 2), first)
    with b.control(second):
        old = b.Identity(first)
    read = b.TensorArrayReadV3(handle, 1, old, dtype="float32")
    _, doubled = b.while_loop(
        lambda i, _: b.Less(i, n), lambda i, t: (i + 1, t * 2.0), [b.const(0), b.const([1.0, 1.0])]
    )
    b.Add(read, doubled, name="y")
    assert (
        checked_rejections(lowered_subgraph(b, "y"), ["y"], {"n": np.int32(4)})["array"] == "list"
    )


def test_an_array_that_two_nodes_write_on_from_one_state_stays() -> None:
    b, n, handle, flow = array()
    first, second = (b.TensorArrayWriteV3(handle, i, row(b, n), flow) for i in (0, 1))
    with b.control(first):
        both = b.Identity(second)
    after = flow_loop(b, n, both, lambda i, f: b.TensorArrayWriteV3(handle, i + 2, row(b, i), f))
    b.TensorArrayGatherV3(handle, b.Range(0, 4, 1), after, dtype="float32", name="y")
    assert (
        checked_rejections(lowered_subgraph(b, "y"), ["y"], {"n": np.int32(2)})["array"] == "list"
    )


def test_what_is_read_before_the_next_write_may_be_read_from_the_old_flow() -> None:
    b, n, handle, flow = array()
    begun = b.TensorArrayWriteV3(handle, 0, row(b, n), flow)

    def body(i: Output, f: Output) -> Output:
        before = b.TensorArrayReadV3(handle, i, f, dtype="float32")
        return b.TensorArrayWriteV3(handle, i + 1, before * 2.0, f)

    after = flow_loop(b, n, begun, body)
    b.TensorArrayGatherV3(
        handle, b.Range(0, 4, 1), after, dtype="float32", element_shape=[2], name="y"
    )
    assert checked_rejections(lowered_subgraph(b, "y"), ["y"], {"n": np.int32(3)}) == {}


@pytest.mark.parametrize("p", [False, True])
def test_what_waits_for_an_array_is_dead_where_the_array_was(p: bool) -> None:
    b = Builder()
    n, p_ = b.placeholder("n", "int32", []), b.placeholder("p", "bool", [])
    size = b.Identity(b.Switch(n, p_)[1])
    handle, flow = b.TensorArrayV3(size, dtype="float32", element_shape=[2], name="array")
    one = b.Identity(flow)
    for i in (0, 1):
        one = b.TensorArrayWriteV3(handle, b.Identity(size - size + i), b.const([1.0, 2.0]), one)
    _, total = b.while_loop(lambda i, _: b.Less(i, n), lambda i, t: (i + 1, t * 2), [n - 2, n])
    b.TensorArrayReadV3(handle, 1, one, dtype="float32", name="y")
    with b.control(handle):
        b.Identity(total, name="z")
    graph = lowered_subgraph(b, "y", "z")
    feeds = {"n": np.int32(2), "p": np.bool_(p)}
    assert "array" not in checked_rejections(graph, ["y", "z"], feeds)


def stacked() -> tuple[Builder, Output, Output]:
    """A builder with n, and a stack."""
    b = Builder()
    n = b.placeholder("n", "int32", [])
    return b, n, b.StackV2(100, elem_type="float32", name="stack")


def pushes(b: Builder, stack: Output, begin: Output) -> Any:
    """A loop that pushes three times."""
    _, last = b.while_loop(
        lambda i, _: b.Less(i, 3), lambda i, x: (i + 1, b.StackPushV2(stack, x + 1.0)), [0, begin]
    )
    return last


def pops(b: Builder, stack: Output, begin: Output) -> Any:
    """A loop that pops three times."""

    def body(i: Output, t: Output) -> tuple[Output, Output]:
        return i + 1, t * 10.0 + b.Reshape(
            b.StackPopV2(stack, elem_type="float32"), b.const([], "int32")
        )

    _, total = b.while_loop(lambda i, _: b.Less(i, 3), body, [0, begin])
    return total


def test_what_waits_for_a_stack_and_its_handles_still_can() -> None:
    graph = cfgraph.loads(counter_text("Mul(y_switch:1, y_switch:1)").encode(), "graph")
    (found,) = cfgraph.gradients(graph, ys=["out"], xs=["x"])
    assert found is not None
    stack = next(node for node in graph if node.op == "StackV2")
    graph.add("Identity", graph["n"], controls=[stack], name="z")
    handle = next(node for node in graph if node.op == "StackPushV2").inputs[0].node
    assert handle.op == "Enter"
    graph.add_control(graph["y_more"], handle)
    feeds = {"n": np.int32(2), "x": np.float32([1, 1.5])}
    assert checked_rejections(graph, [found, "z"], feeds) == {}


def test_a_stack_that_one_loop_pushes_to_and_pops_from_stays() -> None:
    b, n, stack = stacked()

    def body(i: Output, x: Output) -> tuple[Output, Output]:
        push = b.StackPushV2(stack, x + 1.0)
        with b.control(push):
            pop = b.StackPopV2(stack, elem_type="float32")
        return i + 1, b.Reshape(pop, b.const([], "int32")) * 2.0

    _, y = b.while_loop(lambda i, _: b.Less(i, n), body, [0, 1.0])
    b.Identity(y, name="y")
    assert (
        checked_rejections(lowered_subgraph(b, "y"), ["y"], {"n": np.int32(3)})["stack"] == "list"
    )


def test_a_stack_whose_loops_are_in_one_that_goes_round_stays() -> None:
    b, n, stack = stacked()

    def body(i: Output, x: Output) -> tuple[Output, Output]:
        return i + 1, pops(b, stack, pushes(b, stack, x))

    _, y = b.while_loop(lambda i, _: b.Less(i, n), body, [0, 1.0])
    b.Identity(y, name="y")
    assert (
        checked_rejections(lowered_subgraph(b, "y"), ["y"], {"n": np.int32(2)})["stack"] == "list"
    )


def test_a_stack_that_is_pushed_behind_the_loop_that_pops_stays() -> None:
    b, _, stack = stacked()
    b.Identity(pushes(b, stack, pops(b, stack, b.const(1.0))), name="y")
    reasons = region_rejections(
        cfgraph.cluster(lowered_subgraph(b, "y"), fetches=["y"], regions=True)
    )
    assert reasons["stack"] == "list"


@pytest.mark.parametrize("op", ["StackV2", "StackPushV2", "StackPopV2"])
def test_a_stack_of_which_a_node_is_fetched_stays(op: str) -> None:
    graph = cfgraph.loads(counter_text("Mul(y_switch:1, y_switch:1)").encode(), "graph")
    (found,) = cfgraph.gradients(graph, ys=["out"], xs=["x"])
    assert found is not None
    node = next(node for node in graph if node.op == op)
    report = cfgraph.cluster(graph, fetches=[found, node.name], regions=True)
    assert "list" in region_rejections(report).values()
    assert node.name in graph
