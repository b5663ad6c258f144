from __future__ import annotations

from pathlib import Path

import cfgraph
from cfgraph.analysis.check import check
from cfgraph.analysis.deadness.deadness import Deadness, deadness
from tests.analysis.graph_text import LOOP, graph

INPUTS = """
    x = Placeholder() {dtype=float32}
    p = Placeholder() {dtype=bool}
    q = Placeholder() {dtype=bool}
    i = Placeholder() {dtype=int32}
"""


def predicates_of(text: str) -> dict[str, str]:
    """The liveness condition of every node of a graph text."""
    return texts(graph(INPUTS, text))


def texts(of: cfgraph.Graph) -> dict[str, str]:
    analysis = deadness(of)
    return {node.name: analysis.text(analysis.of_control(node)) for node in of}


def analysed(text: str) -> tuple[Deadness, cfgraph.Graph]:
    of = graph(INPUTS, text)
    return deadness(of), of


# -- the original example -------------------------------------------------------------------------


def test_both_branches_of_the_diamond_run_in_turn_and_what_follows_always() -> None:
    conditions = predicates_of("""
        s = Switch(x, p)
        minus = Neg(s:1)
        plus = Abs(s:0)
        m = Merge(minus, plus) {T=float32, N=2}
        y = Neg(m)
    """)
    assert (conditions["minus"], conditions["plus"], conditions["y"]) == ("p", "~p", "true")


def test_add_of_two_switches_runs_when_both_predicates_hold() -> None:
    found, of = analysed("""
        s = Switch(x, p)
        t = Switch(x, q)
        add = AddV2(s:1, t:1)
    """)
    assert found.text(found.of_control(of["add"])) == "p & q"
    assert found.describe(found.of_control(of["add"])) == "runs when `p` is true and `q` is true"
    assert found.has_mismatched_inputs(of["add"])


def test_the_nodes_that_the_seed_must_not_cluster_differ(root: Path) -> None:
    of = cfgraph.load(root / "fixtures" / "graphs" / "deadness_mismatch.pb")
    analysis = deadness(of)
    assert {node.name for node in of if analysis.has_mismatched_inputs(node)} == {"C"}
    assert analysis.equal(of["A"], of["B"])
    assert not analysis.equal(of["A"], of["C"])
    assert analysis.implies(of["C"], of["A"])
    assert analysis.text(analysis.of_control(of["T"])) == "p"
    assert analysis.text(analysis.of_control(of["S"])) == "true"


def test_an_exit_is_always_live_and_the_body_runs_while_the_loop_continues() -> None:
    of = graph(LOOP)
    conditions = texts(of)
    assert (conditions["out"], conditions["y"]) == ("true", "true")
    assert conditions["m"] == conditions["c"] == conditions["s"] == conditions["bound"] == "live:m"
    assert conditions["body"] == "live:m & p"


# -- the rules of the executor --------------------------------------------------------------------


def test_a_control_edge_from_a_switch_is_live_whichever_branch_is_taken() -> None:
    conditions = predicates_of(
        "s = Switch(x, p)\nafter = NoOp(^s)\nt = Neg(s:1)\nbehind = NoOp(^t)"
    )
    assert (conditions["after"], conditions["behind"]) == ("true", "p")


def test_a_merge_ignores_dead_control_inputs_and_passes_on_its_own_deadness() -> None:
    conditions = predicates_of(
        """
        s = Switch(x, p)
        t = Neg(s:1)
        m = Merge(x, ^t) {T=float32, N=1}
        n = Merge(t, t) {T=float32, N=2}
        index = Neg(n:1)
    """
    )
    assert (conditions["m"], conditions["n"], conditions["index"]) == ("true", "p", "p")


def test_a_control_trigger_is_live_behind_dead_inputs() -> None:
    conditions = predicates_of(
        "s = Switch(x, p)\nt = Neg(s:1)\ngate = ControlTrigger(^t)\nc = NoOp(^gate)"
    )
    assert (conditions["gate"], conditions["c"]) == ("true", "true")


def test_a_message_may_be_dead_but_the_recv_runs() -> None:
    found, of = analysed(
        """
        r = _Recv() {tensor_type=float32, tensor_name="t", send_device="/cpu:0",
                     send_device_incarnation=0, recv_device="/cpu:1"}
        y = Neg(r)
        after = NoOp(^r)
    """.replace("\n                     ", " ")
    )
    assert found.always_live(of["after"])
    assert found.text(found.of_control(of["y"])) == "live:r"


def test_a_switch_of_a_constant_never_takes_the_other_branch() -> None:
    found, of = analysed("""
        yes = Const() {dtype=bool, value=bool[]:true}
        s = Switch(x, yes)
        t = Neg(s:1)
        f = Neg(s:0)
    """)
    assert found.always_live(of["t"])
    assert found.never_live(of["f"])
    assert found.describe(found.of_control(of["f"])) == "never runs"


def test_a_fed_output_is_live() -> None:
    of = graph(INPUTS, "s = Switch(x, p)\nt = Neg(s:1)")
    analysis = deadness(of, cut=[of["s"].output(1)])
    assert analysis.always_live(of["t"])
    assert analysis.text(analysis.of_output(of["s"].output(0))) == "~p"


# -- several branches -----------------------------------------------------------------------------


SPLIT = """
    s = _SwitchN(x, i) {num_outs=3, T=float32}
    a = Neg(s:0)
    b = Neg(s:1)
    c = Neg(s:2)
    m = Merge(a, b, c) {T=float32, N=3}
    two = Merge(a, b) {T=float32, N=2}
    after = NoOp(^s)
"""


def test_one_branch_of_many_is_taken_the_last_where_the_index_is_out_of_range() -> None:
    found, of = analysed(SPLIT)
    shown = [found.text(found.of_control(of[name])) for name in "abc"]
    assert shown == ["i=0", "i=1", "i!=0 & i!=1"]
    assert found.witness(of["c"]) == {"i": 2}
    assert found.witness(of["b"]) == {"i": 1}
    assert not found.can_both_live(of["a"], of["b"])
    assert found.always_live(of["m"])
    assert not found.always_live(of["two"])


def test_control_edges_of_a_switch_with_many_branches_are_live() -> None:
    found, of = analysed(SPLIT)
    assert found.always_live(of["after"])


def test_an_index_that_is_compared_is_the_index_that_chooses() -> None:
    found, of = analysed("""
        one = Const() {dtype=int32, value=int32[]:1}
        is_one = Equal(i, one)
        s = Switch(x, is_one)
        n = _SwitchN(x, i) {num_outs=3, T=float32}
        a = Neg(s:1)
        b = Neg(n:1)
        c = Neg(n:0)
    """)
    assert found.equal(of["a"], of["b"])
    assert not found.can_both_live(of["a"], of["c"])


# -- nested conditionals --------------------------------------------------------------------------


NESTED = """
    s = Switch(x, p)
    qs = Switch(q, p)
    inner = Switch(s:1, qs:1)
    a = Neg(inner:1)
    b = Neg(inner:0)
    joined = Merge(a, b) {T=float32, N=2}
    then = Neg(joined)
    else = Neg(s:0)
    m = Merge(then, else) {T=float32, N=2}
"""


def test_a_conditional_in_a_branch_needs_both_predicates() -> None:
    conditions = predicates_of(NESTED)
    assert [conditions[name] for name in ("a", "b", "joined", "else", "m")] == [
        "p & q",
        "p & ~q",
        "p",
        "~p",
        "true",
    ]


def test_a_witness_names_only_what_matters() -> None:
    found, of = analysed(NESTED)
    assert found.witness(of["b"]) == {"p": True, "q": False}
    assert found.witness(of["else"]) == {"p": False}
    assert found.witness(of["joined"], dead=[of["a"]]) == {"p": True, "q": False}
    assert found.witness(of["a"], of["b"]) is None


def test_implication_differs_from_equality() -> None:
    found, of = analysed(NESTED)
    assert found.implies(of["a"], of["joined"])
    assert not found.implies(of["joined"], of["a"])
    assert not found.equal(of["a"], of["joined"])
    assert found.equal(of["then"], of["joined"])


_KEY = 'tensor_name="a", send_device="/cpu:0", send_device_incarnation=0, recv_device="/cpu:1"'

SENT = """
    s = Switch(x, p)
    a = Neg(s:1)
    send = _Send(a, ^later) {T=float32, KEY}
    later = Neg(t:1)
    t = Switch(x, q)
    r = _Recv() {tensor_type=float32, KEY}
    y = Neg(r)
    after = NoOp(^r)
""".replace("KEY", _KEY)


def test_a_message_is_dead_if_what_its_send_sends_is() -> None:
    found, of = analysed(SENT)
    # a Send that is dead because of a control edge alone sends its value as live
    assert found.text(found.of_control(of["y"])) == "p"
    assert found.equal(of["y"], of["a"])
    assert found.text(found.of_control(of["send"])) == "p & q"
    assert found.always_live(of["after"])


def test_a_message_with_two_senders_may_be_dead_at_any_time() -> None:
    again = SENT.replace("send = ", "again = ").splitlines()[3]
    found, of = analysed(SENT + again)
    assert found.text(found.of_control(of["y"])) == "live:r"


def test_a_predicate_that_is_sent_is_the_same_on_the_other_device() -> None:
    key = 'tensor_name="p", send_device="/cpu:0", send_device_incarnation=0, recv_device="/cpu:1"'
    found, of = analysed(f"""
        send = _Send(p) {{T=bool, {key}}}
        there = _Recv() {{tensor_type=bool, {key}}}
        s = Switch(x, there)
        m = Merge(s:0, s:1) {{T=float32, N=2}}
        t = Switch(x, p)
        a = Neg(s:1)
        b = Neg(t:1)
    """)
    assert found.equal(of["a"], of["b"])
    assert found.always_live(of["m"])


GATED = """
    s = Switch(x, p)
    gate = Identity(s:1)
    r = _Recv(^gate) {tensor_type=float32, KEY}
    y = Neg(r)
    m = Merge(r, r) {T=float32, N=2}
    race = Merge(r, s:0) {T=float32, N=2}
""".replace("KEY", _KEY)


def test_a_merge_takes_the_message_of_a_recv_that_is_dead_by_its_control_inputs() -> None:
    found, of = analysed(GATED)
    assert found.text(found.of_control(of["y"])) == "p & live:r"
    assert found.text(found.of_control(of["m"])) == "live:r"
    assert found.can_both_live(of["race"], of.tensor("s:0"))


def test_two_messages_of_one_merge_may_race_though_one_recv_is_dead() -> None:
    part = graph(INPUTS, GATED)
    for node in part:
        part.set_device(node, "/cpu:1")
    races = [item for item in check(part).findings if item.code == "CFG220"]
    assert [(item.node, item.related) for item in races] == [("race", ("r:0", "s:0"))]


def test_a_message_to_a_loop_counts_in_the_iterations_that_its_recv_comes_in() -> None:
    of = graph(
        LOOP,
        """
        gate = Identity(s:1)
        gated = Switch(body, bound)
        side = Identity(gated:0)
        r = _Recv(^side) {tensor_type=float32, KEY}
        t = Merge(r, r) {T=float32, N=2}
    """.replace("KEY", _KEY),
    )
    analysis = deadness(of)
    assert analysis.never_live(of["r"])
    assert analysis.text(analysis.of_control(of["t"])) != "false"
    assert not analysis.implies(of["t"], of["body"])
