"""Runs of one session from several threads: each computes its own values."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import ExecutionError
from cfgraph.ir.gc_pause import paused_gc
from cfgraph.runtime.cost_model import CostModel
from cfgraph.runtime.preparation.prepared_runs import MAX_IDLE_DRIVERS
from cfgraph.runtime.session import Session
from cfgraph.runtime.trace.events import TraceEvent
from tests.runtime.graphs import loop, session

THREADS = 8
RUNS = 24
ROOT = Path(__file__).parents[2]
COUNTER = ROOT / "fixtures" / "graphs" / "counter.pb"

TOTAL = """
one = Placeholder() {dtype=int32, shape=[]}
cell = VarHandleOp() {dtype=int32, shape=[], shared_name="total"}
zero = Const() {dtype=int32, value=int32[]:0}
init = AssignVariableOp(cell, zero) {dtype=int32}
add = AssignAddVariableOp(cell, one) {dtype=int32}
value = ReadVariableOp(cell) {dtype=int32}
shape = Const() {dtype=int32, value=int32[1]:[4]}
noise = RandomUniform(shape) {T=int32, dtype=float32}
"""


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    """Let threads switch as often as possible."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


class Recorder:
    """Observer that collects the events of one run."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []

    def event(self, event: TraceEvent) -> None:
        self.events.append(event)


def in_threads(work: Callable[[int], None], threads: int = THREADS) -> None:
    """Call `work` with the index of each thread, all at once; raise what one of them raises."""
    barrier, errors = threading.Barrier(threads), list[BaseException]()

    def start(index: int) -> None:
        try:
            barrier.wait()
            work(index)
        except BaseException as error:
            errors.append(error)

    started = [threading.Thread(target=start, args=(index,)) for index in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if errors:
        raise errors[0]


def count_in_threads(shared: Session, runs: int = RUNS, *, traced: bool = False) -> None:
    """Count to another limit in each run; half of the threads run another fetch-set too."""

    def count(index: int) -> None:
        for run in range(runs):
            limit = 1 + (3 * index + run) % 9
            recorder = Recorder() if traced else None
            feeds = {"n:0": np.int32(limit)}
            fetches = ["count:0", "while/Exit:0"] if index % 2 and run % 3 == 0 else ["count:0"]
            assert shared.run(fetches, feeds, trace=recorder) == [limit] * len(fetches)
            if recorder is not None:
                tests = [event for event in recorder.events if event.node == "while/LoopCond"]
                assert len(tests) == limit + 1

    in_threads(count)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"schedule": "random"},
        {"costs": CostModel()},
        {"devices": "cpu:0,cpu:1"},
        {"jit": "numpy"},
        {"jit": "numpy", "regions": True},
        {"memory": {}},
    ],
    ids=["plain", "random", "costs", "devices", "jit", "regions", "memory"],
)
def test_threads_get_the_values_of_their_own_runs(options: dict[str, Any]) -> None:
    for _ in range(2):
        count_in_threads(Session(cfgraph.load(COUNTER), **options), RUNS // 2)


def test_traced_runs_record_their_own_tokens() -> None:
    count_in_threads(Session(cfgraph.load(COUNTER)), 5, traced=True)


def test_first_runs_in_a_new_process_load_ops_from_several_threads() -> None:
    code = (
        "import sys, threading\n"
        "import cfgraph\n"
        "sys.setswitchinterval(1e-6)\n"
        "session, counts = cfgraph.Session(cfgraph.load(sys.argv[1]), jit='numpy'), []\n"
        "def count(limit):\n"
        "    counts.append(limit - session.run(['count:0'], {'n:0': limit})[0])\n"
        f"threads = [threading.Thread(target=count, args=(n,)) for n in range({THREADS})]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        f"sys.exit(counts != [0] * {THREADS})\n"
    )
    subprocess.run([sys.executable, "-c", code, COUNTER], cwd=ROOT, check=True)


def test_updates_of_variables_are_atomic() -> None:
    shared = session(TOTAL)
    shared.run(targets=["init"])
    in_threads(lambda index: [shared.run(targets=["add"], feeds={"one": 1}) for _ in range(40)])
    assert shared.run(["value:0"]) == [40 * THREADS]


def test_concurrent_runs_draw_different_numbers() -> None:
    shared, draws = session(TOTAL), list[bytes]()
    in_threads(
        lambda index: [draws.append(shared.run(["noise:0"])[0].tobytes()) for _ in range(10)]
    )
    assert len(set(draws)) == 10 * THREADS


def test_limits_belong_to_a_run() -> None:
    shared = session(loop())

    def count(index: int) -> None:
        for _ in range(RUNS):
            if index % 2:
                with pytest.raises(ExecutionError, match="more than 3 iterations"):
                    shared.run(["out:0"], {"n": 9}, max_iterations=3)
            else:
                assert shared.run(["out:0"], {"n": 9}) == [9]

    in_threads(count)


def test_a_run_may_start_another_one() -> None:
    shared, counts = session(loop()), list[Any]()

    class Nested:
        def event(self, event: TraceEvent) -> None:
            if event.node == "cond":
                counts.extend(shared.run(["out:0"], {"n": 2}))

    assert shared.run(["out:0"], {"n": 4}, trace=Nested()) == [4]
    assert counts == [2] * 5


def test_a_session_keeps_a_bounded_number_of_idle_drivers() -> None:
    shared, threads = session(loop()), MAX_IDLE_DRIVERS + 4
    in_threads(lambda index: [shared.run(["out:0"], {"n": 3}) for _ in range(5)], threads)
    (prepared,) = shared._prepared
    assert 1 <= len(prepared.idle) <= MAX_IDLE_DRIVERS
    assert shared.ran is prepared.graph


def test_the_collector_is_enabled_after_concurrent_pauses() -> None:
    def pause(index: int) -> None:
        for _ in range(50):
            with paused_gc():
                assert not gc.isenabled()

    in_threads(pause)
    assert gc.isenabled()


def test_the_state_of_a_session_can_be_copied() -> None:
    graph = cfgraph.loads(b"v = VariableV2() {dtype=float32, shape=[]}\n", "graph")
    session = cfgraph.Session(graph)
    session.run("v:0", {"v:0": 1.0})
    copied = pickle.loads(pickle.dumps(copy.deepcopy(session.state)))
    assert cfgraph.Session(graph, state=copied).run("v:0", {"v:0": 2.0}) == [2.0]
