from __future__ import annotations

import random
import textwrap

import pytest

import cfgraph
from cfgraph.analysis.check import check
from cfgraph.analysis.deadness.pretty import describe_assignment
from tests.analysis.graph_text import codes_and_nodes, findings, graph

INPUTS = """
    x = Placeholder() {dtype=float32}
    p = Placeholder() {dtype=bool}
    q = Placeholder() {dtype=bool}
    i = Placeholder() {dtype=int32}
"""


def codes_of(text: str) -> list[tuple[str, str | None]]:
    return codes_and_nodes(findings(textwrap.dedent(INPUTS) + textwrap.dedent(text)))


def test_a_race_is_reported_with_values_that_cause_it() -> None:
    (finding,) = findings(
        textwrap.dedent(INPUTS)
        + textwrap.dedent("""
            s = Switch(x, p)
            t = Switch(s:0, q)
            m = Merge(s:0, t:1) {T=float32, N=2}
        """)
    )
    assert finding.code == "CFG220"
    assert finding.message.endswith("with `p` false, `q` true")
    assert finding.related == ("s:0", "t:1")


def test_a_race_that_always_happens_is_reported_as_such() -> None:
    (finding,) = findings(
        textwrap.dedent(INPUTS) + "y = Neg(x)\nm = Merge(x, y) {T=float32, N=2}\ns = Switch(x, p)"
    )
    assert finding.message.endswith("they always are")


@pytest.mark.parametrize("branches", [2, 3, 40])
def test_the_branches_of_one_switch_are_no_race(branches: int) -> None:
    sources = ", ".join(f"s:{port}" for port in range(branches))
    assert not codes_of(f"""
        s = _SwitchN(x, i) {{num_outs={branches}, T=float32}}
        m = Merge({sources}) {{T=float32, N={branches}}}
    """)


def test_the_same_tensor_twice_is_no_race() -> None:
    assert not codes_of("s = Switch(x, p)\nm = Merge(s:0, s:0) {T=float32, N=2}")


def test_a_race_needs_no_switch() -> None:
    (finding,) = findings(
        textwrap.dedent(INPUTS) + "y = Neg(x)\nm = Merge(x, y, x) {T=float32, N=3}"
    )
    assert (finding.code, finding.related) == ("CFG220", ("x:0", "y:0"))
    assert finding.message.endswith("they always are")


def entered(first: str, second: str) -> list[tuple[str, str | None]]:
    return codes_of(f"""
        s = Switch(x, p)
        one = Enter({first}) {{frame_name="loop"}}
        two = Enter({second}) {{frame_name="loop"}}
        go = Enter(q) {{frame_name="loop", is_constant=true}}
        m = Merge(one, two, n) {{T=float32, N=3}}
        c = LoopCond(go)
        t = Switch(m, c)
        n = NextIteration(t:1)
        out = Exit(t)
        y = Neg(out)
    """)


def test_two_live_values_that_enter_a_loop_race() -> None:
    assert ("CFG220", "m") in entered("x", "s:1")


def test_two_sides_that_enter_a_loop_do_not() -> None:
    assert ("CFG220", "m") not in entered("s:0", "s:1")


def test_of_nodes_that_never_run_only_the_first_is_named() -> None:
    assert codes_of("""
        s = Switch(x, p)
        both = AddV2(s:0, s:1)
        y = Neg(both)
        z = Abs(y)
    """) == [("CFG221", "both")]


def test_a_race_in_a_loop_names_the_loop() -> None:
    (finding,) = findings("""
x = Placeholder() {dtype=float32}
limit = Placeholder() {dtype=float32}
e = Enter(x) {frame_name="loop"}
bound = Enter(limit) {frame_name="loop", is_constant=true}
m = Merge(e, n) {T=float32, N=2}
less = Less(m, bound)
c = LoopCond(less)
s = Switch(m, c)
a = Neg(s:1)
b = Abs(s:1)
race = Merge(a, b) {T=float32, N=2}
n = NextIteration(race)
out = Exit(s)
""")
    assert (finding.code, finding.node, finding.frame) == ("CFG220", "race", "/loop")


def test_a_value_of_each_iteration_races_with_that_of_the_last_one() -> None:
    assert codes_of("""
        k = Enter(x) {frame_name="loop"}
        j = Merge(k, back) {T=float32, N=2}
        m = Merge(j:1, n) {T=int32, N=2}
        go = Enter(q) {frame_name="loop", is_constant=true}
        c = LoopCond(go)
        s = Switch(j, c) {T=float32}
        t = Switch(m, c) {T=int32}
        back = NextIteration(s:1) {T=float32}
        n = NextIteration(t:1) {T=int32}
        y = Exit(s) {T=float32}
        z = Exit(t) {T=int32}
    """) == [("CFG220", "m")]


@pytest.mark.parametrize(("value", "races"), [("sw:1", False), ("once", False), ("always", True)])
def test_a_value_of_the_first_iteration_alone_does_not(value: str, races: bool) -> None:
    codes = codes_of(f"""
        zero = Const() {{dtype=int32, value=int32[]:0}}
        three = Const() {{dtype=int32, value=int32[]:3}}
        step = Const() {{dtype=int32, value=int32[]:1}}
        ie = Enter(zero) {{frame_name="loop"}}
        zeroe = Enter(zero) {{frame_name="loop", is_constant=true}}
        threee = Enter(three) {{frame_name="loop", is_constant=true}}
        stepe = Enter(step) {{frame_name="loop", is_constant=true}}
        xe = Enter(x) {{frame_name="loop", is_constant=true}}
        im = Merge(ie, inext) {{T=int32, N=2}}
        less = Less(im, threee)
        c = LoopCond(less)
        si = Switch(im, c)
        add = AddV2(si:1, stepe)
        inext = NextIteration(add)
        isfirst = Equal(im, zeroe)
        sw = Switch(xe, isfirst)
        start = Enter(x) {{frame_name="loop"}}
        once = Identity(start)
        always = Identity(xe)
        m = Merge({value}, n) {{T=float32, N=2}}
        t = Switch(m, c)
        neg = Neg(t:1)
        n = NextIteration(neg)
        z = Exit(t)
    """)
    assert (("CFG220", "m") in codes) is races


def clauses(count: int) -> str:
    """A Merge of x and a node that is live if a random 3SAT formula holds."""
    draw = random.Random(5)
    lines = [f"p{place} = Placeholder() {{dtype=bool}}" for place in range(count)]
    lines += ["x = Placeholder() {dtype=float32}"]
    lines += [f"s{place} = Switch(x, p{place})" for place in range(count)]
    total = int(4.26 * count)
    for number in range(total):
        sides = [f"s{place}:{draw.randrange(2)}" for place in draw.sample(range(count), 3)]
        lines.append(f"c{number} = Merge({', '.join(sides)}) {{T=float32, N=3}}")
    controls = ", ".join(f"^c{number}" for number in range(total))
    lines += [f"all = NoOp({controls})", "y = Neg(x, ^all)"]
    return "\n".join(lines)


def test_what_is_too_hard_to_decide_is_left_open_and_said_so() -> None:
    report = findings(clauses(250))
    (note,) = [finding for finding in report if finding.code == "CFG222"]
    assert "undecided within the bound" in note.message
    assert not [finding for finding in report if finding.code == "CFG221"]


def test_values_are_written_as_people_read_them() -> None:
    assert describe_assignment({"p": True, "q": False, "i": 2}) == "`p` true, `q` false, `i` 2"
    assert describe_assignment({"live:m": True, "live:n": False}) == "`m` live, `n` dead"
    assert describe_assignment({"first:m": False}) == "`m` reached by a dead input first"


SIDES = """
    s = Switch(x, p)
    a = Neg(s:1)
    b = Abs(s:0)
    m = Merge(a, b) {T=float32, N=2}
    y = Neg(m)
    side = Exp(a)
    done = NoOp(^b)
"""


def of_fetches(*names: str) -> list[tuple[str, str, str | None]]:
    report = check(graph(INPUTS, SIDES), names)
    return [(item.level, item.message, item.node) for item in report.findings]


def test_what_nothing_reads_and_may_be_dead_is_noted() -> None:
    message = "'side:0' has no reader and is dead in some runs: with `p` false"
    assert of_fetches() == [("note", message, "side")]


def test_a_fetch_that_may_be_dead_is_warned_of_with_values_that_make_it_so() -> None:
    assert of_fetches("y") == []
    message = "'side:0' is fetched and may be dead: with `p` false"
    assert of_fetches("y", "side:0") == [("warning", message, "side")]


def test_a_target_may_be_dead_too() -> None:
    message = "'done' is fetched and may be dead: with `p` true"
    assert of_fetches("done") == [("warning", message, "done")]


def test_a_fetch_that_is_none_is_refused() -> None:
    with pytest.raises(cfgraph.UsageError, match="sidee"):
        of_fetches("sidee")
