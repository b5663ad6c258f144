from __future__ import annotations

from typing import Any

import pytest

import cfgraph
from cfgraph.analysis.deadness.deadness import Deadness, deadness
from cfgraph.build.builder import Builder
from cfgraph.passes.lowering import lower
from tests.analysis.graph_text import graph


def lowered(builder: Builder) -> tuple[Deadness, cfgraph.Graph]:
    lower(builder.graph)
    return deadness(builder.graph), builder.graph


def of_op(of: cfgraph.Graph, op: str) -> list[cfgraph.Node]:
    nodes = [node for node in of if node.op == op]
    assert nodes, op
    return nodes


def only_node(of: cfgraph.Graph, op: str) -> cfgraph.Node:
    (node,) = of_op(of, op)
    return node


def counted(b: Builder, body: Any, *variables: Any) -> Any:
    """A loop of three iterations over some variables."""
    return b.while_loop(
        lambda i, *rest: i < 3, lambda i, *rest: (i + 1, *body(*rest)), (0, *variables)
    )


# -- imprecisions of TensorFlow's analysis, one by one -----------------------------------------


def test_a_what_follows_a_conditional_in_a_loop_runs_with_what_comes_before_it() -> None:
    b = Builder()
    x, p = b.placeholder("x"), b.placeholder("p", "bool", [])

    def body(v: Any) -> Any:
        before = b.Tanh(v)
        return [b.Sigmoid(b.cond(p, lambda: b.Exp(before), lambda: b.Log(before)))]

    counted(b, body, x)
    found, of = lowered(b)
    assert found.equal(only_node(of, "Tanh"), only_node(of, "Sigmoid"))
    assert not found.equal(only_node(of, "Exp"), only_node(of, "Tanh"))
    assert found.implies(only_node(of, "Exp"), only_node(of, "Tanh"))


def test_b_a_nested_loop_that_updates_an_outer_variable_is_recognised() -> None:
    b = Builder()
    x = b.placeholder("x")

    def outer(v: Any) -> Any:
        before = b.Tanh(v)
        _, inner = counted(b, lambda w: [b.Exp(w)], before)
        return [b.Sigmoid(inner)]

    _, y = counted(b, outer, x)
    b.Log(y)
    found, of = lowered(b)
    assert found.equal(only_node(of, "Tanh"), only_node(of, "Sigmoid"))
    assert found.always_live(only_node(of, "Log"))
    assert not found.equal(only_node(of, "Exp"), only_node(of, "Tanh"))


@pytest.mark.parametrize("captures", [False, True])
def test_c_a_loop_in_a_branch_exits_where_the_branch_runs(captures: bool) -> None:
    b = Builder()
    x, y, p = b.placeholder("x"), b.placeholder("y"), b.placeholder("p", "bool", [])

    def then() -> Any:
        before = b.Tanh(x)
        held = b.Exp(y)
        _, z = counted(b, lambda v: [v + held if captures else b.Neg(v)], before)
        return b.Sigmoid(z)

    b.cond(p, then, lambda: b.Log(x))
    found, of = lowered(b)
    assert found.equal(only_node(of, "Tanh"), only_node(of, "Sigmoid"))
    assert found.text(found.of_control(only_node(of, "Sigmoid"))) == "p"


OLD_COND = """
    x = Placeholder() {dtype=float32}
    p = Placeholder() {dtype=bool}
    pivot = Switch(p, p)
    pred_id = Identity(p)
    pivot_t = Identity(pivot:1)
    pivot_f = Identity(pivot:0)
    s = Switch(x, pred_id)
    c = Const(^pivot_t) {dtype=float32, value=float32[]:1}
    a = Neg(s:1)
    both = AddV2(a, c)
    f = Const(^pivot_f) {dtype=float32, value=float32[]:2}
    m = Merge(f, both) {T=float32, N=2}
"""


def test_d_an_identity_of_the_predicate_is_the_predicate() -> None:
    of = graph(OLD_COND)
    analysis = deadness(of)
    assert analysis.equal(of["c"], of["a"])
    assert not analysis.has_mismatched_inputs(of["both"])
    assert analysis.always_live(of["m"])


def test_e_negated_and_recomputed_predicates_are_recognised() -> None:
    of = graph("""
        x = Placeholder() {dtype=float32}
        p = Less(x, x)
        again = Less(x, x)
        other = Greater(x, x)
        not = LogicalNot(again)
        s = Switch(x, p)
        t = Switch(x, not)
        u = Switch(x, other)
        a = Neg(s:1)
        b = Neg(t:0)
        c = Neg(u:1)
    """)
    analysis = deadness(of)
    assert analysis.equal(of["a"], of["b"])
    assert not analysis.equal(of["a"], of["c"])


def test_e_random_predicates_are_not_the_same() -> None:
    of = graph("""
        x = Placeholder() {dtype=float32}
        shape = Const() {dtype=int32, value=int32[0]:[]}
        half = Const() {dtype=float32, value=float32[]:0.5}
        r1 = RandomUniform(shape) {T=int32, dtype=float32}
        r2 = RandomUniform(shape) {T=int32, dtype=float32}
        p = Less(r1, half)
        q = Less(r2, half)
        s = Switch(x, p)
        t = Switch(x, q)
        a = Neg(s:1)
        b = Neg(t:1)
    """)
    analysis = deadness(of)
    assert not analysis.equal(of["a"], of["b"])


LOOP = """
    x = Placeholder() {dtype=float32}
    w = Placeholder() {dtype=float32}
    limit = Placeholder() {dtype=float32}
    e = Enter(x) {frame_name="loop"}
    held = Enter(w) {frame_name="loop", is_constant=true}
    bound = Enter(limit) {frame_name="loop", is_constant=true}
    m = Merge(e, n) {T=float32, N=2}
    less = Less(m, bound)
    c = LoopCond(less)
    s = Switch(m, c)
    body = Neg(s:1)
    invariant = Neg(held)
    n = NextIteration(body)
    last = Abs(s:0)
    out = Exit(last)
    after = Neg(out)
"""


def test_f_what_runs_in_the_last_iteration_only_differs_from_what_runs_in_each() -> None:
    of = graph(LOOP)
    analysis = deadness(of)
    assert not analysis.equal(of["last"], of["invariant"])
    assert analysis.equal(of["invariant"], of["m"])
    assert analysis.always_live(of["after"])


def test_g_nothing_of_an_iteration_is_known_outside_of_the_loop() -> None:
    of = graph(
        LOOP,
        """
        odd = Exit(body)
        y = Neg(odd)
        z = AddV2(y, after)
        """,
    )
    analysis = deadness(of)
    # live in every iteration but the last, so it may never be live
    assert not analysis.always_live(of["y"])
    assert analysis.formulas.depth(analysis.of_control(of["y"])) == 0
    assert analysis.can_both_live(of["y"], of["after"])
    assert analysis.equal(of["z"], of["y"])


def test_h_the_control_edges_of_a_switch_do_not_depend_on_the_index() -> None:
    of = graph("""
        x = Placeholder() {dtype=float32}
        i = Placeholder() {dtype=int32}
        s = _SwitchN(x, i) {num_outs=3, T=float32}
        after = NoOp(^s)
    """)
    assert deadness(of).always_live(of["after"])


def test_i_what_reads_a_node_runs_only_if_the_node_does() -> None:
    b = Builder()
    x, p = b.placeholder("x"), b.placeholder("p", "bool", [])
    counted(b, lambda v: [b.cond(p, lambda: b.Exp(v), lambda: b.Log(v))], x)
    found, of = lowered(b)
    for node in of:
        if node.op not in ("Merge", "Enter", "Exit"):
            for item in node.inputs:
                if item.node.op not in ("Enter", "Exit", "NextIteration"):
                    assert found.implies(node, item), (node, item)


# -- classes of tokens ----------------------------------------------------------------------------


def test_all_variables_of_a_loop_are_live_together() -> None:
    b = Builder()
    x, y = b.placeholder("x"), b.placeholder("y")
    counted(b, lambda v, w: [b.Tanh(w), b.Exp(v)], x, y)
    found, of = lowered(b)
    assert found.equal(only_node(of, "Tanh"), only_node(of, "Exp"))


def test_variables_that_start_differently_differ() -> None:
    of = graph("""
        x = Placeholder() {dtype=float32}
        p = Placeholder() {dtype=bool}
        go = Placeholder() {dtype=bool}
        sw = Switch(x, p)
        e1 = Enter(x) {frame_name="loop"}
        e2 = Enter(sw:1) {frame_name="loop"}
        g = Enter(go) {frame_name="loop", is_constant=true}
        m1 = Merge(e1, n1) {T=float32, N=2}
        m2 = Merge(e2, n2) {T=float32, N=2}
        c = LoopCond(g)
        s1 = Switch(m1, c)
        s2 = Switch(m2, c)
        n1 = NextIteration(s1:1)
        n2 = NextIteration(s2:1)
        o1 = Exit(s1)
        o2 = Exit(s2)
    """)
    analysis = deadness(of)
    assert not analysis.equal(of["m1"], of["m2"])
    assert analysis.implies(of["m2"], of["m1"])
    assert analysis.always_live(of["o1"])
    assert analysis.text(analysis.of_control(of["o2"])) == "p"


def test_a_variable_that_is_dropped_differs_from_one_that_is_not() -> None:
    of = graph(
        LOOP,
        """
        e2 = Enter(w) {frame_name="loop"}
        m2 = Merge(e2, n2) {T=float32, N=2}
        odd = Less(m2, m)
        s2 = Switch(m2, c)
        t2 = Switch(s2:1, odd)
        n2 = NextIteration(t2:1)
        """,
    )
    analysis = deadness(of)
    assert not analysis.equal(of["m"], of["m2"])
    assert not analysis.equal(of["invariant"], of["m2"])
    assert analysis.equal(of["invariant"], of["m"])


def test_a_dead_enter_means_a_dead_exit() -> None:
    of = graph(
        "p = Placeholder() {dtype=bool}\nsw = Switch(raw, p)\nraw = Placeholder() {dtype=float32}",
        LOOP.replace("x = Placeholder() {dtype=float32}", "x = Neg(sw:1)"),
    )
    analysis = deadness(of)
    assert analysis.text(analysis.of_control(of["out"])) == "p"
    assert analysis.equal(of["after"], of["x"])


def test_an_enter_that_is_not_constant_comes_once() -> None:
    of = graph(LOOP, 'once = Enter(w) {frame_name="loop"}\nfirst = Neg(once)')
    analysis = deadness(of)
    assert not analysis.equal(of["first"], of["m"])
    assert not analysis.always_live(of["first"])


def test_two_enters_at_one_merge_are_a_race_if_one_may_be_dead() -> None:
    of = graph("""
        x = Placeholder() {dtype=float32}
        p = Placeholder() {dtype=bool}
        sw = Switch(x, p)
        e1 = Enter(sw:0) {frame_name="loop"}
        e2 = Enter(sw:1) {frame_name="loop"}
        m = Merge(e1, e2) {T=float32, N=2}
        out = Exit(m)
        safe = Merge(e3, e4) {T=float32, N=2}
        e3 = Enter(x) {frame_name="loop"}
        e4 = Enter(x) {frame_name="loop"}
        fine = Exit(safe)
    """)
    analysis = deadness(of)
    assert not analysis.always_live(of["out"])
    assert not analysis.never_live(of["out"])
    assert analysis.always_live(of["fine"])


def test_a_trigger_in_a_loop_runs_in_each_iteration_that_its_inputs_come_in() -> None:
    of = graph(LOOP, "gate = ControlTrigger(^body)\ntick = NoOp(^gate)")
    analysis = deadness(of)
    assert analysis.equal(of["tick"], of["m"])


def test_equal_predicates_in_two_loops_are_not_equal() -> None:
    b = Builder()
    x = b.placeholder("x")
    _, y = counted(b, lambda v: [b.Tanh(v)], x)
    counted(b, lambda v: [b.Exp(v)], y)
    found, of = lowered(b)
    assert not found.equal(only_node(of, "Tanh"), only_node(of, "Exp"))
    assert not found.implies(only_node(of, "Tanh"), only_node(of, "Exp"))


def nest(depth: int) -> Builder:
    """Three nested loops, with work before and after each."""
    b = Builder()

    def level(v: Any, left: int) -> Any:
        before = b.Tanh(v)
        inner = before
        if left:
            _, inner = counted(b, lambda w: [level(w, left - 1)], before)
        return b.Sigmoid(inner)

    level(b.placeholder("x"), depth)
    return b


def test_a_nest_ten_deep_is_found_whole() -> None:
    found, of = lowered(nest(10))
    before, after = of_op(of, "Tanh"), of_op(of, "Sigmoid")
    assert len(before) == len(after) == 11
    by_frame = {found.frames.of[node]: node for node in before}
    assert len(by_frame) == 11
    assert all(found.equal(node, by_frame[found.frames.of[node]]) for node in after)
    assert not found.limits
