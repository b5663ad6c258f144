"""A worker process that is killed or stopped while it connects, loads, runs, or recovers."""

from __future__ import annotations

import os
import pickle
import signal
import time
from concurrent.futures import Future
from itertools import count
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import cfgraph
from cfgraph.backends.workers import processes
from cfgraph.backends.workers.connections import PeerLost
from cfgraph.backends.workers.processes import ProcessHandle, ProcessTransport
from cfgraph.backends.workers.shared_memory import MIN_SHARED_BYTES
from cfgraph.backends.workers.workers import PingMonitor, WorkerDied
from cfgraph.errors import ExecutionError, WorkerLost
from cfgraph.runtime.engine.step import State
from tests.backends.workers.handles import worker_handles
from tests.backends.workers.test_workers import SENT, VARIABLES
from tests.backends.workers.threads import Threads

_PHASES = ["address", "connect", "clock", "load", "restore", "step", "variables"]
_LOST_AFTER = 3.0
# seconds beyond those that are documented, on a busy machine
_PATIENCE = 20.0


@pytest.fixture
def variables() -> State:
    with cfgraph.Session(_graph(), workers=Threads(2)) as session:
        session.run([], targets=["set_v", "set_w"])
        return session.state.copy()


def _graph() -> cfgraph.Graph:
    return cfgraph.loads(VARIABLES.encode(), "graph")


def signal_at(monkeypatch: pytest.MonkeyPatch, phase: str, worker: int, sent: int) -> list[float]:
    """Send a signal to a worker before its first call of this phase; returns when that was."""
    call, times, started = ProcessHandle.call, list[float](), list[ProcessHandle]()

    def call_signaled(self: ProcessHandle, method: str, *args: Any) -> Any:
        if method == "start":
            started.append(self)
        if method == phase and not times and self is started[worker]:
            times.append(time.monotonic())
            os.kill(self.pid, sent)
        return call(self, method, *args)

    monkeypatch.setattr(ProcessHandle, "call", call_signaled)
    return times


def stop(session: cfgraph.Session, worker: int, sent: int = signal.SIGSTOP) -> None:
    os.kill(worker_handles(session)[worker].pid, sent)


def run_all(session: cfgraph.Session) -> Any:
    (value,) = session.run(["read_w:0"])
    session.state.copy()
    return value


@pytest.mark.slow
@pytest.mark.parametrize("phase", _PHASES)
@pytest.mark.parametrize(("worker", "recovers"), [(0, False), (1, True)], ids=["first", "recover"])
@pytest.mark.parametrize(
    ("sent", "seconds", "reason"),
    [(signal.SIGKILL, 0, "was killed"), (signal.SIGSTOP, _LOST_AFTER, "has sent nothing for")],
    ids=["killed", "stopped"],
)
def test_a_process_that_ends_or_stops_in_any_phase_is_named(
    monkeypatch: pytest.MonkeyPatch,
    variables: State,
    phase: str,
    worker: int,
    recovers: bool,
    sent: int,
    seconds: float,
    reason: str,
) -> None:
    workers = cfgraph.Processes(2, lost_after=_LOST_AFTER)
    with cfgraph.Session(_graph(), workers=workers, state=variables) as session:
        if recovers:
            assert run_all(session) == 3
            session.recover(variables)
        times = signal_at(monkeypatch, phase, worker, sent)
        with pytest.raises(WorkerLost) as caught:
            run_all(session)
        assert time.monotonic() - times[0] < seconds + _PATIENCE
        assert (caught.value.code, caught.value.worker) == ("CFG720", worker)
        assert reason in caught.value.message
        session.recover(variables)
        assert run_all(session) == 3


@pytest.mark.slow
@pytest.mark.parametrize("worker", [0, 1])
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_process_that_ends_or_stops_between_two_steps_is_named(
    variables: State, worker: int, sent: int
) -> None:
    workers = cfgraph.Processes(2, lost_after=_LOST_AFTER)
    with cfgraph.Session(_graph(), workers=workers, state=variables) as session:
        assert run_all(session) == 3
        stop(session, worker, sent)
        time.sleep(0.3)
        start = time.monotonic()
        with pytest.raises(WorkerLost) as caught:
            run_all(session)
        assert time.monotonic() - start < _LOST_AFTER + _PATIENCE
        assert (caught.value.code, caught.value.worker) == ("CFG720", worker)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["compiled", "tokens"])
def test_a_process_that_stops_before_it_has_read_a_message_is_named(engine: str) -> None:
    graph = cfgraph.loads(SENT.encode(), "graph")
    workers = cfgraph.Processes(2, lost_after=_LOST_AFTER)
    # more than its socket takes, and too little for shared memory
    data = np.ones(MIN_SHARED_BYTES // 4 - 100, np.float32)
    with cfgraph.Session(graph, workers=workers, engine=engine) as session:
        session.run(["out:0"], {"x:0": data[:1]})
        stop(session, 1)
        start = time.monotonic()
        with pytest.raises(WorkerLost) as caught:
            session.run(["out:0"], {"x:0": data})
        assert time.monotonic() - start < _LOST_AFTER + _PATIENCE
        assert caught.value.worker == 1


def test_a_call_of_a_stopped_process_does_not_wait() -> None:
    handle = ProcessHandle()
    os.kill(handle.pid, signal.SIGSTOP)
    start = time.monotonic()
    calls = [handle.call("load", bytes(8 << 20)) for _ in range(2)]
    assert time.monotonic() - start < 5
    assert not any(call.done() for call in calls)
    handle.kill()
    handle.wait()
    for call in calls:
        with pytest.raises(WorkerDied):
            call.result(5)


def test_a_process_that_stops_while_it_starts_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    call = ProcessHandle.call

    def stopped(self: ProcessHandle, method: str, *args: Any) -> Any:
        os.kill(self.pid, signal.SIGSTOP)
        return call(self, method, *args)

    monkeypatch.setattr(ProcessHandle, "call", stopped)
    monkeypatch.setattr(processes, "_START_SECONDS", 0.2)
    monkeypatch.setattr(processes, "_EXIT_SECONDS", 0.1)
    transport = ProcessTransport(10)
    with pytest.raises(ExecutionError, match="worker 0 has not started within 0 s"):
        transport.start([["cpu:0"]], b"")
    transport.close()


def test_a_worker_that_answers_no_ping_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    monkeypatch.setattr(
        "cfgraph.backends.workers.workers.time", Mock(monotonic=lambda: next(ticks) / 50)
    )
    pings: dict[int, list[Future[Any]]] = {0: [], 1: [], 2: []}

    def ping(worker: int) -> Future[Any]:
        future: Future[Any] = Future()
        pings[worker].append(future)
        if worker == 0:
            future.set_result(None)
        return future

    monitor = PingMonitor(ping, 0.3)
    assert monitor.interval == pytest.approx(0.1)
    silent = None
    while silent is None and next(ticks) < 50:
        silent = monitor.silent_worker([0, 1])
    assert silent == 1
    assert next(ticks) >= 0.4 * 50
    assert [len(pings[worker]) > 1 for worker in (0, 1, 2)] == [True, False, False]
    assert monitor.silent_worker([0]) is None  # the answer of 1 is not awaited any more


def test_a_lost_peer_crosses_to_the_driver() -> None:
    lost = pickle.loads(pickle.dumps(PeerLost(3, "did not connect")))
    assert (lost.peer, lost.reason, str(lost)) == (3, "did not connect", "worker 3 did not connect")
