"""Predicates that pass through Merges and loops keep their value numbers."""

from __future__ import annotations

from typing import Any

import pytest

from cfgraph.analysis.deadness.deadness import deadness
from cfgraph.build.builder import Builder
from cfgraph.ir.graph import Node
from cfgraph.passes.lowering import lower
from tests.analysis.graph_text import graph

CHOICE = """
    x = Placeholder() {dtype=float32}
    p = Placeholder() {dtype=bool}
    q = Placeholder() {dtype=bool}
    a = Switch(p, p)
    f = Identity(a:0)
    t = Identity(a:1)
    false = Const(^f) {dtype=bool, value=bool[]:false}
    true = Const(^t) {dtype=bool, value=bool[]:true}
    mine = Identity(q, ^t)
    other = Identity(q, ^f)
"""


class _Program:
    """A program with a placeholder x and predicates p and q, and the conditions of its nodes."""

    def __init__(self) -> None:
        self.b = Builder()
        self.x = self.b.placeholder("x")
        self.p, self.q = (self.b.placeholder(name, "bool", []) for name in "pq")

    def conditions(self, *ops: str) -> list[str]:
        """The liveness condition of the only node of each op."""
        lower(self.b.graph)
        analysis = deadness(self.b.graph)
        return [analysis.text(analysis.of_control(_only(self.b.graph, op))) for op in ops]

    def branch(self, test: Any) -> None:
        self.b.cond(test, lambda: self.b.Exp(self.x), lambda: self.b.Log(self.x))


def _only(nodes: Any, op: str) -> Node:
    (node,) = [node for node in nodes if node.op == op]
    return node


def test_true_in_one_branch_and_false_in_the_other_is_the_predicate() -> None:
    program = _Program()
    program.branch(program.b.cond(program.p, lambda: True, lambda: False))
    assert program.conditions("Exp", "Log") == ["p", "~p"]


def test_true_and_false_the_other_way_round_is_its_opposite() -> None:
    program = _Program()
    program.branch(program.b.cond(program.p, lambda: False, lambda: True))
    assert program.conditions("Exp", "Log") == ["~p", "p"]


def test_a_predicate_that_counts_in_one_branch_only_is_a_conjunction() -> None:
    program = _Program()
    both = program.b.cond(program.p, lambda: program.b.Identity(program.q), lambda: False)
    program.branch(both)
    assert program.conditions("Exp", "Log") == ["p & q", "~p | ~q"]


def _taken(merge: str) -> str:
    choice = graph(CHOICE, merge, "s = Switch(x, m)\ny = Neg(s:1)")
    analysis = deadness(choice)
    return analysis.text(analysis.of_control(choice["y"]))


def test_a_merge_whose_inputs_may_come_together_has_a_value_of_its_own() -> None:
    assert _taken("m = Merge(false, true, mine) {T=bool, N=3}") == "m"
    assert _taken("m = Merge(mine, q) {T=bool, N=2}") == "q"


def _selected(merge: str) -> list[str]:
    """The conditions of the outputs of a _SwitchN that the index of a Merge selects."""
    choice = graph(CHOICE, merge, "s = _SwitchN(x, m:1) {num_outs=3}")
    analysis = deadness(choice)
    return [analysis.text(analysis.of_output(choice.tensor(f"s:{port}"))) for port in range(3)]


def test_the_index_of_a_merge_is_that_of_the_input_that_arrives() -> None:
    assert _selected("m = Merge(true, false) {T=bool, N=2}") == ["p", "~p", "false"]


def test_the_index_of_a_merge_whose_inputs_may_come_together_has_a_value_of_its_own() -> None:
    assert _selected("m = Merge(true, q) {T=bool, N=2}")[0] == "m:1=0"


@pytest.mark.parametrize("free_constants", [False, True])
def test_an_index_is_compared_with_constants(free_constants: bool) -> None:
    choice = graph(
        CHOICE,
        "m = Merge(true, false) {T=bool, N=2}",
        "second = Const() {dtype=int32, value=int32[]:1}",
        "is_second = Equal(m:1, second)",
        "s = Switch(x, is_second)",
        "y = Neg(s:1)",
    )
    analysis = deadness(choice, free_constants=free_constants)
    assert analysis.text(analysis.of_control(choice["y"])) == "~p"


@pytest.mark.parametrize("through", ["nothing", "conditional", "loop"])
def test_a_loop_variable_that_stays_what_it_was_is_what_it_was(through: str) -> None:
    program = _Program()
    b = program.b

    def unchanged(flag: Any) -> Any:
        if through == "conditional":
            return b.cond(program.q, lambda: b.Identity(flag), lambda: flag)
        if through == "loop":
            return b.while_loop(lambda j, g: j < 2, lambda j, g: (j + 1, g), (0, flag))[1]
        return flag

    def body(i: Any, flag: Any, v: Any) -> Any:
        return i + 1, unchanged(flag), b.cond(flag, lambda: b.Tanh(v), lambda: b.Sigmoid(v))

    after = b.while_loop(lambda i, flag, v: i < 3, body, (0, program.p, program.x))
    program.branch(after[1])
    inside, *outside = program.conditions("Tanh", "Exp", "Log")
    assert inside == "live:while/Merge & while/cond/Less & p"
    assert outside == ["p", "~p"]


@pytest.mark.parametrize("change", ["opposite", "another", "swapped"])
def test_a_loop_variable_that_may_change_has_a_value_of_its_own(change: str) -> None:
    program = _Program()
    b = program.b

    def body(i: Any, flag: Any, more: Any) -> Any:
        if change == "opposite":
            return i + 1, b.LogicalNot(flag), more
        return (i + 1, program.q, more) if change == "another" else (i + 1, more, flag)

    after = b.while_loop(lambda i, *flags: i < 3, body, (0, program.p, program.q))
    program.branch(after[1])
    assert program.conditions("Exp") == ["while/Exit_1"]


def test_a_choice_in_a_loop_is_looked_at_again_when_its_sides_are() -> None:
    choice = graph("""
        x = Placeholder() {dtype=float32}
        y = Placeholder() {dtype=float32}
        go = Placeholder() {dtype=bool}
        p = Placeholder() {dtype=bool}
        e = Enter(x) {frame_name="loop"}
        d = Enter(y) {frame_name="loop"}
        bound = Enter(go) {frame_name="loop", is_constant=true}
        test = Enter(p) {frame_name="loop", is_constant=true}
        m = Merge(e, n) {T=float32, N=2}
        lost = Merge(d, k) {T=float32, N=2}
        c = LoopCond(bound)
        s = Switch(m, c)
        u = Switch(lost, c)
        split = Switch(u:1, test)
        k = NextIteration(split:1)
        side = Switch(s:1, test)
        t = Identity(side:1)
        f = Identity(split:0)
        true = Const(^t) {dtype=bool, value=bool[]:true}
        false = Const(^f) {dtype=bool, value=bool[]:false}
        chosen = Merge(false, true) {T=bool, N=2}
        again = Switch(m, chosen)
        one = Neg(again:0)
        other = Neg(split:0)
        n = NextIteration(s:1)
        out = Exit(s)
        lost_out = Exit(u)
    """)
    analysis = deadness(choice)
    assert analysis.implies(choice["one"], choice["other"])
    assert analysis.text(analysis.of_control(choice["lost"])) != analysis.text(
        analysis.of_control(choice["m"])
    )
    assert analysis.equal(choice["one"], choice["other"])
