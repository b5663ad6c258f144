"""Boxes of a picture: nested devices, loops, and scopes of bounded size."""

from __future__ import annotations

from typing import Any

import pytest

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.analysis.loops.frames import frames
from cfgraph.console.picture.boxes import CHUNK, MAX_MEMBERS, PictureBox, group_into_boxes
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Graph, Node
from cfgraph.ir.text.parser import parse_graph

LOOP = """
x = Placeholder() {dtype=float32, shape=[]}
m/enter = Enter(x) {frame_name="m/loop"}
m/merge = Merge(m/enter, m/next)
m/limit = Const(^m/merge) {dtype=float32, value=float32[]:1.0}
m/less = Less(m/merge, m/limit)
m/cond = LoopCond(m/less)
m/switch = Switch(m/merge, m/cond)
m/exit = Exit(m/switch)
m/body/a = Neg(m/switch:1)
m/body/b = Neg(m/body/a)
m/body/c = Neg(m/body/b)
m/next = NextIteration(m/body/c)
"""


def boxes(graph: Graph, device_of: Any = None) -> PictureBox:
    return group_into_boxes(PictureBox("graph", ""), list(graph), frames(graph), device_of)


def outline(box: PictureBox) -> dict[str, Any]:
    """The boxes as nested dictionaries, each with the number of its nodes under `nodes`."""
    inner = [one for one in box.members if isinstance(one, PictureBox)]
    reported: dict[str, Any] = {f"{one.kind} {one.label}": outline(one) for one in inner}
    if len(inner) < len(box.members):
        reported["nodes"] = len(box.members) - len(inner)
    return reported


def named(*names: str) -> Graph:
    graph = Graph()
    for name in names:
        graph.add("NoOp", name=name)
    return graph


def test_a_loop_is_in_the_scope_of_its_names() -> None:
    inner = {"scope body": {"nodes": 3}, "nodes": 7}
    assert outline(boxes(parse_graph(LOOP))) == {
        "scope m": {"frame m/loop": inner, "nodes": 1},
        "nodes": 1,
    }


def test_a_loop_on_two_devices_is_in_two_boxes() -> None:
    graph = parse_graph(LOOP)
    there = {"m/body/a", "m/body/b", "m/body/c"}
    reported = outline(boxes(graph, lambda node: "gpu:0" if node.name in there else "cpu:0"))
    assert reported["device gpu:0"] == {"frame m/loop": {"nodes": 3}}
    assert reported["device cpu:0"]["scope m"] == {"frame m/loop": {"nodes": 7}, "nodes": 1}


def test_scopes_that_say_little_are_left_out() -> None:
    graph = named("a/b/c/1", "a/b/c/2", "a/b/c/3", "d/1", "d/2")
    assert outline(boxes(graph)) == {"scope a/b/c": {"nodes": 3}, "nodes": 2}


def test_a_scope_knows_what_its_names_begin_with() -> None:
    (scope,) = boxes(named("a/b/c/1", "a/b/c/2", "a/b/c/3")).members
    assert isinstance(scope, PictureBox)
    assert scope.prefix == "a/b/c/"


@pytest.mark.parametrize("count", [MAX_MEMBERS + 1, 10_000])
def test_a_flat_graph_is_chunks_of_neighbours(count: int) -> None:
    graph = Graph()
    last = graph.add("Placeholder", name="n0", dtype=dtypes.float32)
    for place in range(1, count):
        last = graph.add("Neg", last, name=f"n{place}")
    top = boxes(graph)
    seen: list[Node] = []
    for box in top.walk():
        assert len(box.members) <= MAX_MEMBERS
        seen += [one for one in box.members if isinstance(one, Node)]
    assert seen == list(graph)
    first = top.members[0]
    assert isinstance(first, PictureBox)
    assert first.label.startswith("n0 … n")


def test_chunks_are_of_about_one_size() -> None:
    top = boxes(named(*(f"n{place}" for place in range(MAX_MEMBERS + 1))))
    sizes = [len(one.members) for one in top.members if isinstance(one, PictureBox)]
    assert sum(sizes) == MAX_MEMBERS + 1
    assert max(sizes) <= CHUNK
    assert max(sizes) - min(sizes) <= 1


def test_a_name_of_a_thousand_scopes_makes_a_few_boxes() -> None:
    graph = named(*("s/" * 1000 + str(place) for place in range(4)))
    assert sum(1 for _ in boxes(graph).walk()) < 50


def test_members_are_in_the_order_of_the_data_flow_whatever_the_order_of_the_file() -> None:
    graph = Graph()
    x = graph.add("Placeholder", name="x", dtype=dtypes.float32)
    late = [graph.add("Placeholder", name=f"b/c{n}", dtype=dtypes.float32) for n in range(3)]
    for n in range(3):
        x = graph.add("Neg", x, name=f"a/n{n}")
    for n in range(3):
        x = graph.add("Add", x, late[n], name=f"b/n{n}")
    labels = [one.label for one in boxes(graph).members if isinstance(one, PictureBox)]
    assert labels == ["a", "b"]


def test_scopes_that_read_each_other_are_all_drawn() -> None:
    graph = Graph()
    x = graph.add("Placeholder", name="x", dtype=dtypes.float32)
    for n in range(6):
        x = graph.add("Neg", x, name=f"{'ab'[n % 2]}/n{n}")
    top = boxes(graph)
    assert {one.label for one in top.members if isinstance(one, PictureBox)} == {"a", "b"}
    assert sum(isinstance(one, Node) for box in top.walk() for one in box.members) == 7


def test_many_layers_are_grouped_by_the_words_of_their_names() -> None:
    graph = Graph()
    x = graph.add("Placeholder", name="net/input", dtype=dtypes.float32)
    for block in range(1, 17):
        for layer in (
            "expand_1",
            "expand_relu_1",
            "depthwise_1",
            "project_1",
            "project_BN_1",
            "add",
        ):
            x = graph.add("Neg", x, name=f"net/block_{block}_{layer}/op")
    (net,) = (one for one in boxes(graph).members if isinstance(one, PictureBox))
    blocks = [one for one in net.members if isinstance(one, PictureBox)]
    assert [one.label for one in blocks] == [f"block_{block}" for block in range(1, 17)]
    assert blocks[0].prefix == "net/block_1_"
