"""Workers that are killed or stopped in the middle of their work, and drivers that are interrupted.

`python -m tests.backends.workers.test_interrupted_workers --tries N --seed S` prints how each try
ended.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.backends.workers import processes
from cfgraph.backends.workers.processes import ProcessHandle
from cfgraph.errors import WorkerLost
from tests.backends.workers.handles import shared_prefix, worker_handles
from tests.backends.workers.threads import ThreadHandle, Threads
from tests.runtime.partitioned_graphs import counting, partitioned

_ELEMENTS = 4 << 20  # 16 MiB, by shared memory
_SMALL = 50_000  # through the socket
_PATIENCE = 20.0  # seconds beyond those that are documented, on a busy machine
_TRANSFER = partitioned(
    A="""
x = Placeholder() {dtype=float32, shape=?}
twice = AddV2(x, x)
s_x = _Send(twice) {SEND A->B x}
back = _Recv() {RECV B->A y float32}
out = Neg(back)
""",
    B="""
r_x = _Recv() {RECV A->B x float32}
minus = Neg(r_x)
s_y = _Send(minus) {SEND B->A y}
""",
)
_ASSIGNMENT = partitioned(
    A="""
x = Placeholder() {dtype=float32, shape=?}
s_x = _Send(x) {SEND A->B x}
""",
    B="""
v = VarHandleOp() {dtype=float32, shape=?, shared_name="v"}
r_x = _Recv() {RECV A->B x float32}
set_v = AssignVariableOp(v, r_x) {dtype=float32}
out = ReadVariableOp(v, ^set_v) {dtype=float32}
""",
)


@dataclass(frozen=True)
class Work:
    """Runs that a worker is interrupted in: a graph, a feed, and the value of `out`."""

    text: str
    feed: str
    value: Any
    expected: Callable[[Any], Any]


_WORKS = {
    "loop": Work(counting(), "n:0", np.int32(4000), lambda n: n),
    "transfer": Work(_TRANSFER, "x:0", np.ones(_ELEMENTS, np.float32), lambda x: 2 * x),
    "small_transfer": Work(_TRANSFER, "x:0", np.ones(_SMALL, np.float32), lambda x: 2 * x),
    "assignment": Work(_ASSIGNMENT, "x:0", np.ones(_ELEMENTS, np.float32), lambda x: x),
}


@dataclass(frozen=True)
class Interruption:
    """A signal, SIGCONT some seconds later unless None, and the session's limit of silence."""

    signal: signal.Signals
    seconds: float | None
    lost_after: float

    @property
    def is_lost(self) -> bool:
        return self.seconds is None or self.seconds > self.lost_after


_KILLED = Interruption(signal.SIGKILL, None, 10)
_STOPPED = Interruption(signal.SIGSTOP, None, 1.5)
_PAUSED = Interruption(signal.SIGSTOP, 1.0, 10)
_INTERRUPTIONS = {
    "killed": _KILLED,
    "stopped": _STOPPED,
    "paused": _PAUSED,
    "stopped_20_s": Interruption(signal.SIGSTOP, 20, 10),
    "paused_20_s": Interruption(signal.SIGSTOP, 20, 40),
}


def shared_arrays(prefixes: list[str]) -> list[str]:
    return [name for name in os.listdir("/dev/shm") if name.startswith(tuple(prefixes))]


def children() -> set[int]:
    """The processes of this one that have not been waited for."""
    found = set[int]()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended
            found.update(map(int, (task / "children").read_text().split()))
    return found


def run_until(session: cfgraph.Session, work: Work, until: float) -> None:
    """Run again and again; each has the right value."""
    expected = work.expected(work.value)
    while True:
        (value,) = session.run(["out:0"], {work.feed: work.value})
        np.testing.assert_array_equal(value, expected)
        if time.monotonic() > until:
            return


def interrupt(work: Work, how: Interruption, worker: int, engine: str, delay: float) -> str:
    """Interrupt a worker after a delay; returns how the runs ended.

    Raises AssertionError if it is not as documented.
    """
    before = children()
    graph = cfgraph.loads(work.text.encode(), "graph")
    options = cfgraph.Processes(2, lost_after=how.lost_after)
    with cfgraph.Session(graph, workers=options, engine=engine) as session:
        run_until(session, work, 0)
        prefixes = [shared_prefix(session)]
        pid = worker_handles(session)[worker].pid
        timers = [threading.Timer(delay, os.kill, (pid, how.signal))]
        if how.seconds is not None:
            timers.append(threading.Timer(delay + how.seconds, _resume, (pid,)))
        start = time.monotonic()
        for timer in timers:
            timer.start()
        try:
            lost = None
            run_until(session, work, start + delay + (how.seconds or 600))
        except WorkerLost as error:
            lost = error
        took = time.monotonic() - start - delay
        for timer in timers:
            timer.cancel()
        if lost is not None:
            assert how.is_lost, lost.message
            assert (lost.code, lost.worker) == ("CFG720", worker), lost.message
            silent = how.lost_after if how.signal == signal.SIGSTOP else 0
            assert took < silent + _PATIENCE, took
            session.recover()
            run_until(session, work, 0)
            prefixes.append(shared_prefix(session))
        assert (lost is not None) == how.is_lost
    assert not shared_arrays(prefixes)
    assert children() <= before
    return f"{'lost' if lost else 'values'} after {took:.1f} s"


def _resume(pid: int) -> None:
    with suppress(ProcessLookupError):  # it was lost, and killed
        os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["compiled", "tokens"])
@pytest.mark.parametrize("worker", [0, 1])
@pytest.mark.parametrize("how", ["killed", "stopped", "paused"])
@pytest.mark.parametrize("work", _WORKS)
def test_an_interrupted_worker_is_named_or_goes_on(
    work: str, how: str, worker: int, engine: str
) -> None:
    delay = 0.3 * random.Random(f"{work} {how} {worker}").random()
    interrupt(_WORKS[work], _INTERRUPTIONS[how], worker, engine, delay)


def interrupt_driver(session: cfgraph.Session, work: Work, delay: float) -> None:
    """Raise KeyboardInterrupt in the middle of runs, as in a notebook, and run again."""
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(delay, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with suppress(KeyboardInterrupt):
        run_until(session, work, time.monotonic() + delay + 1)
        raise AssertionError("no run was interrupted")
    run_until(session, work, 0)


@pytest.mark.slow
@pytest.mark.usefixtures("signals_enabled")
@pytest.mark.parametrize("engine", ["compiled", "tokens"])
@pytest.mark.parametrize("work", _WORKS)
def test_a_run_after_an_interrupted_one_has_its_values(work: str, engine: str) -> None:
    numbers = random.Random(f"{work} {engine}")
    graph = cfgraph.loads(_WORKS[work].text.encode(), "graph")
    with cfgraph.Session(graph, workers=cfgraph.Processes(2), engine=engine) as session:
        run_until(session, _WORKS[work], 0)
        for _ in range(10):
            interrupt_driver(session, _WORKS[work], 0.2 * numbers.random())


@pytest.mark.parametrize("called", [1, 2])
def test_an_interrupt_while_a_step_starts_ends_it_on_all_workers(
    called: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = cfgraph.loads(counting().encode(), "graph")
    call, steps = ThreadHandle.call, list[str]()

    def call_interrupted(self: ThreadHandle, method: str, *args: Any) -> Any:
        future = call(self, method, *args)
        if method == "step":
            steps.append(method)
            if len(steps) == called:
                raise KeyboardInterrupt
        return future

    with cfgraph.Session(graph, workers=Threads(2)) as session:
        assert session.run(["out:0"], {"n:0": np.int32(3)}) == [3]
        monkeypatch.setattr(ThreadHandle, "call", call_interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.run(["out:0"], {"n:0": np.int32(4)})
        assert session.run(["out:0"], {"n:0": np.int32(5)}, timeout=20) == [5]


def test_an_interrupted_start_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[ProcessHandle]()

    def make_interrupted() -> ProcessHandle:
        if made:
            raise KeyboardInterrupt
        made.append(ProcessHandle())
        return made[-1]

    monkeypatch.setattr(processes, "ProcessHandle", make_interrupted)
    graph = cfgraph.loads(counting().encode(), "graph")
    with (
        cfgraph.Session(graph, workers=cfgraph.Processes(2)) as session,
        pytest.raises(KeyboardInterrupt),
    ):
        session.run(["out:0"], {"n:0": np.int32(3)})
    assert made[0].pid not in children()


def main() -> None:
    """Interrupt workers at random moments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tries", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--how", choices=_INTERRUPTIONS, action="append")
    options = parser.parse_args()
    random_number, failed = random.Random(options.seed), 0
    for _ in range(options.tries):
        for name, work in _WORKS.items():
            for how in options.how or _INTERRUPTIONS:
                worker, engine = (
                    random_number.randrange(2),
                    random_number.choice(["compiled", "tokens"]),
                )
                delay = 0.5 * random_number.random()
                try:
                    end = interrupt(work, _INTERRUPTIONS[how], worker, engine, delay)
                except Exception as error:
                    failed += 1
                    end = f"FAILED {type(error).__name__}: {error}"
                print(f"{name} {how} worker {worker} {engine} {delay:.3f}: {end}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
