"""Deadlines end calls from another thread, at no cost in loops; memory is flat in long loops."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
import time
import tracemalloc
from itertools import repeat
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import cfgraph
from cfgraph.limits import DeadlinePassed
from cfgraph.runtime.compiled import call_deadlines
from cfgraph.runtime.compiled.call_deadlines import call_until
from cfgraph.runtime.session import Session
from tests.runtime.compiled.agreement import ENGINES
from tests.runtime.compiled.test_generated_code import GRAPHS, counter


def endless() -> None:
    for _ in repeat(None):
        pass


def test_a_call_before_its_deadline_has_its_result_and_its_errors() -> None:
    def fail() -> None:
        raise ValueError("failed")

    assert call_until(time.monotonic() + 60, int, "3") == 3
    with pytest.raises(ValueError, match="failed"):
        call_until(time.monotonic() + 60, fail)
    assert not call_deadlines._clock.alarms


def test_a_deadline_ends_the_call_of_its_own_thread_only() -> None:
    ended: dict[int, float] = {}

    def run(number: int) -> None:
        start = time.monotonic()
        with pytest.raises(DeadlinePassed):
            call_until(start + number * 0.1, endless)
        ended[number] = time.monotonic() - start

    threads = [threading.Thread(target=run, args=(number,)) for number in (1, 2, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(seconds >= number * 0.1 for number, seconds in ended.items())
    assert sorted(ended) == [1, 2, 4]


def test_a_dropped_exception_is_raised_again() -> None:
    def run() -> None:
        try:
            endless()
        except DeadlinePassed:
            endless()

    with pytest.raises(DeadlinePassed):
        call_until(time.monotonic() + 0.05, run)


def test_a_deadline_after_the_call_leaves_no_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stops = call_deadlines._clock, [0]
    original = clock.stop

    def stop(alarm: Any) -> None:
        stops[0] += 1
        if stops[0] == 1:  # as an exception of another thread may be raised when a call starts
            raise DeadlinePassed
        original(alarm)

    monkeypatch.setattr(clock, "stop", stop)
    with pytest.raises(DeadlinePassed):
        call_until(time.monotonic() + 60, int)
    assert not clock.alarms


def test_a_thread_that_cannot_start_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = threading.Lock()
    clock = call_deadlines._AlarmClock(lock, threading.Condition(lock))
    monkeypatch.setattr(call_deadlines, "_clock", clock)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("no threads")))
        with pytest.raises(RuntimeError, match="no threads"):
            call_until(time.monotonic() + 60, int)
    with pytest.raises(DeadlinePassed):
        call_until(time.monotonic() + 0.05, endless)


def test_the_thread_of_deadlines_is_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = threading.Lock()
    clock = call_deadlines._AlarmClock(lock, threading.Condition(lock))
    monkeypatch.setattr(call_deadlines, "_clock", clock)
    traces = list[object]()
    threading.settrace(lambda *_: None)
    deadline = time.monotonic() + 0.05
    try:
        with pytest.raises(DeadlinePassed):
            call_until(deadline, endless, sample=lambda _: traces.append(sys.gettrace()))
    finally:
        threading.settrace(None)
    assert traces
    assert set(traces) == {None}


def test_a_run_after_a_timeout_is_not_disturbed() -> None:
    session = Session(counter(), engine="compiled")
    for _ in range(3):
        with pytest.raises(cfgraph.RunTimeout):
            session.run(["count:0"], {"n:0": np.int32(2**31 - 1)}, timeout=0.02)
        assert session.run(["count:0"], {"n:0": np.int32(100_000)}, timeout=60) == [100_000]


def test_a_forked_process_has_deadlines_of_its_own() -> None:
    text = """
import os, time
from cfgraph.limits import DeadlinePassed
from cfgraph.runtime.compiled.call_deadlines import call_until
call_until(time.monotonic() + 60, int)
child = os.fork()
def endless():
    while True:
        pass
try:
    call_until(time.monotonic() + 0.1, endless)
except DeadlinePassed:
    pass
if not child:
    os._exit(0)
raise SystemExit(os.waitpid(child, 0)[1])
"""
    subprocess.run([sys.executable, "-c", text], check=True, timeout=60)


@pytest.mark.slow
def test_memory_is_flat_in_a_long_loop() -> None:
    session = Session(counter(), engine="compiled")

    def peak(count: int) -> Any:
        assert session.run(["count:0"], {"n:0": np.int32(count)}, timeout=600) == [count]
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = peak(1000)
    assert peak(10_000_000) - before < 1 << 10


def test_the_gradient_of_an_lstm_needs_no_more_memory_than_on_tokens() -> None:
    feeds = {"W:0": np.full((512, 1024), 0.01, np.float32), "x:0": np.ones((12, 32, 256), "f")}
    peaks = {}
    for engine in ENGINES:
        session = Session(cfgraph.load(GRAPHS / "lstm_grad.pb"), engine=engine)
        session.run(["loss:0", "dW:0"], feeds)
        tracemalloc.start()
        try:
            session.run(["loss:0", "dW:0"], feeds)
            peaks[engine] = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peaks["compiled"] <= peaks["tokens"]


_PROFILED = """
import cProfile, sys, cfgraph
session = cfgraph.Session(cfgraph.load(sys.argv[1]))
session.run(["count:0"], {"n": 3})
try:
    session.run(["count:0"], {"n": 2_000_000_000}, timeout=0.3)
except cfgraph.RunTimeout:
    print(cProfile.Profile().runcall(session.run, ["count:0"], {"n": 3}))
"""


def test_a_profiler_works_after_a_timeout(fixtures: Path) -> None:
    command = [sys.executable, "-c", _PROFILED, str(fixtures / "graphs" / "counter.pb")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[np.int32(3)]\n"
