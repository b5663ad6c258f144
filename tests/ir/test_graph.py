from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from cfgraph.errors import InvalidInput
from cfgraph.ir.graph import CONTROL, Graph, Node, Output, Use


def chain(*names: str) -> Graph:
    """Nodes that each read the one before."""
    graph = Graph()
    for name in names:
        graph.create(name, "Op")
    for before, after in pairwise(names):
        graph.set_inputs(graph[after], (graph[before].output(),))
    return graph


def assert_true_uses(graph: Graph) -> None:
    """Uses say what inputs and controls say, no more and no less."""
    said = {node: set(node.uses) for node in graph}
    read: dict[Node, set[Use]] = {node: set() for node in graph}
    for node in graph:
        for slot, (source, _) in enumerate(node.inputs):
            read[source].add(Use(node, slot))
        for source in node.controls:
            read[source].add(Use(node, CONTROL))
        assert len(set(node.controls)) == len(node.controls)
    assert said == read
    assert all(graph.nodes[node.name] is node for node in graph)


def test_every_edit_keeps_uses_true() -> None:
    draw = random.Random(7)
    graph = Graph()
    for number in range(12):
        graph.create(f"n{number}", "Op")

    def any_node() -> Node:
        return draw.choice(list(graph))

    def any_output() -> Output:
        return Output(any_node(), draw.randrange(3))

    def any_nodes() -> list[Node]:
        return [any_node() for _ in range(draw.randrange(4))]

    def set_input() -> None:
        node = any_node()
        if node.inputs:
            graph.set_input(node, draw.randrange(len(node.inputs)), any_output())

    def remove_and_add() -> None:
        node = any_node()
        if all(use.node is node for use in node.uses):
            graph.remove(node)
            graph.create(node.name, "Op", (any_output(),))

    edits = [
        lambda: graph.set_inputs(any_node(), [any_output() for _ in range(draw.randrange(4))]),
        lambda: graph.set_controls(any_node(), any_nodes()),
        lambda: graph.connect(any_node(), [any_output()], any_nodes()),
        lambda: graph.add_control(any_node(), any_node()),
        lambda: graph.remove_control(any_node(), any_node()),
        lambda: graph.replace_uses(any_output(), any_output()),
        lambda: graph.rename(any_node(), f"m{graph.edits}"),
        set_input,
        remove_and_add,
    ]
    for _ in range(2_000):
        draw.choice(edits)()
        assert_true_uses(graph)


def test_an_edit_that_fails_changes_nothing() -> None:
    graph = chain("a", "b")
    before = graph.edits

    def broken() -> Iterator[Output]:
        yield graph["a"].output()
        raise KeyError("no such node")

    with pytest.raises(KeyError):
        graph.set_inputs(graph["b"], broken())
    with pytest.raises(KeyError):
        graph.set_controls(graph["b"], (item.node for item in broken()))
    with pytest.raises(IndexError, match="no input 1"):
        graph.set_input(graph["b"], 1, graph["a"].output())
    with pytest.raises(IndexError, match="no input -1"):
        graph.set_input(graph["b"], -1, graph["a"].output())
    assert graph["b"].inputs == (graph["a"].output(),)
    assert graph.edits == before
    assert_true_uses(graph)


@pytest.mark.parametrize(
    "edit",
    [
        lambda graph: graph.create("c", "Op"),
        lambda graph: graph.set_inputs(graph["b"], ()),
        lambda graph: graph.set_input(graph["b"], 0, graph["b"].output(1)),
        lambda graph: graph.set_controls(graph["b"], (graph["a"],)),
        lambda graph: graph.add_control(graph["b"], graph["a"]),
        lambda graph: graph.replace_uses(graph["a"].output(), graph["a"].output(1)),
        lambda graph: graph.set_attr(graph["b"], "k", 1),
        lambda graph: graph.set_device(graph["b"], "/cpu:0"),
        lambda graph: graph.rename(graph["b"], "c"),
        lambda graph: graph.remove(graph["b"]),
    ],
)
def test_every_edit_is_counted(edit: object) -> None:
    graph = chain("a", "b")
    before = graph.edits
    edit(graph)  # type: ignore[operator]
    assert graph.edits > before


def test_what_changes_nothing_is_no_edit() -> None:
    graph = chain("a", "b")
    graph.add_control(graph["b"], graph["a"])
    before = graph.edits
    graph.add_control(graph["b"], graph["a"])
    graph.remove_control(graph["a"], graph["b"])
    graph.rename(graph["a"], "a")
    graph.replace_uses(graph["b"].output(), graph["a"].output())
    assert graph.edits == before


def test_all_uses_of_one_output_move_and_those_of_others_stay() -> None:
    graph = chain("a", "b")
    many = graph.create("m", "Op", [Output(graph["a"], port) for port in (0, 1, 0)])
    assert graph.replace_uses(graph["a"].output(), graph["b"].output(2)) == 3
    assert many.inputs == (Output(graph["b"], 2), Output(graph["a"], 1), Output(graph["b"], 2))
    assert graph["a"].readers(0) == []
    assert graph["a"].readers(1) == [Use(many, 1)]
    assert_true_uses(graph)


def test_uses_are_listed_in_the_order_in_which_they_came_to_be() -> None:
    graph = chain("a")
    source = graph["a"].output()
    for name in "zyx":
        graph.create(name, "Op", (source,), (graph["a"],))
    graph.remove_control(graph["y"], graph["a"])
    graph.add_control(graph["y"], graph["a"])
    assert [use.node.name for use in graph["a"].readers(0)] == ["z", "y", "x"]
    assert [node.name for node in graph["a"].control_readers] == ["z", "x", "y"]


def test_controls_keep_their_order_and_collapse() -> None:
    graph = chain("a", "b", "c")
    graph.set_controls(graph["c"], [graph["b"], graph["a"], graph["b"]])
    assert graph["c"].controls == (graph["b"], graph["a"])
    graph.remove_control(graph["c"], graph["b"])
    assert graph["c"].controls == (graph["a"],)


def test_a_node_may_read_and_wait_for_itself() -> None:
    graph = chain("a")
    graph.connect(graph["a"], [graph["a"].output()], [graph["a"]])
    assert_true_uses(graph)
    graph.remove(graph["a"])
    assert len(graph) == 0


def test_nodes_that_read_each_other_are_removed_together() -> None:
    graph = chain("a", "b", "c")
    with pytest.raises(ValueError, match="'a' is still read by 'b'"):
        graph.remove(graph["a"])
    graph.remove(graph["b"], graph["c"], graph["b"])
    assert list(graph.nodes) == ["a"]
    assert_true_uses(graph)


def test_a_removal_that_fails_removes_nothing() -> None:
    graph, other = chain("a", "b", "c"), chain("c")
    with pytest.raises(ValueError, match="'c' is not in the graph"):
        graph.remove(graph["c"], other["c"])
    assert list(graph.nodes) == ["a", "b", "c"]
    assert_true_uses(graph)


def test_a_renamed_node_keeps_its_place_and_its_readers() -> None:
    graph = chain("a", "b", "c")
    graph.rename(graph["b"], "d")
    assert list(graph.nodes) == ["a", "d", "c"]
    assert graph["c"].inputs[0].name == "d:0"
    assert "b" not in graph
    with pytest.raises(InvalidInput, match="two nodes") as caught:
        graph.rename(graph["d"], "c")
    assert caught.value.code == "CFG104"


def test_unique_names_count_up_and_skip_what_is_taken() -> None:
    graph = chain("a", "a_2")
    assert graph.unique_name("b") == "b"
    assert graph.unique_name("a") == "a_1"
    graph.create("a_1", "Op")
    assert graph.unique_name("a") == "a_3"


def test_a_wide_node_is_rewired_in_linear_time() -> None:
    graph = chain("a", "b")
    wide = graph.create("w", "Op", [graph["a"].output()] * 50_000)
    assert graph.replace_uses(graph["a"].output(), graph["b"].output()) == 50_001
    assert set(wide.inputs) == {graph["b"].output()}


def test_inputs_may_be_written_in_any_order() -> None:
    graph = Graph()
    graph.load(
        [
            ("b", "Op", ["a:1", "^c", "^a", "^c"], "", {}, None),
            ("a", "Op", [], "/cpu:0", {}, None),
            ("c", "Op", ["b"], "", {}, None),
        ]
    )
    assert graph["b"].inputs == (Output(graph["a"], 1),)
    assert graph["b"].controls == (graph["c"], graph["a"])
    assert_true_uses(graph)
