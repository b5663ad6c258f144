"""Generated code of small graphs: its text, its values, and its errors."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import cfgraph
from cfgraph.ir.graph import Graph
from cfgraph.ir.serde import graph_def
from cfgraph.runtime.compiled.engine import compile_run
from cfgraph.runtime.engine.plan import RunSpec
from cfgraph.runtime.preparation.prepare import prepare
from cfgraph.runtime.preparation.run_config import RunConfig
from cfgraph.runtime.session import Session
from tests.analysis.graph_text import graph as graph_of
from tests.late_runs import timeout_error_at
from tests.runtime.compiled.agreement import Pair
from tests.runtime.graphs import loop

GRAPHS = Path(__file__).parents[3] / "fixtures" / "graphs"

COUNTER = """\
def run(step, feeds, iterations):
    v0 = feeds[0]
    v1 = c0
    for i1 in iterations:
        v2 = v1 < v0
        if v2 is not TRUE and not test(v2):
            break
        v1 = v1 + c1
    else:
        raise exceeded(step, c2)
    return (v1,)
"""

BRANCHES = """
x = Placeholder() {dtype=float32, shape=[]}
p = Placeholder() {dtype=bool, shape=[]}
switch = Switch(x, p)
minus = Neg(switch)
twice = AddV2(switch:1, switch:1)
merge = Merge(minus, twice)
out = Neg(merge)
"""

CONDITIONAL = """\
def run(step, feeds, iterations):
    v0, v1 = feeds
    v1 = v1 is TRUE or test(v1)
    if v1:
        v2 = v0 + v0
    else:
        v2 = -v0
    v2 = -v2
    return (v2,)
"""


def counter() -> Graph:
    return graph_def.graph_from_bytes((GRAPHS / "counter.pb").read_bytes())


def source(graph: Graph, fetches: list[str], feeds: list[str]) -> str:
    session = Session(graph)
    tensors = tuple(graph[name.split(":")[0]].output() for name in fetches)
    fed = tuple(graph[name.split(":")[0]].output() for name in feeds)
    spec, plans = prepare(
        RunSpec(graph, tensors, (), fed),
        RunConfig(),
        session.cluster_runner,
    )
    return compile_run(spec, plans).code.source


def test_a_counter_is_three_lines_an_iteration() -> None:
    assert source(counter(), ["count:0"], ["n:0"]) == COUNTER


def test_branches_stand_under_if_and_else() -> None:
    assert source(graph_of(BRANCHES), ["out:0"], ["x:0", "p:0"]) == CONDITIONAL


@pytest.mark.parametrize("p", [False, True])
def test_a_conditional_takes_the_branch_of_its_predicate(p: bool) -> None:
    pair = Pair(lambda: graph_of(BRANCHES))
    assert pair.run(["out:0"], {"x:0": np.float32(3), "p:0": np.bool_(p)}) == [-6 if p else 3]
    assert not pair.fallback


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_a_loop_counts(count: int) -> None:
    pair = Pair(lambda: graph_of(loop()))
    assert pair.run(["out:0"], {"n:0": np.int32(count)}) == [count]
    assert not pair.fallback


def test_an_iteration_limit_is_exact() -> None:
    pair = Pair(lambda: graph_of(loop()))
    assert pair.run(["out:0"], {"n:0": np.int32(7)}, max_iterations=7) == [7]
    assert pair.run(["out:0"], {"n:0": np.int32(8)}, max_iterations=7)[1] == "CFG704"


def test_a_deadline_ends_a_loop_and_names_its_iteration() -> None:
    session = Session(graph_of(loop()), engine="compiled")
    feeds = {"n:0": np.int32(2**31 - 1)}
    error = timeout_error_at(
        lambda seconds: session.run(["out:0"], feeds, timeout=seconds),
        lambda error: re.fullmatch(r"/\w+\[[1-9]\d*\]", str(error.frame)),
    )
    assert error.message == "the run exceeded its timeout"


@pytest.mark.parametrize("limit", [2**63 - 1, 2**70])
def test_a_limit_beyond_all_iterations_is_none(limit: int) -> None:
    session = Session(graph_of(loop()), engine="compiled")
    assert session.run(["out:0"], {"n:0": np.int32(3)}, max_iterations=limit, timeout=60) == [3]


def test_a_predicate_with_a_shape_is_an_error_of_its_switch() -> None:
    text = BRANCHES.replace(
        "p = Placeholder() {dtype=bool, shape=[]}", "p = Placeholder() {dtype=bool}"
    )
    pair = Pair(lambda: graph_of(text))
    outcome = pair.run(["out:0"], {"x:0": np.float32(3), "p:0": np.array([True])})
    assert outcome[1:4] == (
        "CFG705",
        "the predicate must be a scalar, but it has shape [1]",
        "switch",
    )


def test_a_dead_fetch_is_explained() -> None:
    pair = Pair(lambda: graph_of(BRANCHES))
    feeds = {"x:0": np.float32(3), "p:0": np.bool_(True)}
    assert pair.run(["minus:0"], feeds, allow_dead=True) == [None]
    assert pair.run(["minus:0"], feeds)[0] == "ExecutionError"
    assert not pair.fallback


def test_an_error_in_a_loop_names_the_iteration() -> None:
    text = loop().replace(
        "add = AddV2(body, one)", "ok = FloorDiv(one, body)\nadd = AddV2(body, one, ^ok)"
    )
    pair = Pair(lambda: graph_of(text))
    assert pair.run(["out:0"], {"n:0": np.int32(3)})[3:5] == ("ok", "/loop[0]")


def test_an_observed_run_uses_tokens() -> None:
    session = Session(graph_of(loop()), engine="compiled", schedule="random")
    assert session.run(["out:0"], {"n:0": np.int32(3)}) == [3]
    assert session.fallback == "the schedule is random"


def test_a_merge_of_two_live_inputs_uses_tokens() -> None:
    text = "a = Placeholder() {dtype=int32}\nb = Placeholder() {dtype=int32}\nm = Merge(a, b)\n"
    pair = Pair(lambda: graph_of(text))
    assert pair.run(["m:0"], {"a:0": np.int32(1), "b:0": np.int32(2)}) == [1]
    assert pair.fallback == "a Merge may have two live inputs ('m')"


STATE = """
v = VarHandleOp() {dtype=int32, shape=[], shared_name="v"}
init = AssignVariableOp(v, zero) {dtype=int32}
h = Enter(v) {frame_name="loop", is_constant=true}
old = ReadVariableOp(h, ^body) {dtype=int32}
new = AddV2(old, body)
write = AssignVariableOp(h, new) {dtype=int32}
"""


@pytest.mark.parametrize("is_ordered", [False, True])
def test_iterations_that_race_use_tokens(is_ordered: bool) -> None:
    # the write precedes the next iteration, or only the end of the run
    text = loop().replace("NextIteration(add", "NextIteration(add, ^write") + STATE
    if not is_ordered:
        text = (
            text.replace(", ^write", "")
            + """
            seen = Enter(zero) {frame_name="loop"}
            m2 = Merge(seen, n2)
            s2 = Switch(m2, cond)
            b2 = Identity(s2:1, ^write)
            n2 = NextIteration(b2)
            done = Exit(s2)
        """
        )
    pair = Pair(lambda: graph_of(text))
    pair.run([], targets=["init"])
    pair.run(["out:0"], {"n:0": np.int32(4)}, ["out" if is_ordered else "done"])
    expected = "" if is_ordered else "accesses to a resource have no defined order ('old')"
    assert pair.fallback == expected


def test_names_of_a_graph_are_not_part_of_the_code() -> None:
    text = BRANCHES.replace("merge", "import_os/x").replace("minus", "run/__class__.y")
    assert source(graph_of(text), ["out:0"], ["x:0", "p:0"]) == CONDITIONAL


ASSIGNED = (
    BRANCHES
    + """
v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
first = AssignVariableOp(v, x) {dtype=float32}
bad = AssignVariableOp(v, twice, ^first) {dtype=float32}
later = ReadVariableOp(v, ^bad) {dtype=float32}
"""
)


def test_a_dead_fetch_of_a_run_with_effects_is_explained() -> None:
    feeds = {"x:0": np.float32(3), "p:0": np.bool_(False)}
    pair = Pair(lambda: graph_of(ASSIGNED))
    assert pair.run(["later:0"], feeds, allow_dead=True) == [None]
    assert not pair.fallback
    assert pair.run(["later:0"], feeds)[0] == "ExecutionError"
    assert pair.fallback == "a fetch of a run with effects may be dead"
    assert pair.run(["later:0"], {**feeds, "p:0": np.bool_(True)}, allow_dead=True) == [6]


def test_an_error_of_a_run_with_effects_is_located() -> None:
    failing = ASSIGNED.replace("twice, ^first", "out, ^first").replace(
        "out = Neg(merge)", "y = Placeholder() {dtype=float32}\nout = AddV2(merge, y, ^first)"
    )
    pair = Pair(lambda: graph_of(failing))
    feeds = {"x:0": np.float32(3), "p:0": np.bool_(True), "y:0": np.ones(2, np.float32)}
    text = failing.replace("merge = Merge(minus, twice)", "merge = Merge(minus, z)").replace(
        "twice = AddV2(switch:1, switch:1)",
        "two = Placeholder() {dtype=float32}\nz = AddV2(switch:1, two)",
    )
    assert not isinstance(pair.run(["later:0"], feeds), tuple)
    pair = Pair(lambda: graph_of(text))
    outcome = pair.run(["later:0"], {**feeds, "two:0": np.ones(3, np.float32)})
    assert outcome[1:2] == ("CFG705",)
    assert outcome[3:5] == ("out", "/")
    assert not pair.fallback


def test_the_trigger_of_a_loop_orders_its_readers() -> None:
    text = loop().replace("next = NextIteration(add)", "next = NextIteration(add, ^sync)")
    pair = Pair(lambda: graph_of(f"{text}sync = ControlTrigger(^one, ^body)\n"))
    assert pair.run(["out:0"], {"n:0": np.int32(5)}) == [5]
    assert not pair.fallback


FOLDED = """
x = Placeholder() {dtype=float32, shape=[4,6]}
zero = Const() {dtype=int32, value=int32[]:0}
one = Const() {dtype=int32, value=int32[]:1}
two = AddV2(one, one)
same = Identity(two)
factor = Mul(same, two)
real = Cast(factor) {DstT=float32}
y = Mul(x, real)
ratio = FloorDiv(one, zero)
"""


def test_small_nodes_of_constants_are_evaluated_once() -> None:
    assert source(graph_of(FOLDED), ["y:0"], ["x:0"]).splitlines()[2:] == [
        "    v0 = v0 * c3",
        "    return (v0,)",
    ]
    (value,) = Session(graph_of(FOLDED)).run(["y:0"], {"x:0": np.ones((4, 6), np.float32)})
    assert np.array_equal(value, np.full((4, 6), 4, np.float32))


REUSED_NAMES = """
x = Placeholder() {dtype=float32, shape=[8]}
a = Softmax(x)
b = Exp(a)
parts = Split(axis, b) {num_split=2}
axis = Const() {dtype=int32, value=int32[]:0}
c = Exp(parts)
y = Mul(c, parts:1)
"""


def test_a_variable_gets_the_name_of_a_dead_operand() -> None:
    assert source(graph_of(REUSED_NAMES), ["y:0"], ["x:0"]).splitlines()[2:] == [
        "    v1 = k0(v0)",
        "    v1 = k1(v1)",
        "    v1, v4 = k3(c2, v1)",
        "    v1 = k4(v1)",
        "    v1 = v1 * v4 if v1.nbytes < 131072 else _multiply(v1, v4, 3); v4 = None",
        "    return (v1,)",
    ]
    x = np.arange(8, dtype=np.float32)
    (y,) = Session(graph_of(REUSED_NAMES)).run(["y:0"], {"x:0": x})
    a = np.exp(x - 7)
    b = np.exp(a / a.sum())
    np.testing.assert_allclose(y, np.exp(b[:4]) * b[4:], rtol=1e-6)


def test_a_failing_node_of_constants_fails_where_it_runs() -> None:
    with pytest.raises(cfgraph.CfgraphError, match="ratio"):
        Session(graph_of(FOLDED)).run(["ratio:0"])


NEVER_ENTERS = """
p = Placeholder() {dtype=bool, shape=[]}
n = Placeholder() {dtype=int32, shape=[]}
x = Placeholder() {dtype=float32, shape=[]}
outer = Switch(x, p)
inner = Switch(outer, p)
zero = Const() {dtype=int32, value=int32[]:0}
start = Enter(zero) {frame_name="w"}
limit = Enter(n) {frame_name="w", is_constant=true}
never = Enter(inner:1) {frame_name="w"}
i = Merge(start, next)
dead = Merge(never, dead_next)
test = Less(i, limit)
going = LoopCond(test)
i_switch = Switch(i, going)
dead_switch = Switch(dead, going)
one = Const(^i_switch) {dtype=int32, value=int32[]:1}
more = AddV2(i_switch:1, one)
next = NextIteration(more)
dead_next = NextIteration(dead_switch:1)
count = Exit(i_switch)
y = Exit(dead_switch)
"""


def test_a_loop_runs_though_one_of_its_variables_never_enters() -> None:
    session = Session(graph_of(NEVER_ENTERS))
    assert session.run("count", {"p": True, "n": 3, "x": 1.0}, targets=["y"]) == [3]
    assert session.fallback == "the Enters of a loop differ in liveness ('start')"


# s and t are equal, which no analysis knows, so that `inner` may be dead; p follows a conditional
INNER_MERGE = """
x = Placeholder() {dtype=float32, shape=[]}
zero = Const() {dtype=float32, value=float32[]:0}
one = Const() {dtype=float32, value=float32[]:1}
three = Const() {dtype=float32, value=float32[]:3}
q = Greater(x, zero)
xs = Switch(x, q)
a = Neg(xs)
b = Abs(xs:1)
m = Merge(a, b)
p = Less(m, three)
ms = Switch(m, p)
s = Greater(ms:1, one)
t = Less(one, ms:1)
u = Switch(ms:1, s)
w = Switch(ms:1, t)
c = AddV2(u, w)
d = Neg(w:1)
inner = Merge(c, d)
out = Merge(ms, inner)
"""


@pytest.mark.parametrize("x", [-4.0, -2.0, 0.5, 1.0, 2.0, 5.0])
def test_a_merge_that_may_be_dead_in_a_branch_of_a_late_predicate_is_compiled(x: float) -> None:
    graph = cfgraph.loads(INNER_MERGE.encode(), "graph")
    values = [Session(graph, engine=e).run(["out"], {"x": x}) for e in ("tokens", "compiled")]
    assert values[0] == values[1]
