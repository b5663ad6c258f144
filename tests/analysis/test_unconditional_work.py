"""Nodes that run for both values of a predicate."""

from __future__ import annotations

import cfgraph
from cfgraph.analysis.explain import unconditional_work
from cfgraph.ir.graph import Graph

HEAD = """
p = Placeholder() {dtype=bool, shape=[]}
q = Placeholder() {dtype=bool, shape=[]}
x = Placeholder() {dtype=float32, shape=[]}
made = Exp(x) {T=float32}
"""


def work_by_branch(text: str) -> dict[int, list[str]]:
    graph: Graph = cfgraph.loads((HEAD + text).encode(), "graph")
    work = unconditional_work(graph, graph.tensor("p:0"))
    assert work is not None
    return {side: [*names] for side, names in work.regardless.items()}


def test_a_switch_with_one_live_side_has_its_data_made_for_that_side() -> None:
    assert work_by_branch("s = Switch(made, p) {T=float32}\ny = Neg(s:0) {T=float32}\n") == {
        0: ["made"]
    }


def test_what_both_sides_read_is_for_both() -> None:
    text = "s = Switch(made, p) {T=float32}\ny = Neg(s:0) {T=float32}\nz = Neg(s:1) {T=float32}\n"
    assert work_by_branch(text) == {}


def test_what_is_read_outside_too_is_wanted_anyway() -> None:
    text = "s = Switch(made, p) {T=float32}\ny = Neg(s:0) {T=float32}\nz = Neg(made) {T=float32}\n"
    assert work_by_branch(text) == {}


def test_what_another_predicate_decides_on_is_not_said_of_this_one() -> None:
    text = (
        "s = Switch(x, p) {T=float32}\ny = Neg(s:0) {T=float32}\n"
        "t = Switch(made, q) {T=float32}\nz = Neg(t:0) {T=float32}\n"
    )
    assert work_by_branch(text) == {}


def test_a_negated_predicate_is_the_same_one() -> None:
    text = (
        "not = LogicalNot(p)\n"
        "s = Switch(made, not) {T=float32}\ny = Neg(s:0) {T=float32}\n"
        "t = Switch(made, p) {T=float32}\nz = Neg(t:1) {T=float32}\n"
    )
    assert work_by_branch(text) == {1: ["made"]}


def test_a_tensor_that_no_switch_reads_decides_nothing() -> None:
    graph = cfgraph.loads(HEAD.encode(), "graph")
    assert unconditional_work(graph, graph.tensor("q:0")) is None
