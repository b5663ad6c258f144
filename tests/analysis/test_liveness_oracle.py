"""The liveness oracle: its rules one by one, and its agreement with the executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cfgraph.ir.graph import Output
from cfgraph.runtime.session import Session
from tests.analysis.executor_run import disagreements, observe_run
from tests.analysis.graph_text import graph
from tests.analysis.liveness_oracle import ROOT, Liveness, Tag, liveness

DIAMOND = """
    x = Placeholder() {dtype=float32}
    p = Placeholder() {dtype=bool}
    s = Switch(x, p)
    f = Neg(s:0)
    t = Abs(s:1)
    after = NoOp(^s)
    gate = ControlTrigger(^t)
    m = Merge(f, t) {T=float32, N=2}
    held = Merge(f, t, ^t) {T=float32, N=2}
    one = Identity(x, ^t)
"""

LOOP = """
    zero = Const() {dtype=int32, value=int32[]:0}
    bits = Placeholder() {dtype=bool}
    e = Enter(zero) {frame_name="loop", parallel_iterations=PARALLEL}
    all = Enter(bits) {frame_name="loop", is_constant=true, parallel_iterations=PARALLEL}
    m = Merge(e, n) {T=int32, N=2}
    axis = Const(^m) {dtype=int32, value=int32[]:0}
    b = GatherV2(all, m, axis)
    c = LoopCond(b)
    s = Switch(m, c)
    one = Const(^s) {dtype=int32, value=int32[]:1}
    n1 = AddV2(s:1, one)
    n = NextIteration(n1)
    out = Exit(s)
    y = Neg(out)
"""


def _always(value: int) -> Callable[[Output, Tag], int]:
    return lambda predicate, tag: value


def _names(run: Liveness, *, live: bool) -> set[str]:
    return {node.name for (node, _), fired in run.fired.items() if fired is live}


def test_the_branch_not_taken_is_dead_and_a_merge_takes_the_other() -> None:
    run = liveness(graph(DIAMOND), _always(1))
    assert _names(run, live=False) == {"f"}
    run = liveness(graph(DIAMOND), _always(0))
    assert _names(run, live=False) == {"t", "one"}


def test_a_trigger_is_live_and_a_merge_ignores_dead_control_inputs() -> None:
    run = liveness(graph(DIAMOND), _always(0))
    assert {"gate", "held", "after"} <= _names(run, live=True)


def test_an_index_out_of_range_takes_the_last_output() -> None:
    text = """
        x = Placeholder() {dtype=float32}
        i = Placeholder() {dtype=int32}
        s = _SwitchN(x, i) {num_outs=3}
    """
    split = graph(text)
    for index, taken in ((0, 0), (1, 1), (2, 2), (3, 2), (-1, 2)):
        run = liveness(split, _always(index))
        assert [run.live(split.tensor(f"s:{port}")) for port in range(3)] == [
            port == taken for port in range(3)
        ]


@pytest.mark.parametrize("parallel", [1, 2, 10])
def test_a_loop_runs_as_often_as_its_condition_says(parallel: int) -> None:
    loop = graph(LOOP.replace("PARALLEL", str(parallel)))
    run = liveness(loop, lambda predicate, tag: tag[-1][1] < 3)
    assert [run.live(loop.tensor("n1"), (("loop", k),)) for k in range(5)] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert run.live(loop.tensor("y"), ROOT)
    assert not run.cut
    assert not run.starved


def test_a_loop_without_end_is_cut() -> None:
    loop = graph(LOOP.replace("PARALLEL", "10"))
    run = liveness(loop, _always(1), max_iterations=5)
    assert run.cut
    assert not run.live(loop.tensor("y"))
    assert max(tag[-1][1] for _, tag in run.fired if tag) == 5


def test_a_loop_in_the_branch_not_taken_exits_dead_when_it_ends() -> None:
    text = LOOP.replace("PARALLEL", "10").replace("Enter(zero)", "Enter(start:1)")
    text += """
    q = Placeholder() {dtype=bool}
    start = Switch(zero, q)
    done = Merge(y, start:0) {T=int32, N=2}
    trigger = ControlTrigger(^y)
    """
    loop = graph(text)
    run = liveness(loop, _always(0))
    assert run.sent[loop.tensor("out"), ROOT] is False
    assert run.fired[loop["trigger"], ROOT]
    assert run.live(loop.tensor("done"))


@pytest.mark.parametrize("feed", [True, False])
def test_a_diamond_has_the_tokens_of_the_executor(feed: bool) -> None:
    feeds = {"x:0": np.float32(1), "p:0": feed}
    fetches = ["m:0", "held:0", "one:0"]
    assert not disagreements(
        observe_run(Session(graph(DIAMOND)), fetches, feeds, ["after", "gate"])
    )


@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("schedule", ["fifo", "random"])
def test_a_loop_has_the_tokens_of_the_executor(parallel: int, schedule: str) -> None:
    session = Session(graph(LOOP.replace("PARALLEL", str(parallel))), schedule=schedule)
    feeds: dict[str, Any] = {"bits:0": np.array([1, 1, 1, 1, 0], bool)}
    observed = observe_run(session, ["y:0"], feeds)
    assert len({event.frame for event in observed.events}) == 6
    assert not disagreements(observed)


def test_what_differs_from_the_executor_is_found() -> None:
    observed = observe_run(Session(graph(DIAMOND)), ["m:0"], {"x:0": np.float32(1), "p:0": True})
    wrong = [event._replace(dead=not event.dead) for event in observed.events if event.op == "Neg"]
    observed.events.extend(wrong)
    assert disagreements(observed) == ["('f', '/'): False here, True in the executor"]


def test_a_message_that_was_dead_leaves_the_control_edges_live() -> None:
    text = """
        r = _Recv() {tensor_type=float32, tensor_name="t", send_device="a", recv_device="b", \
send_device_incarnation=0}
        y = Neg(r)
        after = NoOp(^r)
    """
    received = graph(text.replace("\\\n", ""))
    run = liveness(received, _always(0))
    assert _names(run, live=False) == {"y"}
    run = liveness(received, _always(1))
    assert _names(run, live=True) == {"r", "y", "after"}


@pytest.mark.parametrize("message", [0, 1])
def test_a_recv_that_control_inputs_make_dead_brings_its_message_to_merges(message: int) -> None:
    text = """
        x = Placeholder() {dtype=float32}
        p = Placeholder() {dtype=bool}
        s = Switch(x, p)
        gate = Identity(s:1)
        r = _Recv(^gate) {tensor_type=float32, tensor_name="t", send_device="a", recv_device="b", \
send_device_incarnation=0}
        y = Neg(r)
        m = Merge(r, r) {T=float32, N=2}
        after = NoOp(^r)
    """
    received = graph(text.replace("\\\n", ""))
    run = liveness(received, lambda output, tag: message * (output.node.op == "_Recv"))
    assert _names(run, live=False) >= {"gate", "r", "y", "after"}
    assert ("m" in _names(run, live=True)) is bool(message)


def test_a_loop_starves_where_an_enter_inside_never_comes() -> None:
    text = LOOP.replace("PARALLEL", "1")
    text += """
    first = Const(^e) {dtype=int32, value=int32[]:0}
    inner = Enter(first) {frame_name="inner"}
    other = Enter(all) {frame_name="inner", is_constant=true}
    """
    loop = graph(text)
    run = liveness(loop, lambda predicate, tag: tag[-1][1] < 3)
    assert run.starved
    assert not run.live(loop.tensor("y"))
    freely = graph(text.replace("parallel_iterations=1", "parallel_iterations=9"))
    run = liveness(freely, lambda predicate, tag: tag[-1][1] < 3)
    assert run.starved
    assert run.live(freely.tensor("y"))


def test_fed_outputs_are_live_and_their_sources_do_not_run() -> None:
    diamond = graph(DIAMOND)
    fed = frozenset({diamond.tensor("f:0")})
    nodes = [diamond[name] for name in ("x", "p", "s", "t", "m")]
    run = liveness(diamond, _always(1), nodes, fed)
    assert run.live(diamond.tensor("f:0"))
    assert diamond["f"] not in {node for node, _ in run.fired}
