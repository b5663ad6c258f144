"""Unrolled loops compute the same, with the same gradients, and others are kept with a reason."""

from __future__ import annotations

import pytest

import cfgraph
from cfgraph.ir.library import copy_graph
from cfgraph.ir.role import Role
from cfgraph.ir.serde.graph_def import graph_from_bytes, graph_to_proto
from cfgraph.limits import limited
from cfgraph.ops.opdef.op import function_calls, role_of
from tests.analysis.graph_text import graph
from tests.analysis.random_graphs import RECIPES, random_graph
from tests.passes.test_optimize_random import check


def loop(
    start: str = "0", test: str = "Less(i/Merge, limit)", body: str = "Mul", n: int = 3
) -> str:
    """A loop that multiplies x by w, or another op, n times."""
    return f"""
        x = Placeholder() {{dtype=float32, shape=[]}}
        w = Placeholder() {{dtype=float32, shape=[]}}
        zero = Const() {{dtype=int32, value=int32[]:{start}}}
        i/Enter = Enter(zero) {{frame_name="loop"}}
        x/Enter = Enter(x) {{frame_name="loop"}}
        w/Enter = Enter(w) {{frame_name="loop", is_constant=true}}
        i/Merge = Merge(i/Enter, i/Next)
        x/Merge = Merge(x/Enter, x/Next)
        limit = Const(^i/Merge) {{dtype=int32, value=int32[]:{n}}}
        test = {test}
        cond = LoopCond(test)
        i/Switch = Switch(i/Merge, cond)
        x/Switch = Switch(x/Merge, cond)
        one = Const(^i/Switch) {{dtype=int32, value=int32[]:1}}
        add = AddV2(i/Switch:1, one)
        product = {body}(x/Switch:1, w/Enter)
        i/Next = NextIteration(add)
        x/Next = NextIteration(product)
        n = Exit(i/Switch)
        y = Exit(x/Switch)
    """


def test_each_copy_keeps_what_the_file_says_beside_the_attributes() -> None:
    file = graph_to_proto(graph(loop()))
    product = next(node for node in file.node if node.name == "product")
    product.experimental_debug_info.original_node_names.append("source")
    unrolled = graph_from_bytes(file.SerializeToString())
    cfgraph.optimize(unrolled, fetches=["y:0"], unroll=5)
    copies = [node for node in graph_to_proto(unrolled).node if node.op == "Mul"]
    names = [[*node.experimental_debug_info.original_node_names] for node in copies]
    assert names == [["source"]] * 3


def test_copies_are_colocated_only_with_nodes_that_are_left() -> None:
    product = "product = Mul(x/Switch:1, w/Enter)"
    groups = ' {_class=("loc:@x/Merge", "loc:@w")}'
    unrolled = graph(loop().replace(product, product + groups))
    cfgraph.optimize(unrolled, fetches=["y:0"], unroll=5)
    copies = [node for node in unrolled if node.op == "Mul"]
    assert [node.attr("_class") for node in copies] == [(b"loc:@w",)] * 3


FUNCTIONAL = """
    x = Placeholder() {dtype=float32, shape=[]}
    zero = Const() {dtype=int32, value=int32[]:0}
    loop = StatelessWhile(zero, x) {T=(int32, float32), cond=@few, body=@step}
    y = Identity(loop:1)

    function few(i: int32, x: float32) -> (r: bool) {
      limit = Const() {dtype=int32, value=int32[]:3}
      r = Less(i, limit:output:0) {T=int32}
      return r = r:z:0
    }

    function step(i: int32, x: float32) -> (i_out: int32, x_out: float32) {
      one = Const() {dtype=int32, value=int32[]:1}
      next = AddV2(i, one:output:0) {T=int32}
      twice = AddV2(x, x) {T=float32}
      return i_out = next:z:0
      return x_out = twice:z:0
    }
"""


def has_loops(found: cfgraph.Graph) -> bool:
    return any(
        role_of(node) is Role.ENTER or function_calls(node.op).kind == "while" for node in found
    )


@pytest.mark.parametrize(("n", "start"), [(0, "0"), (1, "0"), (3, "0"), (3, "5"), (4, "-1")])
@pytest.mark.parametrize("compare", ["Less", "LessEqual"])
def test_an_unrolled_loop_has_the_values_and_gradients(n: int, start: str, compare: str) -> None:
    before = graph(loop(start, f"{compare}(i/Merge, limit)", n=n))
    after = copy_graph(before)
    report = cfgraph.optimize(after, fetches=["y", "n"], unroll=8)
    assert report.rules["unroll"] == 1
    assert not report.kept_loops
    assert not has_loops(after)
    assert not any(role_of(node) for node in after)
    found = []
    for item in (before, after):
        (dx,) = cfgraph.gradients(item, ["y"], ["w"], unconnected="zero")
        session = cfgraph.Session(item)
        found.append(session.run(["y", "n", dx], {"x": 1.5, "w": -2.0}))
    assert found[0] == found[1]


def test_loops_that_cannot_be_unrolled_are_kept_with_a_reason() -> None:
    cases = {
        "has 3 iterations": (loop(), {"unroll": 2}),
        "its trip count is not static": (loop(test="Less(x/Merge, w/Enter)"), {"unroll": 9}),
        "product is fetched, fed, or kept": (loop(), {"unroll": 9, "keep": ["product"]}),
    }
    for reason, (text, options) in cases.items():
        found = graph(text)
        report = cfgraph.optimize(found, **options)
        assert [kept.reason for kept in report.kept_loops] == [reason]
        assert has_loops(found)


def test_loops_that_behave_differently_unrolled_are_kept() -> None:
    repeated = loop().replace(
        "y = Exit(x/Switch)", "e = Identity(x/Switch, ^s)\n        y = Exit(e)"
    )
    cases = {
        "s (Stage) makes a resource without a shared_name": loop().replace(
            "1, w/Enter)", "1, w/Enter, ^s)"
        )
        + "    s = Stage(x/Switch:1) {dtypes=(float32)}",
        "s is awaited when the loop ends, but not when it repeats": repeated
        + '    s = Stage(x/Merge) {dtypes=(float32), shared_name="s"}',
        "its condition may fail in loop/cond/check": FUNCTIONAL.replace(
            "Less(i, limit:output:0)", "Less(i, limit:output:0, ^check)"
        ).replace("r = Less", 'check = CheckNumerics(x) {T=float32, message="x"}\n      r = Less'),
    }
    for reason, text in cases.items():
        found = graph(text)
        report = cfgraph.optimize(found, fetches=["y"], unroll=8)
        assert [kept.reason for kept in report.kept_loops] == [reason]
        assert has_loops(found)
    assert not cfgraph.optimize(graph(FUNCTIONAL), fetches=["y"], unroll=8).kept_loops


@pytest.mark.parametrize(
    ("test", "end", "step"), [("Less", 120, 100), ("LessEqual", 127, 1), ("GreaterEqual", -128, -3)]
)
def test_a_counter_that_overflows_has_no_trip_count(test: str, end: int, step: int) -> None:
    text = loop(test=f"{test}(i/Merge, limit)", n=end).replace("int32", "int8")
    found = graph(text.replace("int8[]:1}", f"int8[]:{step}}}"))
    report = cfgraph.optimize(found, fetches=["y"], unroll=900)
    assert [kept.reason for kept in report.kept_loops] == ["its trip count is not static"]


def test_a_merge_waits_for_dead_nodes() -> None:
    text = loop().replace("Merge(x/Enter, x/Next)", "Merge(x/Enter, x/Next, ^odd, ^later)")
    text += """
        two = Const(^i/Merge) {dtype=int32, value=int32[]:2}
        rest = FloorMod(i/Merge, two)
        is_odd = Cast(rest) {DstT=bool}
        branch = Switch(i/Merge, is_odd)
        odd = Identity(branch:1)
        later = Identity(i/Switch:1)
    """
    found = graph(text)
    assert not cfgraph.optimize(found, fetches=["y", "n"], unroll=8).kept_loops
    assert cfgraph.Session(found).run(["y", "n"], {"x": 2.0, "w": 3.0}) == [54.0, 3]


def test_a_trigger_of_a_dead_loop_runs_once() -> None:
    text = loop().replace("Enter(x)", "Enter(s:1)").replace("Enter(zero)", "Enter(u:1)")
    text = text.replace("Enter(w)", "Enter(v:1)").replace("1, w/Enter)", "1, w/Enter, ^t)")
    text += """
        p = Placeholder() {dtype=bool, shape=[]}
        s = Switch(x, p)
        u = Switch(zero, p)
        v = Switch(w, p)
        t = ControlTrigger(^i/Merge)
    """
    report = cfgraph.optimize(graph(text), fetches=["y"], unroll=8)
    assert [kept.reason for kept in report.kept_loops] == ["t runs even if the loop does not"]


def test_growth_is_limited() -> None:
    found = graph(loop(n=50))
    with limited(max_nodes=200):
        report = cfgraph.optimize(found, unroll=100)
    assert [kept.reason for kept in report.kept_loops] == [
        "would grow the graph to 734 nodes, more than the limit"
    ]
    assert not cfgraph.optimize(found, unroll=100).kept_loops


def test_a_dead_loop_is_dead_unrolled() -> None:
    text = loop().replace("Enter(x)", "Enter(s:1)").replace("Enter(w)", "Enter(t:1)")
    text = (
        text.replace("Enter(zero)", "Enter(u:1)")
        + """
        p = Placeholder() {dtype=bool, shape=[]}
        s = Switch(x, p)
        t = Switch(w, p)
        u = Switch(zero, p)
        z = Merge(y, s:0)
    """
    )
    before = graph(text)
    after = copy_graph(before)
    cfgraph.optimize(after, fetches=["y", "z"], unroll=8)
    assert not has_loops(after)
    for p in (False, True):
        feeds = {"x": 2.0, "w": 3.0, "p": p}
        found = [
            cfgraph.Session(item).run(["y", "z"], feeds, allow_dead=True)
            for item in (before, after)
        ]
        assert found[0] == found[1]
        assert (found[1][0] is None) == (not p)


def test_effects_of_one_iteration_at_a_time_stay_in_order() -> None:
    text = loop(body="Sub").replace('frame_name="loop"', 'frame_name="loop", parallel_iterations=1')
    text += """
        v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
        init = AssignVariableOp(v, x)
        v/Enter = Enter(v) {frame_name="loop", is_constant=true}
        old = ReadVariableOp(v/Enter, ^i/Switch) {dtype=float32}
        new = Mul(old, x/Switch:1)
        assign = AssignVariableOp(v/Enter, new)
        read = ReadVariableOp(v, ^y, ^n) {dtype=float32}
    """
    before = graph(text)
    after = copy_graph(before)
    report = cfgraph.optimize(after, keep=["y", "read", "init"], unroll=8)
    assert not report.kept_loops
    for seed in range(20):
        session = cfgraph.Session(after, schedule="random", schedule_seed=seed)
        session.run(targets=["init"], feeds={"x": 2.0})
        assert session.run(["y"], {"x": 10.0, "w": 1.0}) == [7.0]
        session.run(targets=["assign/iteration_2"], feeds={"x": 10.0, "w": 1.0})
        assert session.run(["read"], {"x": 1.0, "w": 1.0})


@pytest.mark.parametrize("kind", RECIPES)
def test_unrolled_random_graphs_have_the_same_values_and_dead_tensors(kind: str) -> None:
    for seed in range(4):
        check(random_graph(seed, kind), unroll=5)


FOR = """
    x = Placeholder() {dtype=float32, shape=[]}
    n = Placeholder() {dtype=int32, shape=[]}
    start = Const() {dtype=int32, value=int32[]:5}
    limit = Const() {dtype=int32, value=int32[]:0}
    delta = Const() {dtype=int32, value=int32[]:-2}
    loop = For(START, limit, delta, x) {T=(float32), body=@step}
    y = Identity(loop)

    function step(i: int32, x: float32) -> (x: float32) {
      f = Cast(i) {SrcT=int32, DstT=float32}
      x_out = Mul(x, f:y:0) {T=float32}
      return x = x_out:z:0
    }
"""


def test_a_for_becomes_a_straight_line() -> None:
    made = graph(FOR.replace("START", "start"))
    before = cfgraph.Session(copy_graph(made)).run(["y:0"], {"x:0": 2.0})
    report = cfgraph.optimize(made, fetches=["y:0"], unroll=3)
    assert [item.result for item in report.applied if item.rule == "unroll"] == ["3 iterations"]
    assert not any(function_calls(node.op).kind for node in made)
    assert cfgraph.Session(made).run(["y:0"], {"x:0": 2.0}) == before == [2.0 * 5 * 3 * 1]


@pytest.mark.parametrize(
    ("start", "limit", "reason"),
    [("start", 2, "has 3 iterations"), ("n", 3, "its trip count is not static")],
)
def test_a_for_that_stays_has_a_reason(start: str, limit: int, reason: str) -> None:
    made = graph(FOR.replace("START", start))
    report = cfgraph.optimize(made, fetches=["y:0"], unroll=limit)
    assert [item.reason for item in report.kept_loops] == [reason]
    assert made["loop"].op == "For"
