"""Runs on several workers: values, variables, errors, hangs, and lost workers."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.backends.workers import connections
from cfgraph.errors import ExecutionError, RunTimeout, Unsupported, UsageError, WorkerLost
from cfgraph.limits import Limits
from tests.analysis.graph_text import graph
from tests.backends.workers.handles import worker_handles
from tests.backends.workers.threads import Threads, slow_down
from tests.recorder import Recorder
from tests.runtime.partitioned_graphs import A, B, counting, partitioned

KINDS = [
    pytest.param(Threads, id="threads"),
    pytest.param(cfgraph.Processes, id="processes"),
    pytest.param(cfgraph.Ray, id="ray", marks=pytest.mark.slow),
]


def workers(kind: Any, count: int = 2, lost_after: float = 10.0) -> Any:
    if kind is cfgraph.Ray:
        pytest.importorskip("ray", reason="needs the extra `ray`")
        return kind("local", count, lost_after)
    return kind(count, lost_after)


@pytest.fixture
def loop() -> Iterator[cfgraph.Session]:
    with cfgraph.Session(graph(counting()), workers=Threads(2)) as session:
        yield session


@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_runs_on_two_workers(kind: Any) -> None:
    with cfgraph.Session(graph(counting()), workers=workers(kind)) as session:
        for count in (0, 1, 25):
            (value,) = session.run(["out:0"], {"n": count})
            assert value == count
        assert session.fallback == ""


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_worker_imports_nothing_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    for module in ("numpy", "cfgraph", "socket"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit(1)\n")
    monkeypatch.chdir(tmp_path)
    with cfgraph.Session(graph(counting()), workers=workers(kind)) as session:
        assert session.run(["out:0"], {"n": 3}) == [3]


def test_a_worker_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", shutil.which("false"))
    with (
        cfgraph.Session(graph(counting()), workers=cfgraph.Processes(2)) as session,
        pytest.raises(ExecutionError, match="worker 0 ended while it started"),
    ):
        session.run(["out:0"], {"n": 3})


SENT = partitioned(
    A="""
x = Placeholder() {dtype=float32, shape=?}
s_x = _Send(x) {SEND A->B x}
""",
    B="""
r_x = _Recv() {RECV A->B x float32}
out = Neg(r_x)
""",
)


@pytest.mark.parametrize("engine", ["compiled", "tokens"])
def test_a_value_that_is_too_large_fails_its_step_alone(
    monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    def reserve(size: int, description: str) -> None:
        Limits(max_bytes=100_000).reserve(size, description)

    monkeypatch.setattr(connections, "reserve", reserve)
    with cfgraph.Session(graph(SENT), workers=Threads(2), engine=engine) as session:
        for elements in (50_000, 600_000, 700_000):  # through the link, and through shared memory
            with pytest.raises(ExecutionError) as caught:
                session.run(["out:0"], {"x:0": np.ones(elements, np.float32)}, timeout=20)
            assert caught.value.code == "CFG713"
            (out,) = session.run(["out:0"], {"x:0": np.ones(3, np.float32)}, timeout=20)
            assert out.tolist() == [-1] * 3


def without(text: str, *names: str) -> str:
    lines = text.splitlines()
    return "\n".join(line for line in lines if line.partition(" ")[0] not in names) + "\n"


def test_a_hang_is_explained_as_in_one_process() -> None:
    text = without(counting(), "cn_B").replace("Merge(ce_B, cn_B)", "Merge(ce_B)")
    with pytest.raises(ExecutionError) as here:
        cfgraph.Session(graph(text), engine="tokens").run(["out:0"], {"n": 3})
    with (
        cfgraph.Session(graph(text), workers=Threads(2)) as session,
        pytest.raises(ExecutionError) as remote,
    ):
        session.run(["out:0"], {"n": 3})
    assert remote.value.code == "CFG708"
    assert str(remote.value) == str(here.value)


VARIABLES = partitioned(
    A="""
v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
one = Const() {dtype=float32, value=float32[]:1}
set_v = AssignVariableOp(v, one) {dtype=float32}
read_v = ReadVariableOp(v) {dtype=float32}
s_v = _Send(read_v) {SEND A->B v}
""",
    B="""
w = VarHandleOp() {dtype=float32, shape=[], shared_name="w"}
two = Const() {dtype=float32, value=float32[]:2}
set_w = AssignVariableOp(w, two) {dtype=float32}
r_v = _Recv() {RECV A->B v float32}
add = AssignAddVariableOp(w, r_v) {dtype=float32}
read_w = ReadVariableOp(w, ^add) {dtype=float32}
""",
)


def named(state: Any) -> dict[str, float]:
    return {name: float(variable.value) for (_, name), variable in state.variables()}


def test_variables_stay_on_their_workers_and_can_be_read() -> None:
    with cfgraph.Session(graph(VARIABLES), workers=Threads(2)) as session:
        session.run([], targets=["set_v", "set_w"])
        assert session.run(["read_w:0"]) == [3]
        assert session.run(["read_w:0"]) == [4]
        assert named(session.state) == {"v": 1, "w": 4}
        copied = session.state.copy()
    with cfgraph.Session(graph(VARIABLES), workers=Threads(2), state=copied) as session:
        assert session.run(["read_w:0"]) == [5]


@pytest.mark.parametrize("kind", KINDS[:1] + KINDS[2:])
def test_a_killed_worker_takes_its_variables_with_it(kind: Any) -> None:
    with cfgraph.Session(graph(VARIABLES), workers=workers(kind)) as session:
        session.run([], targets=["set_v", "set_w"])
        kept = session.state.copy()
        worker_handles(session)[1].kill()
        with pytest.raises(WorkerLost) as caught:
            session.run(["read_w:0"])
        assert caught.value.code == "CFG720"
        assert caught.value.exit_code == 5
        assert (caught.value.worker, caught.value.devices) == (1, ("cpu:1",))
        assert caught.value.variables == ("w",)
        assert "lost variables: w; kept: v" in caught.value.message
        with pytest.raises(ExecutionError) as refused:
            session.run(["read_w:0"])
        assert refused.value.code == "CFG721"
        assert "'w'" in refused.value.message or " w" in refused.value.message
        assert named(session.state) == {"v": 1}
        session.recover(kept)
        assert session.run(["read_w:0"]) == [3]


def test_variables_of_a_worker_that_is_lost_between_runs_are_not_omitted() -> None:
    with cfgraph.Session(graph(VARIABLES), workers=Threads(2)) as session:
        session.run([], targets=["set_v", "set_w"])
        worker_handles(session)[1].kill()
        with pytest.raises(WorkerLost, match="lost variables: w; kept: v"):
            session.state.copy()
        assert named(session.state) == {"v": 1}


def test_a_recovered_session_draws_the_numbers_of_a_new_one() -> None:
    text = partitioned(
        A="""
dims = Const() {dtype=int32, value=int32[1]:[3]}
noise = RandomStandardNormal(dims) {dtype=float32, seed=3}
s = _Send(noise) {SEND A->B noise}
""",
        B="""
r = _Recv() {RECV A->B noise float32}
y = Neg(r)
""",
    )
    with cfgraph.Session(graph(text), workers=Threads(2)) as session:
        first, second = session.run(["y:0"])[0], session.run(["y:0"])[0]
        session.recover()
        again = session.run(["y:0"])[0]
    assert list(first) != list(second)
    assert list(first) == list(again)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [(signal.SIGKILL, "was killed"), (signal.SIGSTOP, "has sent nothing")],
)
def test_a_process_that_ends_or_hangs_is_named(sent: int, reason: str) -> None:
    options = cfgraph.Processes(2, lost_after=3 if sent == signal.SIGSTOP else 60)
    with cfgraph.Session(graph(counting()), workers=options) as session:
        session.run(["out:0"], {"n": 3})
        pid = worker_handles(session)[1].pid
        threading.Timer(0.3, os.kill, (pid, sent)).start()
        with pytest.raises(WorkerLost) as caught:
            session.run(["out:0"], {"n": 1 << 30})
    error = caught.value
    assert f"worker 1 ({error.host}, pid {pid}) {reason}" in error.message
    assert (error.node, error.device) == ("add", "cpu:0")
    assert str(error.frame).startswith("/loop[")


def test_a_worker_that_has_not_begun_a_step_does_not_wait(loop: cfgraph.Session) -> None:
    loop.run(["out:0"], {"n": 2})
    handles = worker_handles(loop)
    states = [handle.call("status", 1).result() for handle in handles]
    assert all(waits for waits, _, _ in states)
    assert sum(sent for _, sent, _ in states) == sum(received for _, _, received in states) > 0
    assert not any(handle.call("status", 2).result()[0] for handle in handles)


@pytest.mark.slow
def test_a_kernel_that_takes_long_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    slow_down(monkeypatch, "sum", 0.7)  # more than two looks at the workers take
    with cfgraph.Session(graph(counting()), workers=Threads(2)) as session:
        assert session.run(["out:0"], {"n": 2}) == [2]


def test_a_kernel_error_names_its_node_and_ends_the_step_everywhere(
    loop: cfgraph.Session,
) -> None:
    text = counting().replace("sum = AddV2(r_body, one)", "sum = FloorDiv(one, r_body)")
    with (
        cfgraph.Session(graph(text), workers=Threads(2)) as session,
        pytest.raises(ExecutionError) as caught,
    ):
        session.run(["out:0"], {"n": 3})
    assert (caught.value.node, caught.value.device) == ("sum", "cpu:1")
    assert caught.value.frame == "/loop[0]"


def test_a_timeout_ends_the_step_and_the_session_goes_on(loop: cfgraph.Session) -> None:
    loop.run(["out:0"], {"n": 1})
    with pytest.raises(RunTimeout):
        loop.run(["out:0"], {"n": 1 << 30}, timeout=0.2)
    assert loop.run(["out:0"], {"n": 7}) == [7]


def test_a_limit_of_iterations_holds(loop: cfgraph.Session) -> None:
    with pytest.raises(ExecutionError) as caught:
        loop.run(["out:0"], {"n": 1 << 30}, max_iterations=10)
    assert caught.value.code == "CFG704"


def test_a_trace_has_the_events_of_all_workers(loop: cfgraph.Session) -> None:
    events = Recorder()
    loop.run(["out:0"], {"n": 3}, trace=events)
    assert {event.device for event in events.events} == {"cpu:0", "cpu:1"}
    assert all(event.start_ns >= 0 for event in events.events)
    sends = {event.flow: event.start_ns for event in events.events if event.is_send}
    recvs = {event.flow: event.end_ns for event in events.events if event.is_recv}
    assert sends.keys() == recvs.keys()
    assert all(sends[flow] <= recvs[flow] for flow in sends)


@pytest.mark.parametrize("engine", ["compiled", "tokens"])
def test_workers_forget_runs_that_the_session_has_dropped(
    monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setattr("cfgraph.runtime.preparation.prepared_runs.MAX_PREPARED_RUNS", 2)
    with cfgraph.Session(graph(counting()), workers=Threads(2), engine=engine) as session:
        session.run(["out:0", "zero:0"], {"n": 3})
        for number in range(10):
            trace = Recorder() if number % 3 == 0 else None
            for fetch in ("out:0", "zero:0", "exit:0", "n:0"):
                session.run([fetch], {"n": number}, trace=trace)
            for handle in worker_handles(session):
                worker = handle.worker  # type: ignore[union-attr]
                for prepared in (worker._loaded, worker._drivers, worker._compiled):
                    assert len(prepared) <= 4  # two, the last, and the next


def test_a_handle_does_not_leave_its_worker() -> None:
    text = partitioned(
        A="""
v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
s_v = _Send(v) {SEND A->B v}
""",
        B="""
r_v = _Recv() {RECV A->B v resource}
read = ReadVariableOp(r_v) {dtype=float32}
""",
    )
    with (
        cfgraph.Session(graph(text), workers=Threads(2)) as session,
        pytest.raises(Unsupported) as caught,
    ):
        session.run(["read:0"])
    assert caught.value.code == "CFG722"
    assert "cpu:0 to cpu:1" in caught.value.message


def test_random_numbers_do_not_depend_on_the_number_of_workers() -> None:
    text = "x = RandomUniform(shape) {T=int32, dtype=float32, seed=3}\n"
    text = 'shape = Const() {dtype=int32, value=int32[1]:[4]} @"/cpu:0"\n' + text.replace(
        "}\n", '} @"/cpu:1"\n'
    )
    (here,) = cfgraph.Session(graph(text), devices="cpu:0-1", seed=5).run(["x:0"])
    with cfgraph.Session(graph(text), devices="cpu:0-1", seed=5, workers=Threads(2)) as session:
        (remote,) = session.run(["x:0"])
    np.testing.assert_array_equal(here, remote)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": "cpu:0"}, "workers run the devices of a partitioned graph"),
        (
            {"devices": "cpu:0-1", "costs": cfgraph.CostModel()},
            "costs cannot be combined with workers",
        ),
        ({"devices": "cpu:0-1", "memory": {}}, "memory cannot be combined with workers"),
        ({"devices": "cpu:0-1", "schedule": "random"}, "cannot be combined with workers"),
        ({"devices": "cpu:0-1", "engine": "xla"}, 'engine="xla" cannot be combined with workers'),
    ],
)
def test_options_that_need_one_process_are_refused(options: Any, message: str) -> None:
    one = graph("x = Const() {dtype=float32, value=float32[]:1}\n")
    with pytest.raises(UsageError, match=message):
        cfgraph.Session(one, workers=Threads(2), **options).run(["x:0"])


def test_workers_need_a_device_each() -> None:
    with pytest.raises(UsageError, match="3 workers need 3 devices, the graph has 2"):
        cfgraph.Session(graph(counting()), workers=Threads(3)).run(["out:0"], {"n": 1})


def test_a_task_is_a_worker() -> None:
    text = counting()
    for name, task in ((A, 0), (B, 1)):
        text = text.replace(name, f"/job:worker/replica:0/task:{task}/device:CPU:0")
    with cfgraph.Session(graph(text), workers=Threads(None)) as session:
        assert session.run(["out:0"], {"n": 4}) == [4]
        assert len(worker_handles(session)) == 2
    with pytest.raises(UsageError, match="the devices belong to 2 tasks"):
        cfgraph.Session(graph(text), workers=Threads(1)).run(["out:0"], {"n": 1})


def test_a_session_without_workers_has_nothing_to_recover() -> None:
    with pytest.raises(UsageError, match="nothing to recover"):
        cfgraph.Session(graph(counting())).recover()


def test_a_ray_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**options: Any) -> None:
        raise Exception("the node timed out")

    ray = SimpleNamespace(is_initialized=lambda: False, init=fail)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with (
        cfgraph.Session(graph(counting()), workers=cfgraph.Ray("local", 2)) as session,
        pytest.raises(Unsupported, match="cannot connect to Ray at 'local': the node timed out"),
    ):
        session.run(["out:0"], {"n": 1})


def test_without_ray_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    imported = builtins.__import__

    def refuse(name: str, *args: Any, **keywords: Any) -> Any:
        if name == "ray":
            raise ModuleNotFoundError("No module named 'ray'", name="ray")
        return imported(name, *args, **keywords)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(Unsupported) as caught:
        cfgraph.Session(graph(counting()), workers=cfgraph.Ray("local", 2)).run(["out:0"], {"n": 1})
    assert caught.value.exit_code == 4
    assert "cfgraph-tools[ray]" in str(caught.value.hint)


def test_a_dequeue_that_waits_goes_on_while_others_wait_for_messages() -> None:
    queue = cfgraph.loads(
        b"""
        queue = FIFOQueueV2() {component_types=(float32), shapes=([])}
        x = Placeholder() {dtype=float32, shape=[]}
        get = QueueDequeueV2(queue) {component_types=(float32)}
        put = QueueEnqueueV2(queue, x) {Tcomponents=(float32)}
        y = Square(get) {T=float32}
        z = Square(y) {T=float32}
        """,
        "graph",
    )
    for node in queue:
        node.device = B if node.name == "y" else A
    cfgraph.partition(queue)
    with cfgraph.Session(queue, workers=Threads(2)) as session:
        assert session.run(["z:0"], {"x:0": np.float32(2)}, targets=["put"]) == [16]
