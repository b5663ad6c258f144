from __future__ import annotations

from pathlib import Path

import pytest

import cfgraph
from cfgraph.errors import InvalidInput
from cfgraph.ir.functions import Function
from cfgraph.ir.join import join


def graph(text: str) -> cfgraph.Graph:
    return cfgraph.loads(text.encode(), "graph")


def test_the_parts_of_a_partitioned_graph_become_one_graph() -> None:
    first = graph("x = Placeholder() {dtype=int32, shape=[]}\ny = Neg(x)\n")
    second = graph("z = NoOp()\nw = Const(^z) {dtype=int32, value=int32[]:1}\n")
    whole = join([first, second])
    assert list(whole.nodes) == ["x", "y", "z", "w"]
    assert whole["w"].controls == (whole["z"],)
    assert [len(part) for part in (first, second)] == [2, 2]


def test_two_nodes_of_one_name_are_refused() -> None:
    part = graph("x = NoOp()\n")
    with pytest.raises(InvalidInput, match="two of the graphs have a node 'x'"):
        join([part, part])


def test_functions_are_merged_where_they_are_the_same(fixtures: Path) -> None:
    first, second = (cfgraph.load(fixtures / "graphs" / "while_functional.pb") for _ in range(2))
    for node in list(second)[::-1]:
        second.remove(node)
    assert list(join([first, second]).functions) == list(first.functions)
    body, condition = sorted(first.functions)
    second.functions[body] = Function(body, first.functions[condition].definition)
    with pytest.raises(InvalidInput, match=f"different functions '{body}'"):
        join([first, second])
