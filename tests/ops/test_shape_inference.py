from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import cfgraph.ops
from cfgraph.ir.attrs import TensorValue
from cfgraph.ir.dtypes import float32, int32
from cfgraph.ir.graph import Graph, Node, Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.ops.shape_inference import infer_shapes


def const(graph: Graph, value: Any, name: str = "c") -> Node:
    array = np.asarray(value)
    array = array.astype(np.int32) if array.dtype == np.int64 else array
    array = array.astype(np.float32) if array.dtype == np.float64 else array
    return graph.add(
        "Const",
        name=name,
        value=TensorValue(array),
        dtype=float32 if (array.dtype == np.float32) else int32,
    )


def placeholder(graph: Graph, *dims: int | None, name: str = "x", dtype: Any = float32) -> Node:
    return graph.add("Placeholder", name=name, dtype=dtype, shape=Shape(dims))


def sizes(graph: Graph, node: Node, port: int = 0, **feeds: Any) -> Any:
    return infer_shapes(graph, feeds)[Output(node, port)].dims


def loop(graph: Graph, *starts: Node, name: str = "w") -> list[tuple[Node, Node, Node]]:
    """Merge, value in the body, and Exit of each loop variable; `close` ends the loop."""
    enters = [graph.add("Enter", item, frame_name=name.encode()) for item in starts]
    merges = [graph.add("Merge", item, item) for item in enters]
    pred = graph.add("Placeholder", name="pred", dtype=cfgraph.ir.dtypes.bool_, shape=Shape(()))
    cond = graph.add("LoopCond", pred)
    found = []
    for merge in merges:
        switch = graph.add("Switch", merge, cond)
        inside = graph.add("Identity", Output(switch, 1))
        found.append((merge, inside, graph.add("Exit", Output(switch, 0))))
    return found


def close(graph: Graph, merge: Node, value: Node) -> None:
    graph.set_input(merge, 1, Output(graph.add("NextIteration", value), 0))


def test_shapes_go_forward() -> None:
    graph = Graph()
    x = placeholder(graph, None, 3)
    t = graph.add("Transpose", x, const(graph, [1, 0]))
    y = graph.add("Pack", t, t, axis=1)
    assert sizes(graph, y) == (3, 2, None)


def test_feeds_say_more_than_the_graph() -> None:
    graph = Graph()
    x = placeholder(graph, None, None)
    y = graph.add("ExpandDims", x, const(graph, 0))
    assert sizes(graph, y, **{"x:0": Shape((4, 5))}) == (1, 4, 5)
    assert sizes(graph, y, x=np.zeros((2, 7), np.float32)) == (1, 2, 7)


def test_a_feed_inside_the_graph_hides_what_it_is_made_of() -> None:
    graph = Graph()
    unknown = graph.create("u", "NobodyKnows", [], attrs={})
    x = graph.create("y", "Identity", [Output(unknown, 0)], attrs={"T": float32})
    z = graph.add("ExpandDims", x, const(graph, 0))
    assert sizes(graph, z, y=Shape((2,))) == (1, 2)


def test_values_of_shapes_are_computed() -> None:
    graph = Graph()
    x = placeholder(graph, 2, 3, 4)
    shape = graph.add("Shape", x)
    one, two = const(graph, [1]), const(graph, [2])
    middle = graph.add("StridedSlice", shape, one, two, one, shrink_axis_mask=1)
    rest = graph.add("Pack", middle, const(graph, -1))
    y = graph.add("Reshape", x, rest)
    inferred = infer_shapes(graph)
    assert inferred.value(Output(middle, 0)) == 3
    assert inferred[Output(y, 0)] == Shape((3, 8))


def test_of_a_shape_known_in_part_the_known_sizes_are_used() -> None:
    graph = Graph()
    x = placeholder(graph, None, 3, 4)
    shape = graph.add("Shape", x)
    zero, one, two = (const(graph, [n]) for n in range(3))
    batch = graph.add("StridedSlice", shape, zero, one, one, shrink_axis_mask=1)
    last = graph.add("StridedSlice", shape, const(graph, [-1]), zero, one, shrink_axis_mask=1)
    y = graph.add("Fill", graph.add("Pack", batch, last, const(graph, 7)), const(graph, 1.0))
    both = graph.add("ConcatV2", graph.add("Slice", shape, two, one), shape, const(graph, 0))
    inferred = infer_shapes(graph)
    assert inferred[Output(y, 0)].dims == (None, 4, 7)
    assert inferred.value(Output(both, 0)) is None
    z = graph.add("Fill", both, const(graph, 1.0))
    assert sizes(graph, z) == (4, None, 3, 4)


def test_large_constants_are_left_alone() -> None:
    class Guarded:
        def dtype(self) -> Any:
            return int32

        def shape(self) -> Shape:
            return Shape((100_000,))

        def array(self) -> Any:
            pytest.fail("a large constant was decoded")

    graph = Graph()
    ids = graph.add("Const", value=TensorValue(source=Guarded()), dtype=int32)
    y = graph.add("UnsortedSegmentSum", ids, ids, const(graph, 4))
    z = graph.add("SegmentSum", ids, ids)
    assert sizes(graph, y) == (4,)
    assert sizes(graph, z) == (None,)


def test_a_default_that_may_be_fed_is_no_value() -> None:
    graph = Graph()
    size = graph.add("PlaceholderWithDefault", const(graph, [2]), shape=Shape((None,)))
    y = graph.add("Fill", size, const(graph, 1.0))
    assert sizes(graph, y) is None


def test_a_cond_joins_its_branches() -> None:
    graph = Graph()
    x = placeholder(graph, 2, 3)
    pred = graph.add("Placeholder", dtype=cfgraph.ir.dtypes.bool_, shape=Shape(()))
    switch = graph.add("Switch", x, pred)
    wide = graph.add("ConcatV2", Output(switch, 1), Output(switch, 1), const(graph, 0))
    merge = graph.add("Merge", Output(switch, 0), wide)
    inferred = infer_shapes(graph)
    assert inferred.node_shapes(merge) == [Shape((None, 3)), Shape(())]
    assert inferred.node_shapes(switch) == [Shape((2, 3))] * 2


def test_a_loop_keeps_what_does_not_change() -> None:
    graph = Graph()
    x = placeholder(graph, 2, 3)
    [(merge, inside, leave)] = loop(graph, x)
    close(graph, merge, graph.add("ReverseV2", inside, const(graph, [0])))
    assert sizes(graph, leave) == (2, 3)


def test_a_loop_widens_sizes_that_change() -> None:
    graph = Graph()
    x = placeholder(graph, 2, 3)
    [(merge, inside, leave)] = loop(graph, x)
    close(graph, merge, graph.add("ConcatV2", inside, inside, const(graph, 0)))
    assert sizes(graph, leave) == (None, 3)


def test_a_loop_that_rotates_shapes_widens_all_of_them() -> None:
    graph = Graph()
    starts = [placeholder(graph, *dims) for dims in ((2, 3), (4, 3), (5, 3))]
    parts = loop(graph, *starts)
    for place, (merge, _, _) in enumerate(parts):
        close(graph, merge, parts[(place + 1) % 3][1])
    assert [sizes(graph, leave) for _, _, leave in parts] == [(None, 3)] * 3


def test_a_counter_has_no_value_and_an_invariant_has() -> None:
    graph = Graph()
    count, size = loop(graph, const(graph, [1]), const(graph, [6]))
    close(graph, count[0], graph.add("ConcatV2", count[1], count[1], const(graph, 0)))
    close(graph, size[0], size[1])
    one, other = (graph.add("Fill", item[2], const(graph, 0.0)) for item in (count, size))
    assert sizes(graph, one) is None
    assert sizes(graph, other) == (6,)


def test_a_rank_that_grows_is_unknown() -> None:
    graph = Graph()
    [(merge, inside, leave)] = loop(graph, placeholder(graph, 2))
    close(graph, merge, graph.add("ExpandDims", inside, const(graph, 0)))
    assert infer_shapes(graph)[Output(leave, 0)] is UNKNOWN_SHAPE


def test_nested_loops_end() -> None:
    graph = Graph()
    x = placeholder(graph, *range(1, 9))
    open_loops, value = [], x
    for depth in range(12):
        [(merge, inside, leave)] = loop(graph, value, name=f"w{depth}")
        open_loops.append((merge, leave))
        value = inside
    for axis, (merge, leave) in enumerate(reversed(open_loops)):
        grown = graph.add("ConcatV2", value, value, const(graph, axis % 8))
        close(graph, merge, grown)
        value = leave
    assert sizes(graph, value) == (None,) * 8


def test_errors_are_collected() -> None:
    graph = Graph()
    x = placeholder(graph, 2, 3)
    y = graph.add("Reshape", x, const(graph, [7]))
    z = graph.add("ExpandDims", y, const(graph, 0))
    inferred = infer_shapes(graph)
    assert [(node, "reshape" in text) for node, text in inferred.errors] == [(y, True)]
    assert inferred[Output(z, 0)] is UNKNOWN_SHAPE


def test_an_error_that_a_loop_takes_back_is_forgotten() -> None:
    graph = Graph()
    [(merge, inside, _)] = loop(graph, placeholder(graph, 1))
    grown = graph.add("ConcatV2", inside, inside, const(graph, 0))
    graph.add("Reshape", inside, const(graph, [4]))
    close(graph, merge, grown)
    assert infer_shapes(graph).errors == []


def test_unknown_ops_and_broken_nodes_are_unknown() -> None:
    graph = Graph()
    strange = graph.create("s", "NobodyKnows", [], attrs={})
    bare = graph.create("b", "Reshape", [Output(strange, 2)], attrs={})
    pack = graph.create("p", "Pack", [Output(bare, 0)], attrs={"N": "many", "axis": b"?"})
    split = graph.create("q", "Split", [], attrs={"num_split": -3})
    inferred = infer_shapes(graph)
    assert list(inferred.node_shapes(strange)) == [UNKNOWN_SHAPE] * 3
    assert inferred[Output(bare, 0)] is UNKNOWN_SHAPE
    assert inferred[Output(pack, 5)] is UNKNOWN_SHAPE
    assert inferred[Output(split, 0)] is UNKNOWN_SHAPE
    assert inferred.errors == []


def test_a_cycle_that_is_no_loop_is_unknown() -> None:
    graph = Graph()
    x = placeholder(graph, 2)
    a = graph.add("Pack", x, x)
    b = graph.add("Identity", a)
    graph.set_input(a, 1, Output(b, 0))
    graph.set_input(x_reader := graph.add("Identity", x), 0, Output(x_reader, 0))
    inferred = infer_shapes(graph)
    assert inferred[Output(b, 0)] is UNKNOWN_SHAPE
    assert inferred[Output(x_reader, 0)] is UNKNOWN_SHAPE


def test_impossible_ranks_are_not_tried() -> None:
    graph = Graph()
    x = placeholder(graph, 2)
    many = placeholder(graph, 10**12, dtype=int32, name="many")
    for op in ("Reshape", "BroadcastTo", "Tile"):
        graph.add(op, x, many)
    started = time.process_time()
    infer_shapes(graph)
    assert time.process_time() - started < 5


def chain(count: int) -> tuple[Graph, Node]:
    graph = Graph()
    node = placeholder(graph, 2, 3)
    one = const(graph, [1, 0])
    for _ in range(count):
        node = graph.add("Transpose", node, one, name="t")
    return graph, node


@pytest.mark.slow
def test_a_chain_of_100000_nodes_is_no_problem() -> None:
    graph, last = chain(100_001)
    inferred = infer_shapes(graph)
    assert inferred[Output(last, 0)] == Shape((3, 2))
    assert inferred.errors == []


def test_work_grows_with_the_graph_in_loops_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from cfgraph.ops import shape_inference

    looks = []
    original = shape_inference._ShapePropagation._infer

    def count(self: Any, node: Node) -> Any:
        looks.append(node)
        return original(self, node)

    monkeypatch.setattr(shape_inference._ShapePropagation, "_infer", count)
    graph = Graph()
    [(merge, value, _)] = loop(graph, placeholder(graph, 2, 3, 5, 7))
    for _ in range(500):
        value = graph.add("Identity", value, name="i")
    for axis in range(4):
        value = graph.add("ConcatV2", value, value, const(graph, axis))
    close(graph, merge, value)
    infer_shapes(graph)
    assert len(looks) < 6 * len(graph)


def test_only_what_is_sent_is_inferred_and_received_shapes_are_those_sent() -> None:
    graph = Graph()
    x = placeholder(graph, 2, None)
    unread = graph.add("Identity", x, name="unread")
    key = {"tensor_name": b"x", "send_device": b"a", "recv_device": b"b"}
    key |= {"send_device_incarnation": 1, "client_terminated": False}
    send = graph.add("_Send", x, name="send", **key)
    recv = graph.add("_Recv", name="recv", tensor_type=float32, **key)
    y = graph.add("Neg", recv, name="y")
    shapes = infer_shapes(graph, sent=[y.output()], received={recv: send.inputs[0]})
    assert shapes[y.output()].dims == shapes[recv.output()].dims == (2, None)
    assert shapes.node_shapes(unread) == ()
    assert infer_shapes(graph)[y.output()].dims is None
