"""`cfgraph functionalize`: the reasons that it prints, and the results that it compares."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cfgraph.ir.graph import Graph
from cfgraph.passes.functionalize.functionalize import Functionalization, functionalize

TENSOR_ARRAY = """
n = Placeholder() {dtype=int32, shape=[]}
ta = TensorArrayV3(n) {dtype=float32}
zero = Const() {dtype=int32, value=int32[]:0}
ten = Const() {dtype=int32, value=int32[]:10}
enter = Enter(zero) {frame_name="loop"}
f_in = Enter(ta:1) {frame_name="loop"}
h = Enter(ta) {frame_name="loop", is_constant=true}
limit = Enter(ten) {frame_name="loop", is_constant=true}
i = Merge(enter, next)
f = Merge(f_in, f_next)
less = Less(i, limit)
cond = LoopCond(less)
switch = Switch(i, cond)
f_switch = Switch(f, cond)
one = Const(^switch) {dtype=int32, value=int32[]:1}
add = AddV2(switch:1, one)
fi = Cast(switch:1) {SrcT=int32, DstT=float32}
w = TensorArrayWriteV3(h, switch:1, fi, f_switch:1)
next = NextIteration(add)
f_next = NextIteration(w)
exit = Exit(switch)
f_exit = Exit(f_switch)
size = TensorArraySizeV3(ta, f_exit)
"""


def test_functional_nodes_that_change_for_converters_are_reported(
    command: Any, graphs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.pb"
    line = ("functionalize", graphs / "while_functional.pb", "--fetch", "out", "-o", out)
    assert "nothing to functionalize" in command(*line).err
    changed = command(*line, "--target", "converter")
    assert "no lowered loop or conditional; changed functional nodes for conv" in changed.err
    again = command("functionalize", out, "--target", "converter", "-o", tmp_path / "again.pb")
    assert "nothing to functionalize" in again.err


def test_rejected_regions_have_a_code_and_a_sentence(
    command: Any, graphs: Path, tmp_path: Path
) -> None:
    graph = graphs / "deadness_mismatch.pb"
    done = command("functionalize", graph, "--fetch", "C", "-o", tmp_path / "out.pb")
    assert done.code == 0
    rows = [line.split() for line in done.err.splitlines()]
    assert ["CFG605", "a", "fetch", "that", "may", "be", "dead", "1"] in rows


def test_a_tensor_array_that_became_no_list_has_a_reason(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "array.graph"
    path.write_text(TENSOR_ARRAY)
    line = ["functionalize", path, "--fetch", "ta", "--fetch", "size", "-o", tmp_path / "out.pb"]
    assert "list ta: ta is fetched" in command(*line, "--explain").err.splitlines()
    (resource,) = json.loads(command(*line, "--json").out)["result"]["resources"]
    assert (resource["name"], resource["reason"]["text"]) == ("ta", "ta is fetched")


CONDITIONAL = """
p = Placeholder() {dtype=bool, shape=[]}
x = Placeholder() {dtype=float32, shape=[]}
xs = Switch(x, p)
square = Square(xs:1)
minus = Neg(xs)
y = Merge(minus, square)
"""


# a node of the branch that always runs has a value in each run
CONSTANT_PREDICATE = """
p = Const() {dtype=bool, value=bool[]:true}
p_switch = Switch(p, p)
switch_t = Identity(p_switch:1)
switch_f = Identity(p_switch)
three = Const(^switch_t) {dtype=float32, value=float32[]:3}
unread = Identity(three)
zero = Const(^switch_f) {dtype=float32, value=float32[]:0}
square = Square(three)
y = Merge(zero, square)
"""


@pytest.mark.parametrize(
    ("text", "stays"),
    [(f"{CONDITIONAL}unread = Switch(x, p)\n", False), (CONSTANT_PREDICATE, True)],
)
def test_a_dropped_node_of_a_conditional_is_not_missing(
    text: str, stays: bool, command: Any, tmp_path: Path
) -> None:
    (tmp_path / "g.graph").write_text(text)
    output = tmp_path / "o.graph"
    done = command("functionalize", tmp_path / "g.graph", "--verify", "-o", output)
    assert (done.code, "unread" in output.read_text()) == (0, stays), done.err


def test_a_dropped_result_that_always_has_a_value_is_missing(
    command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def wrong(graph: Graph, *request: Any, **options: Any) -> Functionalization:
        report = functionalize(graph, *request, **options)
        graph.remove(graph["z"])
        return replace(report, dropped=(*report.dropped, "z"))

    monkeypatch.setattr("cfgraph.console.transforms.functionalize.functionalize", wrong)
    (tmp_path / "g.graph").write_text(f"{CONDITIONAL}z = Neg(x)\n")
    output = tmp_path / "o.graph"
    done = command("functionalize", tmp_path / "g.graph", "--verify", "-o", output)
    assert done.code == 1
    assert "z:0: missing in B" in done.err
    assert not output.exists()
