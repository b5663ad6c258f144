"""Findings on accesses to one resource that no edge orders."""

from __future__ import annotations

import pytest

import cfgraph
from cfgraph.analysis.check import check
from cfgraph.analysis.findings import Finding
from cfgraph.analysis.loops.frames import frames
from cfgraph.analysis.loops.happens_before import HappensBefore
from tests.analysis.graph_text import graph

VARIABLE = """
    v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
    x = Placeholder() {dtype=float32, shape=[]}
    p = Placeholder() {dtype=bool, shape=[]}
"""
REFERENCE = """
    v = VariableV2() {dtype=float32, shape=[]}
    x = Placeholder() {dtype=float32, shape=[]}
"""


def races(*texts: str, fetches: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The pairs of nodes in race findings."""
    return [item.related for item in messages(*texts, fetches=fetches)]


def messages(*texts: str, fetches: tuple[str, ...] = ()) -> list[Finding]:
    reported = check(graph(*texts), fetches).findings
    return [item for item in reported if item.code == "CFG225"]


def test_a_read_and_a_write_that_one_node_waits_for_are_a_race() -> None:
    (finding,) = messages(
        VARIABLE,
        """
        read = ReadVariableOp(v) {dtype=float32}
        more = AssignAddVariableOp(v, x)
        y = Neg(read, ^more)
        """,
    )
    assert finding.related == ("read", "more")
    assert finding.message == (
        "ReadVariableOp 'read' and AssignAddVariableOp 'more' both use 'v' in no defined order"
    )


@pytest.mark.parametrize("order", ["^read", "^way"])
def test_a_path_of_any_kind_is_an_order(order: str) -> None:
    text = f"""
        read = ReadVariableOp(v) {{dtype=float32}}
        way = Neg(read)
        more = AssignAddVariableOp(v, x, {order})
        y = Neg(read, ^more)
    """
    assert races(VARIABLE, text) == []


def test_two_reads_are_no_race() -> None:
    text = """
        one = ReadVariableOp(v) {dtype=float32}
        other = ReadVariableOp(v) {dtype=float32}
        y = AddV2(one, other)
    """
    assert races(VARIABLE, text) == []


INITIALIZED = """
    init = AssignVariableOp(v, x)
    more = AssignAddVariableOp(v, x)
    read = ReadVariableOp(v, ^more) {dtype=float32}
    y = Neg(read)
"""


def test_what_no_run_has_together_is_no_race() -> None:
    assert races(VARIABLE, INITIALIZED) == []
    assert races(VARIABLE, INITIALIZED, fetches=("y",)) == []


def test_what_is_fetched_together_is_one_run() -> None:
    pairs = [("init", "more"), ("init", "read")]
    assert races(VARIABLE, INITIALIZED, fetches=("y", "init")) == pairs


def test_two_handles_of_one_name_are_one_variable() -> None:
    text = """
        again = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
        other = VarHandleOp() {dtype=float32, shape=[], shared_name="w"}
        read = ReadVariableOp(v) {dtype=float32}
        more = AssignAddVariableOp(again, x)
        apart = AssignAddVariableOp(other, x)
        all = NoOp(^read, ^more, ^apart)
    """
    assert races(VARIABLE, text) == [("read", "more")]


SIDES = """
    s = Switch(x, p)
    one = AssignAddVariableOp(v, s:0)
    other = AssignAddVariableOp(v, s:SIDE)
    a = Const(^one) {dtype=float32, value=float32[]:1}
    b = Const(^other) {dtype=float32, value=float32[]:2}
    y = JOIN(a, b)
"""


def test_effects_on_both_sides_of_a_conditional_are_no_race() -> None:
    text = SIDES.replace("SIDE", "1").replace("JOIN", "Merge")
    assert races(VARIABLE, text) == []


def test_the_values_that_let_both_run_are_reported() -> None:
    (finding,) = messages(VARIABLE, SIDES.replace("SIDE", "0").replace("JOIN", "AddV2"))
    assert finding.related == ("one", "other")
    assert finding.message.endswith(": with `p` false")


def test_a_reference_is_read_by_whoever_takes_its_value() -> None:
    text = """
        read = Identity(v)
        y = Neg(read)
        more = AssignAdd(v, x)
        both = NoOp(^y, ^more)
    """
    assert races(REFERENCE, text) == [("read", "more")]


def test_a_forwarded_reference_is_the_same_variable() -> None:
    text = """
        same = RefIdentity(v)
        one = Assign(same, x)
        two = AssignAdd(one, x)
        read = Identity(v, ^one)
        both = AddV2(two, read)
    """
    assert races(REFERENCE, text) == [("two", "read")]


LOOP = """
    zero = Const() {dtype=float32, value=float32[]:0}
    e = Enter(zero) {frame_name="loop"}
    h = Enter(v) {frame_name="loop", is_constant=true}
    bound = Enter(x) {frame_name="loop", is_constant=true}
    m = Merge(e, n)
    less = Less(m, bound)
    c = LoopCond(less)
    s = Switch(m, c)
    i = Identity(s:1)
    more = AssignAddVariableOp(h, i)
    n = NextIteration(i CONTROL)
    out = Exit(s)
    after = ReadVariableOp(v, ^out) {dtype=float32}
    y = AddV2(out, after, ^run)
    run = NoOp(^out OTHER)
"""


def test_what_follows_a_loop_follows_what_its_rounds_wait_for() -> None:
    waits = LOOP.replace("CONTROL", ", ^more").replace("OTHER", "")
    found = graph(VARIABLE, waits)
    nodes = [found["more"], found["after"]]
    before = HappensBefore(frames(found), nodes)
    assert before.of[found["after"]] == 1
    assert before.of[found["more"]] == 0


# a second variable waits for the effect, and leaves the loop by an Exit of its own
LOOSE = (
    LOOP.replace("CONTROL", "").replace("OTHER", ", ^left")
    + """
    e2 = Enter(zero) {frame_name="loop"}
    m2 = Merge(e2, n2)
    s2 = Switch(m2, c)
    i2 = Identity(s2:1, ^more)
    n2 = NextIteration(i2)
    left = Exit(s2)
"""
)


def test_what_a_round_does_not_wait_for_may_come_after_the_loop() -> None:
    assert races(VARIABLE, LOOSE) == [("more", "after"), ("more",)]


def test_the_rounds_of_one_variable_may_wait_for_those_of_another() -> None:
    assert races(VARIABLE, LOOSE.replace("Less(m, bound)", "Less(m, m2)")) == []


def test_an_access_that_no_back_edge_waits_for_races_with_the_next_iteration() -> None:
    (finding,) = messages(VARIABLE, LOOP.replace("CONTROL", "").replace("OTHER", ", ^out"))
    assert finding.message == (
        "AssignAddVariableOp 'more' uses 'v' in no defined order: 'more' in the next iteration"
        " of /loop does not wait for 'more'"
    )
    assert finding.hint == "order the iterations, for example by a control edge '^more' into 'n'"
    assert (finding.node, finding.related, finding.frame) == ("more", ("more",), "/loop")


def test_iterations_that_do_not_overlap_do_not_race() -> None:
    loose = LOOP.replace("CONTROL", "").replace("OTHER", "")
    single = loose.replace('{frame_name="loop"', '{frame_name="loop", parallel_iterations=1')
    assert races(VARIABLE, loose) == [("more",)]
    assert races(VARIABLE, single) == []


def test_an_access_that_depends_on_no_loop_variable_races_with_itself() -> None:
    text = LOOP.replace("CONTROL", ", ^more").replace("OTHER", "")
    assert races(VARIABLE, text) == []
    assert races(VARIABLE, text.replace("Op(h, i)", "Op(h, bound)")) == [("more",)]


def test_the_predicate_of_the_next_iteration_is_an_order() -> None:
    # the effect of an iteration precedes the predicate of the next one, which all of it waits for
    text = LOOSE.replace("^out , ^left", "^out")
    assert races(VARIABLE, text) == [("more",)]
    assert races(VARIABLE, text.replace("Less(m, bound)", "Less(m, m2)")) == []


SIDES_OF_A_LOOP = (
    LOOP.partition("    more =")[0]
    + """
    side = Enter(p) {frame_name="loop", is_constant=true}
    early = Less(i, zero_in)
    zero_in = Const(^i) {dtype=float32, value=float32[]:1}
    way = Switch(i, PREDICATE)
    one = Identity(way:1)
    write = AssignVariableOp(h, one)
    other = Identity(way:0)
    read = ReadVariableOp(h, ^other) {dtype=float32}
    sync = ControlTrigger(AWAITED)
    n = NextIteration(i, ^sync)
    out = Exit(s)
    y = Neg(out)
"""
)


@pytest.mark.parametrize(
    ("predicate", "awaited", "pairs"),
    [
        ("early", "^read, ^write", []),
        ("early", "^write", [("read", "write")]),
        # one predicate for all iterations: they all take the same side
        ("side", "^write", []),
        ("side", "^read", [("write",)]),
    ],
)
def test_the_sides_of_a_conditional_may_race_in_different_iterations(
    predicate: str, awaited: str, pairs: list[tuple[str, ...]]
) -> None:
    text = SIDES_OF_A_LOOP.replace("PREDICATE", predicate).replace("AWAITED", awaited)
    # a run that needs both accesses
    assert races(VARIABLE, text, fetches=("y", "read", "write")) == pairs


NESTED = """
    zero = Const() {dtype=float32, value=float32[]:0}
    size = Const() {dtype=int32, value=int32[]:-1}
    e = Enter(zero) {frame_name="outer"}
    bound = Enter(x) {frame_name="outer", is_constant=true}
    m = Merge(e, n)
    c = LoopCond(less)
    less = Less(m, bound)
    s = Switch(m, c)
    i = Identity(s:1)
    RESOURCE
    h = Enter(handle) {frame_name="inner", is_constant=true}
    e2 = Enter(i) {frame_name="inner"}
    bound2 = Enter(bound) {frame_name="inner", is_constant=true}
    m2 = Merge(e2, n2)
    less2 = Less(m2, bound2)
    c2 = LoopCond(less2)
    s2 = Switch(m2, c2)
    i2 = Identity(s2:1)
    more = ACCESS
    n2 = NextIteration(i2, ^more)
    out2 = Exit(s2)
    n = NextIteration(BACK)
    out = Exit(s)
    y = Neg(out)
"""
PUSH = NESTED.replace("ACCESS", "StackPushV2(h, i2)").replace("BACK", "i")


def test_an_inner_loop_may_race_with_that_of_the_next_outer_iteration() -> None:
    text = NESTED.replace("RESOURCE", "handle = Enter(v) {frame_name='outer', is_constant=true}")
    text = text.replace("'", '"').replace("ACCESS", "AssignAddVariableOp(h, i2)")
    assert races(VARIABLE, text.replace("BACK", "out2")) == []
    (finding,) = messages(VARIABLE, text.replace("BACK", "i"))
    assert (finding.related, finding.frame) == (("more",), "/outer")
    assert finding.hint == "let 'more' depend on a loop variable that waits for 'more'"


def test_a_stack_of_each_iteration_is_not_shared_with_the_next() -> None:
    new = """
    size_in = Enter(size) {frame_name="outer", is_constant=true}
    handle = StackV2(size_in, ^i) {elem_type=float32}
    """
    shared = """
    stack = StackV2(size) {elem_type=float32}
    handle = Enter(stack) {frame_name="outer", is_constant=true}
    """
    assert races(VARIABLE, PUSH.replace("RESOURCE", new)) == []
    assert races(VARIABLE, PUSH.replace("RESOURCE", shared)) == [("more",)]


def test_effects_in_a_function_are_all_of_one_run() -> None:
    found = cfgraph.loads(
        b"""
        function f(handle: resource, x: float32) -> (y: float32) {
            read = ReadVariableOp(handle) {dtype=float32}
            more = AssignAddVariableOp(handle, x) {dtype=float32}
            return y = read:value:0
        }
        """,
        "graph",
    )
    findings = [item for item in check(found).findings if item.code == "CFG225"]
    assert [(item.node, item.related) for item in findings] == [("f/more", ("read", "more"))]


def test_very_many_effects_are_not_compared() -> None:
    lines = ["v = VariableV2() {dtype=float32, shape=[]}", "x = Placeholder() {dtype=float32}"]
    lines += [f"a{k} = AssignAdd(v, x)" for k in range(2100)]
    (finding,) = check(graph("\n".join(lines))).findings
    assert finding.code == "CFG222"
    assert finding.message.startswith("2100 resource accesses")
