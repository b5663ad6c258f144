"""Stacks and TensorArrays as lists: equal contents, or rejection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph import Builder
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.library import copy_graph
from cfgraph.ir.traversal import ancestors
from tests.passes.test_functionalize import counter_text, region_rejections

Array = tuple[Builder, Output, Output, Output]


def lowered_subgraph(b: Builder, *fetches: str) -> Graph:
    """Return the ancestors of the fetches in lowered form."""
    cfgraph.lower(b.graph)
    return copy_graph(b.graph, ancestors(b.graph, [b.graph[name] for name in fetches]))


def array() -> Array:
    """Return a builder with n, and an array of four elements."""
    b = Builder()
    n = b.placeholder("n", "int32", [])
    handle, flow = b.TensorArrayV3(
        4, dtype="float32", element_shape=[2], clear_after_read=False, name="array"
    )
    return b, n, handle, flow


def flow_loop(b: Builder, n: Output, flow: Output, body: Callable[[Output, Output], Output]) -> Any:
    """Add a loop whose variable is a flow, with n iterations."""
    zero = b.const(0)
    _, after = b.while_loop(
        lambda i, _: b.Less(i, n), lambda i, f: (i + 1, body(i, f)), [zero, flow]
    )
    return after


def row(b: Builder, i: Output) -> Output:
    """Return element i of a test: [i, i]."""
    return b.Fill([2], b.Cast(i, DstT="float32"))


def checked_rejections(graph: Graph, fetches: list[str], feeds: dict[str, Any]) -> dict[str, str]:
    """Compare the values with and without regions; return the reasons against regions."""
    data = cfgraph.dumps(graph)
    plain = cfgraph.Session(cfgraph.loads(data)).run(fetches, feeds, allow_dead=True)
    session = cfgraph.Session(cfgraph.loads(data), jit="numpy", regions=True)
    values = session.run(fetches, feeds, allow_dead=True)
    for actual, expected in zip(values, plain, strict=True):
        assert (actual is None) == (expected is None)
        np.testing.assert_array_equal(actual, expected)
    return region_rejections(cfgraph.cluster(cfgraph.loads(data), fetches=fetches, regions=True))


@pytest.mark.parametrize("limit", [3, 4])
def test_a_partial_gather_reads_part_of_an_array(limit: int) -> None:
    b, n, handle, flow = array()
    after = flow_loop(b, n, flow, lambda i, f: b.TensorArrayWriteV3(handle, i, row(b, i), f))
    b.TensorArrayGatherV3(
        handle, b.Range(0, limit, 1), after, dtype="float32", element_shape=[2], name="y"
    )
    assert checked_rejections(lowered_subgraph(b, "y"), ["y"], {"n": np.int32(4)}) == {}


@pytest.mark.parametrize("is_folded", [False, True])
@pytest.mark.parametrize(("rows", "stays"), [(3, True), (4, False)])
def test_a_partially_filled_array_is_rejected(rows: int, stays: bool, is_folded: bool) -> None:
    b, n, handle, flow = array()
    x = b.placeholder("x", "float32", [rows, 2])
    indices = b.const(list(range(rows))) if is_folded else b.Range(0, rows, 1)
    full = b.TensorArrayScatterV3(handle, indices, x, flow)
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


def test_an_array_whose_flow_forks_after_a_write_is_rejected() -> None:
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


def test_an_array_with_two_writers_of_one_state_is_rejected() -> None:
    b, n, handle, flow = array()
    first, second = (b.TensorArrayWriteV3(handle, i, row(b, n), flow) for i in (0, 1))
    with b.control(first):
        both = b.Identity(second)
    after = flow_loop(b, n, both, lambda i, f: b.TensorArrayWriteV3(handle, i + 2, row(b, i), f))
    b.TensorArrayGatherV3(handle, b.Range(0, 4, 1), after, dtype="float32", name="y")
    assert (
        checked_rejections(lowered_subgraph(b, "y"), ["y"], {"n": np.int32(2)})["array"] == "list"
    )


def test_a_read_before_the_next_write_may_use_the_old_flow() -> None:
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
def test_control_edges_from_an_array_keep_their_liveness(p: bool) -> None:
    b = Builder()
    n, p_ = b.placeholder("n", "int32", []), b.placeholder("p", "bool", [])
    size = b.Identity(b.Switch(n, p_)[1])
    handle, flow = b.TensorArrayV3(size, dtype="float32", element_shape=[2], name="array")
    state = b.Identity(flow)
    for i in (0, 1):
        state = b.TensorArrayWriteV3(
            handle, b.Identity(size - size + i), b.const([1.0, 2.0]), state
        )
    _, total = b.while_loop(lambda i, _: b.Less(i, n), lambda i, t: (i + 1, t * 2), [n - 2, n])
    b.TensorArrayReadV3(handle, 1, state, dtype="float32", name="y")
    with b.control(handle):
        b.Identity(total, name="z")
    graph = lowered_subgraph(b, "y", "z")
    feeds = {"n": np.int32(2), "p": np.bool_(p)}
    assert "array" not in checked_rejections(graph, ["y", "z"], feeds)


def stacked() -> tuple[Builder, Output, Output]:
    """Return a builder with n, and a stack."""
    b = Builder()
    n = b.placeholder("n", "int32", [])
    return b, n, b.StackV2(100, elem_type="float32", name="stack")


def pushes(b: Builder, stack: Output, initial: Output) -> Any:
    """Add a loop that pushes three times."""
    _, last = b.while_loop(
        lambda i, _: b.Less(i, 3), lambda i, x: (i + 1, b.StackPushV2(stack, x + 1.0)), [0, initial]
    )
    return last


def pops(b: Builder, stack: Output, initial: Output) -> Any:
    """Add a loop that pops three times."""

    def body(i: Output, t: Output) -> tuple[Output, Output]:
        return i + 1, t * 10.0 + b.Reshape(
            b.StackPopV2(stack, elem_type="float32"), b.const([], "int32")
        )

    _, total = b.while_loop(lambda i, _: b.Less(i, 3), body, [0, initial])
    return total


def test_control_edges_from_a_stack_and_its_handles_remain() -> None:
    graph = cfgraph.loads(counter_text("Mul(y_switch:1, y_switch:1)").encode(), "graph")
    (gradient,) = cfgraph.gradients(graph, ys=["out"], xs=["x"])
    assert gradient is not None
    stack = next(node for node in graph if node.op == "StackV2")
    graph.add("Identity", graph["n"], controls=[stack], name="z")
    handle = next(node for node in graph if node.op == "StackPushV2").inputs[0].node
    assert handle.op == "Enter"
    graph.add_control(graph["y_more"], handle)
    feeds = {"n": np.int32(2), "x": np.float32([1, 1.5])}
    assert checked_rejections(graph, [gradient, "z"], feeds) == {}


def test_a_stack_pushed_and_popped_in_one_loop_is_rejected() -> None:
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


def test_a_stack_whose_loops_share_an_outer_loop_is_rejected() -> None:
    b, n, stack = stacked()

    def body(i: Output, x: Output) -> tuple[Output, Output]:
        return i + 1, pops(b, stack, pushes(b, stack, x))

    _, y = b.while_loop(lambda i, _: b.Less(i, n), body, [0, 1.0])
    b.Identity(y, name="y")
    assert (
        checked_rejections(lowered_subgraph(b, "y"), ["y"], {"n": np.int32(2)})["stack"] == "list"
    )


def test_a_stack_pushed_after_the_popping_loop_is_rejected() -> None:
    b, _, stack = stacked()
    b.Identity(pushes(b, stack, pops(b, stack, b.const(1.0))), name="y")
    reasons = region_rejections(
        cfgraph.cluster(lowered_subgraph(b, "y"), fetches=["y"], regions=True)
    )
    assert reasons["stack"] == "list"


@pytest.mark.parametrize("op", ["StackV2", "StackPushV2", "StackPopV2"])
def test_a_stack_with_a_fetched_node_is_rejected(op: str) -> None:
    graph = cfgraph.loads(counter_text("Mul(y_switch:1, y_switch:1)").encode(), "graph")
    (gradient,) = cfgraph.gradients(graph, ys=["out"], xs=["x"])
    assert gradient is not None
    node = next(node for node in graph if node.op == op)
    report = cfgraph.cluster(graph, fetches=[gradient, node.name], regions=True)
    assert "list" in region_rejections(report).values()
    assert node.name in graph


@pytest.mark.parametrize("resize", [False, True])
def test_a_list_that_a_loop_may_extend_is_rejected(resize: bool) -> None:
    b = Builder()
    n = b.placeholder("n", "int32", [])
    options: dict[str, Any] = {"resize_if_index_out_of_bounds": resize}
    rows = b.TensorListReserve(b.const(-1), b.const(0 if resize else 3), element_dtype="float32")
    after = flow_loop(b, n, rows, lambda i, f: b.TensorListSetItem(f, i, row(b, i), **options))
    b.TensorListStack(after, b.const([2]), element_dtype="float32", name="y")
    reasons = checked_rejections(lowered_subgraph(b, "y"), ["y"], {"n": np.int32(3)})
    assert ("list" in reasons.values()) is resize


def test_a_list_of_lists_is_rejected() -> None:
    b = Builder()
    n = b.placeholder("n", "int32", [])
    inner = b.TensorListFromTensor(b.const([1.0, 2.0]), b.const(-1))
    outer = b.TensorListReserve(b.const(-1), b.const(3), element_dtype="variant")
    after = flow_loop(b, n, outer, lambda i, f: b.TensorListSetItem(f, i, inner))
    first = b.TensorListGetItem(after, b.const(0), b.const(-1), element_dtype="variant")
    b.TensorListStack(first, b.const(-1), element_dtype="float32", name="y")
    reasons = checked_rejections(lowered_subgraph(b, "y"), ["y"], {"n": np.int32(3)})
    assert "list" in reasons.values()


def test_a_growing_array_is_a_list_that_grows() -> None:
    b = Builder()
    n = b.placeholder("n", "int32", [])
    handle, flow = b.TensorArrayV3(1, dtype="float32", element_shape=[2], dynamic_size=True)

    def write(i: Output, f: Output) -> Output:
        return b.TensorArrayWriteV3(handle, i * 2, row(b, i), f)

    after = flow_loop(b, n, flow, write)
    size = b.TensorArraySizeV3(handle, after, name="size")
    b.TensorArrayGatherV3(handle, b.Range(0, size, 1), after, dtype="float32", name="all")
    graph = lowered_subgraph(b, "all", "size")
    for count in (1, 3):
        assert checked_rejections(graph, ["all", "size"], {"n": count}) == {}


def test_all_of_a_growing_array_is_not_as_much_as_at_first() -> None:
    b = Builder()
    n = b.placeholder("n", "int32", [])
    handle, flow = b.TensorArrayV3(1, dtype="float32", element_shape=[2], dynamic_size=True)
    after = flow_loop(b, n, flow, lambda i, f: b.TensorArrayWriteV3(handle, i, row(b, i), f))
    b.TensorArrayGatherV3(handle, b.Range(0, 1, 1), after, dtype="float32", name="first")
    graph = lowered_subgraph(b, "first")
    assert checked_rejections(graph, ["first"], {"n": 3}) == {}


def test_two_writes_of_one_branch_do_not_continue_from_the_same_state() -> None:
    b, n, handle, flow = array()

    def write(i: Output, f: Output) -> Output:
        is_late = b.Greater(i, 9)
        branches = [b.Switch(f, is_late) for _ in range(3)]
        late = b.TensorArrayWriteV3(handle, i, row(b, i + 1), branches[0][1])
        early = b.TensorArrayWriteV3(handle, i, row(b, i + 1), branches[1][0])
        read = b.TensorArrayReadV3(handle, i, early, dtype="float32")
        both = b.TensorArrayWriteV3(handle, i + 1, read, branches[2][0])
        return b.Merge([late, both])[0]

    _, after = b.while_loop(
        lambda i, _: b.Less(i, n),
        lambda i, f: (i + 1, write(i, f)),
        [b.const(0), flow],
        shape_invariants={"f": None},
    )
    b.TensorArrayGatherV3(handle, b.Range(0, 4, 1), after, dtype="float32", name="all")
    graph = lowered_subgraph(b, "all")
    for node in graph:
        if node.op.startswith("TensorArray"):  # only flows order them, as in a conditional
            graph.set_controls(node, [])
    expected = cfgraph.Session(graph, engine="tokens").run("all", {"n": 1})
    cfgraph.functionalize(graph)
    np.testing.assert_array_equal(cfgraph.Session(graph).run("all", {"n": 1}), expected)
