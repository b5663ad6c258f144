"""Several devices: each has its own executor, and they exchange messages at the rendezvous."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cfgraph.errors import ExecutionError, UsageError
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.trace.events import TraceEvent
from tests.recorder import Recorder
from tests.runtime.graphs import session
from tests.runtime.partitioned_graphs import counting, nesting, partitioned


@pytest.mark.parametrize("parallel", [1, 2, 10])
@pytest.mark.parametrize("count", [0, 1, 2, 57])
def test_a_loop_on_two_devices_counts(parallel: int, count: int) -> None:
    assert session(counting(parallel)).run(["out:0"], {"n": count}) == [count]


@pytest.mark.parametrize("seed", range(5))
def test_no_interleaving_of_devices_changes_a_value(seed: int) -> None:
    both = session(counting(), schedule="random", schedule_seed=seed)
    assert both.run(["out:0"], {"n": 20}) == [20]


GATED = partitioned(
    A="""
x = Placeholder() {dtype=float32, shape=[]}
q = Placeholder() {dtype=bool, shape=[]}
sent = Switch(x, q)
send = _Send(sent:1) {SEND A->B x}
""",
    B="""
p = Placeholder() {dtype=bool, shape=[]}
side = Switch(p, p)
gate = Identity(side:1)
recv = _Recv(^gate) {RECV A->B x float32}
plain = Neg(recv)
merge = Merge(recv, recv)
out = Neg(merge)
""",
)


@pytest.mark.parametrize("schedule", ["fifo", "random"])
@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("message", [False, True])
def test_a_merge_takes_a_message_whatever_the_control_inputs_of_its_recv(
    gate: bool, message: bool, schedule: str
) -> None:
    feeds = {"x": np.float32(2), "p": gate, "q": message}
    run = session(GATED, schedule=schedule)
    out, plain = run.run(["out:0", "plain:0"], feeds, allow_dead=True)
    assert out == (-2 if message else None)
    assert plain == (-2 if message and gate else None)


CONDITIONAL = partitioned(
    A="""
p = Placeholder() {dtype=bool, shape=[]}
x = Placeholder() {dtype=int32, shape=[]}
sw = Switch(x, p)
s_f = _Send(sw) {SEND A->B f}
s_t = _Send(sw:1) {SEND A->C t}
""",
    B="""
r_f = _Recv() {RECV A->B f int32}
neg = Neg(r_f)
merge = Merge(neg, r_s)
r_s = _Recv() {RECV C->B s int32}
out = Identity(merge)
after = Const(^r_f) {dtype=int32, value=int32[]:7}
late = Const(^neg) {dtype=int32, value=int32[]:8}
""",
    C="""
r_t = _Recv() {RECV A->C t int32}
square = Square(r_t)
s_s = _Send(square) {SEND C->B s}
""",
)


@pytest.mark.parametrize(("pred", "value"), [(True, 25), (False, -5)])
@pytest.mark.parametrize("schedule", ["fifo", "random"])
def test_deadness_travels_in_messages(pred: bool, value: int, schedule: str) -> None:
    feeds = {"p": pred, "x": 5}
    result = session(CONDITIONAL, schedule=schedule).run(["out:0", "merge:1"], feeds)
    assert result == [value, int(pred)]


def test_a_dead_fetch_names_the_switch_on_the_other_device() -> None:
    with pytest.raises(ExecutionError, match=r"square:0 is dead: Switch 'sw' .* output 1, as p:0"):
        session(CONDITIONAL).run(["square:0"], {"p": False, "x": 5})
    with pytest.raises(ExecutionError, match=r"r_s:0 is dead: Switch 'sw' .* as p:0 is false"):
        session(CONDITIONAL).run(["r_s:0"], {"p": False, "x": 5})


def test_the_recv_of_a_dead_message_ran_so_its_control_edges_are_live() -> None:
    feeds = {"p": True, "x": 5}
    assert session(CONDITIONAL).run(["after:0"], feeds) == [7]
    assert session(CONDITIONAL).run(["r_f:0"], feeds, allow_dead=True) == [None]
    with pytest.raises(ExecutionError, match="late:0 is dead"):
        session(CONDITIONAL).run(["late:0"], feeds)


def test_what_is_needed_elsewhere_is_found_along_the_messages() -> None:
    recorder = Recorder()
    session(CONDITIONAL).run(["neg:0"], {"p": False, "x": 5}, trace=recorder)
    assert {event.node for event in recorder.events} == {"sw", "s_f", "r_f", "neg"}
    assert {event.device for event in recorder.events} == {"cpu:0", "cpu:1"}


def test_a_message_and_what_computes_it_can_be_fed() -> None:
    assert session(CONDITIONAL).run(["out:0"], {"r_s": 3, "sw:0": 4, "p": True}) == [3]
    assert session(CONDITIONAL).run(["r_s:0", "neg:0"], {"r_s": 3, "r_f": 4}) == [3, -4]


def test_a_send_that_only_a_control_edge_kills_sends_its_value() -> None:
    text = CONDITIONAL.replace("_Send(square)", "_Send(five, ^square)") + partitioned(
        C="five = Const() {dtype=int32, value=int32[]:5}"
    )
    assert session(text).run(["r_s:0"], {"p": False, "x": 5}) == [5]


def test_variables_are_shared_by_sessions_on_other_devices() -> None:
    text = partitioned(
        A="""
v = VarHandleOp() {dtype=int32, shape=[], shared_name="v"}
r_x = _Recv() {RECV B->A x int32}
init = AssignVariableOp(v, r_x) {dtype=int32}
""",
        B="""
x = Placeholder() {dtype=int32, shape=[]}
s_x = _Send(x) {SEND B->A x}
""",
    )
    state = State()
    session(text, state=state).run([], {"x": 4}, ["init"])
    alone = """
v = VarHandleOp() {dtype=int32, shape=[], shared_name="v"}
read = ReadVariableOp(v) {dtype=int32}
"""
    assert session(alone, state=state).run(["read:0"]) == [4]


def test_a_loop_in_an_untaken_branch_costs_the_other_device_one_round_of_dead_messages() -> None:
    text = counting().replace("Enter(zero)", "Enter(start)") + partitioned(
        A="""
p = Placeholder() {dtype=bool, shape=[]}
start = Switch(zero, p)
both = Merge(out, start:1)
"""
    )
    recorder = Recorder()
    feeds = {"p": True, "n": 3}
    assert session(text).run(["both:0", "both:1"], feeds, trace=recorder) == [0, 1]
    remote = [event for event in recorder.events if event.device == "cpu:1"]
    assert {event.frame for event in remote} == {"/", "/loop[0]"}
    assert session(text).run(["both:0", "both:1"], {"p": False, "n": 3}) == [3, 0]


@pytest.mark.parametrize("counts", [(0, 0), (1, 0), (2, 3), (4, 1)])
@pytest.mark.parametrize("parallel", [1, 3])
def test_nested_loops_run_on_stacked_control_loops(counts: tuple[int, int], parallel: int) -> None:
    outer, inner = counts
    feeds = {"n_outer": outer, "n_inner": inner}
    for seed in range(3):
        nested = session(nesting(parallel), schedule="random", schedule_seed=seed)
        assert nested.run(["out:0"], feeds) == [outer * inner]


@pytest.mark.parametrize("parallel", [1, 3, 5])
def test_a_device_is_ahead_of_another_by_no_more_than_parallel_iterations(parallel: int) -> None:
    text = counting(parallel).replace("add = _Recv(^merge)", "unread = _Recv(^merge)") + (
        partitioned(A="step = Const(^body) {dtype=int32, value=int32[]:1}\nadd = AddV2(body, step)")
    )
    recorder = Recorder()
    assert session(text).run(["out:0"], {"n": 30}, ["unread"], trace=recorder) == [30]
    newest, ahead = {"cpu:0": 0, "cpu:1": 0}, 0
    for event in recorder.events:
        newest[event.device] = max(newest[event.device], event.iteration)
        ahead = max(ahead, newest["cpu:0"] - newest["cpu:1"])
    assert ahead == parallel - 1


def test_finished_messages_are_let_go() -> None:
    both = session(counting())
    both.run(["out:0"], {"n": 200})
    (prepared,) = both._prepared
    (driver,) = prepared.idle
    assert not any(channel.messages for channel in driver.rendezvous.values())
    for executor in driver.executors:
        assert executor.root is not None
        assert not executor.root.newest.children


def test_a_session_runs_again_after_a_run_that_failed() -> None:
    text = counting().replace("AddV2(r_body, one)", "AddV2(r_body, quotient)") + partitioned(
        B="""
d = Placeholder() {dtype=int32, shape=[]}
in_d = Enter(d) {frame_name="loop", is_constant=true}
quotient = FloorDiv(one, in_d)
"""
    )
    both = session(text)
    with pytest.raises(ExecutionError, match="division by zero"):
        both.run(["out:0"], {"n": 3, "d": 0})
    assert both.run(["out:0"], {"n": 3, "d": 1}) == [3]


def test_an_error_on_one_device_ends_the_run_and_is_the_only_one_raised() -> None:
    text = counting().replace("AddV2(r_body, one)", "FloorDiv(one, r_body)")
    with pytest.raises(ExecutionError, match="division by zero") as caught:
        session(text).run(["out:0"], {"n": 3})
    assert (caught.value.node, caught.value.frame) == ("sum", "/loop[0]")
    assert caught.value.device == "cpu:1"


@pytest.mark.parametrize("count", [0, 2])
def test_the_loop_on_two_devices_goes_step_by_step_as_recorded(
    count: int, fixtures: Path, update: bool
) -> None:
    recorder = Recorder(describe=str)
    assert session(counting()).run(["out:0"], {"n": count}, trace=recorder) == [count]
    result = "".join(
        f"{event.device}  {event.frame:<9}{event.node:<8}{_shown(event)}\n"
        for event in recorder.events
    )
    golden = fixtures / "traces" / f"two_devices_{count}.txt"
    if update:
        golden.write_text(result)
    assert result == golden.read_text()


def _shown(event: TraceEvent) -> str:
    if event.kind == "send":
        return f"{event.bytes or 'dead'} to {event.peer}"
    return "dead" if event.dead else ", ".join(str(item or "dead") for item in event.outputs)


def test_what_is_placed_runs_where_it_was_placed_also_when_nothing_is_sent() -> None:
    text = 'x = Const() {dtype=int32, value=int32[]:3} @"/gpu:0"\ny = Neg(x) @"/gpu:0"\n'
    text += 'z = Const() {dtype=int32, value=int32[]:4} @"/cpu:1"\n'
    recorder = Recorder()
    run = session(text, devices="cpu:0,cpu:1,gpu:0")
    assert run.run(["y:0", "z:0"], trace=recorder) == [-3, 4]
    assert {event.node: event.device for event in recorder.events} == {
        "x": "gpu:0", "y": "gpu:0", "z": "cpu:1",
    }  # fmt: skip


def test_rules_say_where_a_session_places() -> None:
    recorder = Recorder()
    run = session(
        "x = Placeholder() {dtype=float32}\ny = Neg(x)",
        devices="cpu:0-1",
        rules={"*": "cpu:0", "y": "cpu:1"},
    )
    assert run.run(["y:0"], {"x": 1.0}, trace=recorder) == [-1.0]
    assert ("y", "cpu:1") in {(event.node, event.device) for event in recorder.events}


def test_a_partitioned_graph_is_not_placed_by_rules() -> None:
    run = session(counting(), devices="cpu:0-1", rules={"*": "cpu:0"})
    with pytest.raises(UsageError, match="placement rules do not apply"):
        run.run(["out:0"], {"n": 1})


@pytest.mark.parametrize("devices", ["cpu:0", "cpu:0,cpu:2"])
def test_a_partitioned_graph_is_not_run_on_other_devices(devices: str) -> None:
    with pytest.raises(UsageError, match=r"is partitioned for .*CPU:1, which is not among"):
        session(counting(), devices=devices).run(["out:0"], {"n": 1})
    assert session(counting(), devices="cpu:0-1").run(["out:0"], {"n": 1}) == [1]
