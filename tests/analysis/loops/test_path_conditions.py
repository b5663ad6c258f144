"""Path conditions of nodes behind several conditionals."""

from __future__ import annotations

from cfgraph.analysis.loops.path_conditions import PathConditions
from cfgraph.ir.graph import Graph
from cfgraph.ir.text.parser import parse_graph


def conditionals(count: int) -> Graph:
    """Two nodes in each of `count` conditionals, and a node that waits for all of them."""
    lines = ["x = Placeholder() {dtype=float32, shape=[]}"]
    for number in range(count):
        lines += [
            f"p{number} = Placeholder() {{dtype=bool, shape=[]}}",
            f"s{number} = Switch(x, p{number}) {{T=float32}}",
            f"a{number} = Neg(s{number}:1) {{T=float32}}",
            f"b{number} = Neg(a{number}) {{T=float32}}",
        ]
    waits = ", ".join(f"^a{number}, ^b{number}" for number in range(count))
    return parse_graph("\n".join([*lines, f"barrier = NoOp({waits})", f"again = NoOp({waits})"]))


def test_a_barrier_waits_for_the_decision_of_each_conditional_once() -> None:
    graph = conditionals(40)
    guard = PathConditions().of_node(graph["barrier"])
    assert [(item.test.source.name, item.branch) for item in guard.decisions()] == [
        (f"p{number}:0", 1) for number in range(40)
    ]


def test_nodes_that_wait_for_the_same_have_one_guard() -> None:
    graph, guards = conditionals(5), PathConditions()
    assert guards.of_node(graph["barrier"]) is guards.of_node(graph["again"])


def test_a_union_that_adds_nothing_is_the_guard_itself() -> None:
    graph, guards = conditionals(3), PathConditions()
    barrier = guards.of_node(graph["barrier"])
    for number in range(3):
        inside = guards.of_node(graph[f"b{number}"])
        assert barrier.union(inside) is barrier
        assert guards.none.union(inside, inside) is inside


def test_conditions_with_equal_decisions_are_one_object() -> None:
    graph, guards = conditionals(3), PathConditions()
    first, second, third = (guards.of_node(graph[f"a{number}"]) for number in range(3))
    union = first.union(second, third)
    assert third.union(second).union(first) is union
    assert union.implies(second)
    assert not second.implies(union)


def test_a_switch_with_one_output_decides_nothing() -> None:
    text = "x = Placeholder() {dtype=int32, shape=[]}\ns = _SwitchN(x, x) {T=int32, num_outs=1}"
    guards = PathConditions()
    assert guards.of_output(parse_graph(text)["s"].output()) is guards.none
