"""`cfgraph explain` on invalid graphs: edges between frames, and the tensor to read instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.build.builder import Builder
from tests.command_fixtures import Command

NESTED = """\
n = Placeholder() {dtype=int32, shape=[]}
zero = Const() {dtype=int32, value=int32[]:0}
limit = Enter(n) {frame_name="outer", is_constant=true}
enter = Enter(zero) {frame_name="outer"}
merge = Merge(enter, next)
less = Less(merge, limit)
cond = LoopCond(less)
switch = Switch(merge, cond)
ilimit = Enter(limit) {frame_name="inner", is_constant=true}
ienter = Enter(switch:1) {frame_name="inner"}
imerge = Merge(ienter, inext)
iless = Less(imerge, ilimit)
icond = LoopCond(iless)
iswitch = Switch(imerge, icond)
ione = Const(^imerge) {dtype=int32, value=int32[]:1}
iadd = AddV2(iswitch:1, ione)
inext = NextIteration(iadd)
iexit = Exit(iswitch:0)
next = NextIteration(iexit)
exit = Exit(switch:0)
"""


@pytest.fixture
def nested(tmp_path: Path) -> Any:
    """Write the nested loops with some more nodes."""

    def written(*nodes: str) -> Path:
        file = tmp_path / "nested.graph"
        file.write_text(NESTED + "\n".join(nodes) + "\n")
        return file

    return written


def edges(command: Command, *args: str | Path) -> list[tuple[str, str, str, str, str | None]]:
    done = command("explain", *args, "--json")
    assert done.code == 0, done.err
    keys = ("source", "reader", "source_frame", "reader_frame", "instead")
    return [tuple(edge[key] for key in keys) for edge in done.json["result"]["crossings"]["edges"]]


@pytest.mark.parametrize(
    ("node", "edge"),
    [
        # the final value of the inner loop, read in the outer one
        ("x = AddV2(iadd, switch:1)", ("iadd:0", "/outer/inner", "/outer", "iexit:0")),
        # that of the outer loop, by a node that is outside
        ("x = AddV2(merge, n)", ("merge:0", "/outer", "/", "exit:0")),
        # the condition of a loop has no Exit
        ("x = LogicalAnd(less, p)\np = Placeholder() {dtype=bool}",
         ("less:0", "/outer", "/", None)),
        # behind identities
        ("i = Identity(iadd)\nx = AddV2(i, switch:1)",
         ("i:0", "/outer/inner", "/outer", "iexit:0")),
        # into a loop, which already has the value
        ("x = AddV2(imerge, n)\ny = NextIteration(x)\n"
         "m = Merge(ienter, y)", ("n:0", "/", "/outer/inner", "ilimit:0")),
    ],
)  # fmt: skip
def test_an_edge_names_the_loops_and_the_tensor_to_read_instead(
    node: str, edge: tuple[str | None, ...], command: Command, nested: Any
) -> None:
    file = nested(node)
    source, source_frame, reader_frame, instead = edge
    expected = [(source, "x", source_frame, reader_frame, instead)]
    assert edges(command, file, "x") == expected
    assert edges(command, file, str(source)) == expected
    assert expected[0] in edges(command, file, str(max(source_frame, reader_frame, key=len)))


def test_the_tensor_to_read_makes_the_graph_valid_and_has_the_value(
    command: Command, nested: Any
) -> None:
    file = nested("x = AddV2(iadd, n)")
    text = file.read_text().replace("NextIteration(iexit)", "NextIteration(switch:1)")
    file.write_text(text)
    done = command("explain", file, "x")
    assert "forward 'iexit:0' out of /outer by an Exit" in done.out
    file.write_text(text.replace("x = AddV2(iadd, n)", "last = Exit(iexit)\nx = AddV2(last, n)"))
    assert command("check", file).code == 0
    wrong = nested("x = AddV2(merge, n)")
    ((*_, instead),) = edges(command, wrong, "x")
    right = nested(f"x = AddV2({instead}, n)")
    assert command("run", right, "--feed", "n=3", "--fetch", "x").out == "x:0  int32[]  = 6\n"


def test_check_names_the_exit_in_its_hint(command: Command, nested: Any) -> None:
    done = command("check", nested("x = AddV2(merge, n)"))
    assert "hint: read 'exit:0', the Exit of /outer, instead of 'merge:0'" in done.out


def test_a_pair_of_nodes_in_an_invalid_graph_names_the_exit(command: Command, nested: Any) -> None:
    done = command("explain", nested("x = AddV2(merge, n)"), "merge", "x")
    assert done.code == 0
    assert "read exit:0 instead, which forwards its value" in done.out
    assert "gradient  unknown: the graph is invalid at x (CFG201)" in done.out


def test_control_edges_and_constants_have_advice_of_their_own(
    command: Command, nested: Any
) -> None:
    done = command("explain", nested("x = Neg(n, ^merge)"), "x")
    assert "^merge → x" in done.out
    assert "read '^exit', the Exit of /outer, instead of '^merge'" in done.out
    done = command("explain", nested("x = AddV2(switch:1, zero)\ny = Exit(x)"), "x")
    assert "give 'zero' a control input from inside the loop /outer" in done.out


def test_a_node_without_such_an_edge_is_explained_by_the_error(
    command: Command, nested: Any
) -> None:
    file = nested("x = AddV2(merge, n)")
    assert command("explain", file, "ione").code == 3
    assert command("explain", file, "nothing").code == 2


def test_many_such_edges_take_linear_time(command: Command, tmp_path: Path) -> None:
    b = Builder()
    n = b.placeholder("n", "int32", [])
    b.while_loop(lambda i: i < n, lambda i: i + 1, 0)
    graph = b.graph
    cfgraph.lower(graph)
    inside = next(node for node in graph if node.op == "Merge")
    last = graph.tensor(n.name).node
    for number in range(3000):
        last = graph.add("AddV2", inside.output(), last.output(), name=f"x{number}")
    cfgraph.save(graph, tmp_path / "many.pb")
    done = command("explain", tmp_path / "many.pb", "/while")
    assert done.code == 0
    assert command("check", tmp_path / "many.pb").code == 1
