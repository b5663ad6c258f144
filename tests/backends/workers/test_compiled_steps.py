"""Generated code on several workers has the same values and errors as the token executor."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.backends.workers import compiled_step
from cfgraph.backends.workers.projection import Projection
from cfgraph.errors import ExecutionError, RunTimeout
from cfgraph.ir.graph import Graph
from tests.analysis.graph_text import graph as graph_of
from tests.backends.workers.handles import worker_handles
from tests.backends.workers.threads import Threads, slow_down
from tests.runtime.compiled.agreement import disagreement, outcome
from tests.runtime.partitioned_graphs import counting, nesting, partitioned
from tests.runtime.test_devices import CONDITIONAL, GATED

BARRIER = Path(__file__).parents[3] / "fixtures" / "graphs" / "eight_devices_barrier.pb"


def agreed(graph: Graph, count: int, *arguments: Any, **options: Any) -> Any:
    """The outcome of a run on workers, which is that of the token executor in this process."""
    expected = outcome(cfgraph.Session(graph, engine="tokens"), *arguments, **options)
    with cfgraph.Session(graph, workers=Threads(count)) as session:
        actual = outcome(session, *arguments, **options)
        assert not session.fallback
    assert not disagreement(expected, actual)
    return actual


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, str]]:
    """The code of each worker."""
    sources = {}
    program = compiled_step.worker_program

    def written(projection: Projection, worker: int) -> Any:
        part = program(projection, worker)
        sources[worker] = part.source(drops_values=False)[0]
        return part

    monkeypatch.setattr(compiled_step, "worker_program", written)
    return sources  # type: ignore[return-value]


@pytest.mark.parametrize("count", [0, 1, 57])
def test_a_loop_runs_as_generated_code(count: int) -> None:
    assert agreed(graph_of(counting()), 2, ["out:0"], {"n:0": np.int32(count)}) == [count]


def test_each_worker_has_its_lines_of_the_program(programs: dict[int, str]) -> None:
    agreed(graph_of(counting()), 2, ["out:0"], {"n:0": np.int32(3)})
    assert programs[0].splitlines()[1:9] == [
        "    v0 = feeds[0]",
        "    v1 = c0",
        "    for i1 in iterations:",
        "        v2 = v1 < v0",
        "        send(1, 0, v2)",
        "        if v2 is not TRUE and not test(v2):",
        "            flush()",
        "            break",
    ]
    assert "send(0, 2, v3)" in programs[1]


def loop_with_invariants() -> Graph:
    """A loop on two devices, with work on invariants on each, and one that crosses."""
    b = cfgraph.Builder()
    x, w, n = b.placeholder("x"), b.placeholder("w"), b.placeholder("n", "int32")

    def body(i: Any, v: Any) -> Any:
        with b.device("/cpu:0"):
            sine, cosine = b.Sin(b.Neg(w)), b.Cos(b.Neg(w))
            u = v * sine + cosine
        with b.device("/cpu:1"):
            tangent, root = b.Tan(b.Neg(w)), b.Sqrt(w * w)
            v = b.Tanh(u * tangent + root) * cosine
        return i + 1, v

    with b.device("/cpu:0"):
        b.Identity(b.while_loop(lambda i, v: i < n, body, (b.const(0), x))[1], name="y")
    return b.graph


@pytest.mark.parametrize("count", [0, 1, 4])
def test_work_on_invariants_runs_in_the_first_iteration(
    count: int, programs: dict[int, str]
) -> None:
    graph = loop_with_invariants()
    cfgraph.place(graph, devices="cpu:0-1")
    cfgraph.partition(graph)
    feeds = {"x:0": np.float32(0.5), "w:0": np.float32(1.25), "n:0": np.int32(count)}
    agreed(graph, 2, ["y:0"], feeds)
    assert all(" = None, None" in source for source in programs.values())


def sending_invariants(effect: str = "") -> Graph:
    """A loop whose body on B adds an invariant and a constant of A, sent in each iteration."""
    text = counting().replace("AddV2(r_body, one)", "AddV2(r_body, twice)")
    text += partitioned(
        A=f"""
w = Placeholder() {{dtype=int32, shape=[]}}
double = AddV2(w, w)
w_in = Enter(double) {{frame_name="loop", is_constant=true, parallel_iterations=10}}
w_body = Switch(w_in, cond)
s_w = _Send(w_body:1) {{SEND A->B w}}
two = Const(^body) {{dtype=int32, value=int32[]:2}}
s_two = _Send(two) {{SEND A->B two}}
{effect}
""",
        B="""
r_w = _Recv(^cm_B) {RECV A->B w int32}
r_two = _Recv(^cm_B) {RECV A->B two int32}
twice = Mul(r_w, r_two)
""",
    )
    return graph_of(text)


def test_invariants_are_sent_once(programs: dict[int, str]) -> None:
    feeds = {"n:0": np.int32(7), "w:0": np.int32(3)}
    assert agreed(sending_invariants(), 2, ["out:0"], feeds) == [12]
    before, _, loop = programs[0].partition("for i1 in iterations:")
    assert before.count("send(") == 1
    assert loop.count("send(") == 2  # the predicate and the counter


def assigning_constants(source: str) -> Graph:
    """A loop whose body on B assigns a constant of A, which waits for a node of A.

    On A, the predicate waits for `tested`, the next one for `added`; `set_v` has an effect.
    """
    text = counting().replace("Less(merge, limit)", "Less(tested, limit)")
    text = text.replace("NextIteration(add)", "NextIteration(added, ^set_v, ^checked)")
    text = text.replace("cn_B = NextIteration(cs_B:1)", "cn_B = NextIteration(cs_B:1, ^set_u)")
    return graph_of(
        text
        + partitioned(
            A=f"""
unit = Const() {{dtype=int32, value=int32[]:1}}
unit_in = Enter(unit) {{frame_name="loop", is_constant=true, parallel_iterations=10}}
tested = FloorDiv(merge, unit_in)
added = FloorDiv(add, unit_in)
checked = FloorDiv(body, unit_in)
negative = Neg(body)
v = VarHandleOp() {{dtype=int32, shape=[], shared_name="v"}}
v_in = Enter(v) {{frame_name="loop", is_constant=true, parallel_iterations=10}}
set_v = AssignVariableOp(v_in, body) {{dtype=int32}}
two = Const(^{source}) {{dtype=int32, value=int32[]:2}}
s_two = _Send(two) {{SEND A->B two}}
""",
            B="""
r_two = _Recv(^cm_B) {RECV A->B two int32}
u = VarHandleOp() {dtype=int32, shape=[], shared_name="u"}
u_in = Enter(u) {frame_name="loop", is_constant=true, parallel_iterations=10}
set_u = AssignVariableOp(u_in, r_two) {dtype=int32}
""",
        )
    )


@pytest.mark.parametrize(
    ("source", "sends"),
    [("body", 2), ("negative", 2), ("merge", 3), ("set_v", 3), ("checked", 3), ("added", 3)],
)
def test_a_constant_is_sent_if_it_waits_for_more_than_the_predicate(
    source: str, sends: int, programs: dict[int, str]
) -> None:
    graph, feeds = assigning_constants(source), {"n:0": np.int32(3)}
    assert agreed(graph, 2, ["out:0"], feeds) == [3]
    before, _, loop = programs[0].partition("for i1 in iterations:")
    assert before.count("send(") == 0
    assert loop.count("send(") == sends  # the predicate and the counter, too


def test_nested_loops_run_as_generated_code() -> None:
    for outer, inner in ((0, 3), (3, 0), (2, 5)):
        feeds = {"n_outer:0": np.int32(outer), "n_inner:0": np.int32(inner)}
        assert agreed(graph_of(nesting()), 2, ["out:0"], feeds) == [outer * inner]


@pytest.mark.parametrize("fetch", ["out:0", "merge:1", "square:0", "r_s:0", "after:0", "late:0"])
@pytest.mark.parametrize("p", [False, True])
def test_dead_messages_are_those_of_the_token_executor(fetch: str, p: bool) -> None:
    feeds = {"p:0": np.bool_(p), "x:0": np.int32(5)}
    graph = graph_of(CONDITIONAL)
    (expected,) = agreed(graph, 2, [fetch], feeds, allow_dead=True)
    with cfgraph.Session(graph, devices="cpu:0-2", workers=Threads(3)) as session:
        assert session.run([fetch], feeds, allow_dead=True) == [expected]
        assert not session.fallback
        if expected is not None:
            assert session.run([fetch], feeds) == [expected]
            return
        with pytest.raises(ExecutionError) as caught:
            session.run([fetch], feeds)
    assert (caught.value.code, caught.value.node) == ("CFG702", fetch.removesuffix(":0"))


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("message", [False, True])
def test_a_merge_reads_a_message_of_another_worker(gate: bool, message: bool) -> None:
    feeds = {"x:0": np.float32(2), "p:0": np.bool_(gate), "q:0": np.bool_(message)}
    graph = graph_of(GATED.replace("Merge(recv, recv)", "Merge(recv)"))
    agreed(graph, 2, ["out:0", "plain:0"], feeds, allow_dead=True)


def test_a_kernel_error_is_that_of_the_token_executor() -> None:
    text = counting().replace("AddV2(r_body, one)", "FloorDiv(one, r_body)")
    error = agreed(graph_of(text), 2, ["out:0"], {"n:0": np.int32(3)})
    assert error[3:6] == ("sum", "/loop[0]", "cpu:1")


def test_a_limit_of_iterations_is_that_of_the_token_executor() -> None:
    graph = graph_of(counting())
    error = agreed(graph, 2, ["out:0"], {"n:0": np.int32(9)}, max_iterations=7)
    assert error[1] == "CFG704"


GUARDED = partitioned(
    A="""
x = Placeholder() {dtype=int32, shape=[]}
zero = Sub(x, x)
bad = FloorDiv(x, zero)
done = Const(^bad) {dtype=float32, value=float32[0]:[]}
s = _Send(done) {SEND A->B done}
u = VarHandleOp() {dtype=int32, shape=[], shared_name="u"}
set_u = AssignVariableOp(u, x) {dtype=int32}
""",
    B="""
v = VarHandleOp() {dtype=int32, shape=[], shared_name="v"}
r = _Recv() {RECV A->B done float32}
one = Const() {dtype=int32, value=int32[]:1}
set_v = AssignVariableOp(v, one, ^r) {dtype=int32}
""",
)


def test_an_effect_waits_for_the_worker_that_it_depends_on() -> None:
    with cfgraph.Session(graph_of(GUARDED), workers=Threads(2)) as session:
        with pytest.raises(ExecutionError) as caught:
            session.run([], {"x:0": np.int32(3)}, ["set_u", "set_v"])
        assert not session.fallback
        assert (caught.value.node, caught.value.device) == ("bad", "cpu:0")
        names = {name for (_, name), variable in session.state.variables()}
    assert "v" not in names


@pytest.mark.parametrize("sent", ["done", "bad"])
def test_an_effect_waits_for_workers_that_its_own_worker_does_not_know(
    monkeypatch: pytest.MonkeyPatch, sent: str
) -> None:
    text = GUARDED.replace("set_v = AssignVariableOp(v, one, ^r)", "negative = Neg(one, ^r)")
    if sent == "bad":
        text = text.replace("_Send(done)", "_Send(bad)").replace("=float32, ten", "=int32, ten")
    text += partitioned(
        B="""
done_b = Const(^negative) {dtype=float32, value=float32[0]:[]}
s_b = _Send(done_b) {SEND B->C done}
""",
        C="""
w = VarHandleOp() {dtype=int32, shape=[], shared_name="w"}
r_c = _Recv() {RECV B->C done float32}
two = Const() {dtype=int32, value=int32[]:2}
set_w = AssignVariableOp(w, two, ^r_c) {dtype=int32}
""",
    )
    slow_down(monkeypatch, "bad", 0.3)  # the other workers could go on
    with cfgraph.Session(graph_of(text), workers=Threads(3)) as session:
        with pytest.raises(ExecutionError) as caught:
            session.run([], {"x:0": np.int32(3)}, ["set_u", "set_w"])
        assert not session.fallback
        assert (caught.value.node, caught.value.device) == ("bad", "cpu:0")
        names = {name for (_, name), variable in session.state.variables()}
    assert "w" not in names


def test_a_predicate_is_sent_once_to_each_worker() -> None:
    graph = cfgraph.load(BARRIER)
    fetches = [f"out{number}:0" for number in range(8)]
    sent = {}
    for engine in ("tokens", "compiled"):
        with cfgraph.Session(
            graph, devices="cpu:0-7", workers=Threads(2), engine=engine
        ) as session:
            values = session.run(fetches, {"n:0": 10})
            assert values == [10] * 8
            handles = worker_handles(session)
            sent[engine] = sum(h.worker.postbox.sent for h in handles)  # type: ignore[attr-defined]
    # each of 10 iterations sends 4 values to the barrier and 4 back, and a predicate
    assert sent["compiled"] == 11 + 10 * 8
    assert sent["tokens"] >= 11 * 4 + 10 * 8


LOCAL_LOOP = partitioned(
    A="""
zero = Const() {dtype=int32, value=int32[]:0}
one = Const() {dtype=int32, value=int32[]:1}
yes = Const() {dtype=bool, value=bool[]:true}
enter = Enter(zero) {frame_name="loop"}
step = Enter(one) {frame_name="loop", is_constant=true}
always = Enter(yes) {frame_name="loop", is_constant=true}
merge = Merge(enter, next)
cond = LoopCond(always)
switch = Switch(merge, cond)
body = Identity(switch:1)
sum = Mul(body, step)
next = NextIteration(sum)
exit = Exit(switch)
s = _Send(exit) {SEND A->B x}
""",
    B="""
r = _Recv() {RECV A->B x int32}
out = Neg(r)
""",
)


def test_a_loop_without_messages_ends_at_its_deadline() -> None:
    with cfgraph.Session(graph_of(LOCAL_LOOP), workers=Threads(2)) as session:
        start = time.monotonic()
        with pytest.raises(RunTimeout):
            session.run(["out:0"], timeout=0.5)
        assert not session.fallback
        assert time.monotonic() - start < 5
        with pytest.raises(ExecutionError) as caught:
            session.run(["out:0"], max_iterations=200_000)
        assert (caught.value.code, caught.value.device) == ("CFG704", "cpu:0")


def test_a_worker_that_does_not_compile_lets_all_use_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = compiled_step.Projection

    def fails(generator: Any, worker_of: Any, recvs: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise compiled_step.NotCompiled("no reason")
        return compiled(generator, worker_of, recvs)

    calls: list[int] = []
    monkeypatch.setattr(compiled_step, "Projection", fails)
    with cfgraph.Session(graph_of(counting()), workers=Threads(2)) as session:
        assert session.run(["out:0"], {"n:0": 5}) == [5]
        assert session.fallback == "no reason"


def test_workers_that_generate_different_code_use_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = iter((b"a", b"b"))
    monkeypatch.setattr(Projection, "digest", property(lambda self: next(digests)))
    with cfgraph.Session(graph_of(counting()), workers=Threads(2)) as session:
        assert session.run(["out:0"], {"n:0": 5}) == [5]
        assert session.fallback == "the workers generate different code"
