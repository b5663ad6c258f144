"""A worker process that is killed or stopped while it starts, loads, runs, or recovers."""

from __future__ import annotations

import os
import pickle
import signal
import time
from typing import Any

import pytest

import cfgraph
from cfgraph.errors import WorkerLost
from cfgraph.runtime.engine.step import State
from cfgraph.runtime.remote import connections
from cfgraph.runtime.remote.connections import PeerLost
from cfgraph.runtime.remote.processes import ProcessHandle
from tests.runtime.remote.test_workers import VARIABLES
from tests.runtime.remote.threads import Threads

_PHASES = ["address", "connect", "clock", "load", "restore", "step", "variables"]


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


def run_all(session: cfgraph.Session) -> Any:
    (value,) = session.run(["read_w:0"])
    session.state.copy()
    return value


@pytest.mark.slow
@pytest.mark.parametrize("phase", _PHASES)
@pytest.mark.parametrize(("worker", "recovers"), [(0, False), (1, True)], ids=["first", "recover"])
def test_a_process_that_is_killed_in_any_phase_is_named(
    monkeypatch: pytest.MonkeyPatch, variables: State, phase: str, worker: int, recovers: bool
) -> None:
    with cfgraph.Session(_graph(), workers=cfgraph.Processes(2), state=variables) as session:
        if recovers:
            assert run_all(session) == 3
            session.recover(variables)
        times = signal_at(monkeypatch, phase, worker, signal.SIGKILL)
        with pytest.raises(WorkerLost) as caught:
            run_all(session)
        assert time.monotonic() - times[0] < 5
        assert (caught.value.code, caught.value.worker) == ("CFG720", worker)
        assert "was killed" in caught.value.message
        session.recover(variables)
        assert run_all(session) == 3


@pytest.mark.slow
def test_a_process_that_stops_while_it_connects_is_named(
    monkeypatch: pytest.MonkeyPatch, variables: State
) -> None:
    with cfgraph.Session(_graph(), workers=cfgraph.Processes(2), state=variables) as session:
        times = signal_at(monkeypatch, "connect", 1, signal.SIGSTOP)
        with pytest.raises(WorkerLost, match="did not connect") as caught:
            run_all(session)
        assert caught.value.worker == 1
        assert time.monotonic() - times[0] < connections.HANDSHAKE_SECONDS + 5


def test_a_lost_peer_crosses_to_the_driver() -> None:
    lost = pickle.loads(pickle.dumps(PeerLost(3, "did not connect")))
    assert (lost.peer, lost.reason, str(lost)) == (3, "did not connect", "worker 3 did not connect")
