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
