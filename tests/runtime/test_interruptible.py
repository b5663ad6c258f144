"""Signals and the deadline end a run while XLA compiles."""

from __future__ import annotations

import gc
import importlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from types import FrameType
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.backends.xla import compile as jax_compile
from cfgraph.backends.xla.compile_process import RemoteFunction
from cfgraph.backends.xla.loaded_executable import NotLoadable
from cfgraph.errors import RunTimeout
from cfgraph.limits import current_limits, limited, run_interruptibly
from cfgraph.passes.cluster.cluster import cluster
from cfgraph.runtime.session import Session

needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax (extra `xla`) is absent")

PROGRAM = """
x = Placeholder() {dtype=float32, shape=[2]}
square = Mul(x, x)
y = Add(square, x)
"""
ENDLESS = """
zero = Const() {dtype=int32, value=int32[]:0}
i = Enter(zero) {frame_name="loop"}
merge = Merge(i, next)
same = Equal(merge, merge)
cond = LoopCond(same)
switch = Switch(merge, cond)
next = NextIteration(switch:1)
y = Exit(switch)
"""
ABANDONED = """
import threading, time
from cfgraph.errors import RunTimeout
from cfgraph.limits import limited, run_interruptibly
given_up = threading.Event()

def work():
    given_up.wait()
    time.sleep(0.2)
    print("done")

try:
    with limited(timeout=0.05):
        run_interruptibly(work)
except RunTimeout:
    print("given up")
    given_up.set()
"""
LONG = 20.0
MAIN = threading.main_thread().ident or 0


def fail(*_: object) -> None:
    raise TimeoutError("of the handler")


def fail_once(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    fail()


class Failing:
    def __call__(self, *_: object) -> None:
        fail()


@contextmanager
def alarm(seconds: float, handler: Callable[..., None] = fail) -> Iterator[None]:
    """A handler that raises an error in the main thread after some time.

    Python drops the error of a handler that runs in the callback of a weak reference, as it does
    while garbage is collected. So none is collected within the block.
    """
    gc.disable()
    previous = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        gc.enable()


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """An event that ends long work, also of threads that nobody waits for."""
    event = threading.Event()
    yield event
    event.set()


def not_loadable(*_: Any) -> None:
    raise NotLoadable("another jaxlib")


@pytest.fixture
def slow_compiler(monkeypatch: pytest.MonkeyPatch, release: threading.Event) -> None:
    importlib.import_module("jax")  # an import that is interrupted cannot be repeated
    compiled = jax_compile.TraceableFunction._compile

    def slow(self: Any, *args: Any) -> Any:
        release.wait(LONG)
        return compiled(self, *args)

    monkeypatch.setattr(jax_compile.TraceableFunction, "_compile", slow)
    monkeypatch.setattr(RemoteFunction, "answer", not_loadable)


def session() -> Session:
    return Session(cfgraph.loads(PROGRAM.encode(), "graph"), engine="xla")


def test_results_and_errors_pass() -> None:
    assert run_interruptibly(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        run_interruptibly(lambda: 1 // 0)


def test_work_sees_the_limits_of_its_caller() -> None:
    with limited(max_iterations=7, timeout=60):
        assert run_interruptibly(lambda: current_limits().max_iterations) == 7


def test_a_thread_that_no_signal_reaches_works_by_itself() -> None:
    names: list[str] = []

    def compute() -> None:
        names.append(run_interruptibly(lambda: threading.current_thread().name))

    thread = threading.Thread(target=compute, name="caller")
    thread.start()
    thread.join()
    assert names == ["caller"]


@needs_jax
@pytest.mark.usefixtures("slow_compiler")
def test_a_signal_ends_a_compilation() -> None:
    # a shell starts its background jobs with this signal ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, lambda: signal.pthread_kill(MAIN, signal.SIGINT))
    run, start = session(), time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run.run("y", {"x": np.ones(2, np.float32)})
    assert time.monotonic() - start < LONG / 2


@needs_jax
@pytest.mark.usefixtures("slow_compiler")
def test_an_error_of_a_handler_is_not_one_of_the_compiler() -> None:
    run = session()
    with alarm(0.2), pytest.raises(TimeoutError, match="of the handler"):
        run.run("y", {"x": np.ones(2, np.float32)})
    assert not any(cluster.compilations for cluster in run.cluster_runner.clusters.values())


def test_the_interpreter_waits_for_work_whose_caller_has_given_up() -> None:
    command = [sys.executable, "-c", ABANDONED]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.split("\n") == ["given up", "done", ""]


@pytest.mark.parametrize("engine", ["tokens", "compiled"])
def test_a_run_passes_the_error_of_a_handler(engine: str) -> None:
    run = Session(cfgraph.loads(ENDLESS.encode(), "graph"), engine=engine)
    with alarm(0.1), pytest.raises(TimeoutError, match="of the handler"):
        run.run("y", timeout=LONG)


@pytest.mark.parametrize(
    "handler", [partial(fail, 1), Failing(), fail_once], ids=["partial", "object", "once"]
)
def test_a_handler_need_not_be_a_function_that_remains(handler: Callable[..., None]) -> None:
    run = Session(cfgraph.loads(ENDLESS.encode(), "graph"), engine="compiled")
    with alarm(0.1, handler), pytest.raises(TimeoutError, match="of the handler"):
        run.run("y", timeout=LONG)


@pytest.mark.parametrize("regions", [False, True], ids=["nodes", "cluster"])
@pytest.mark.parametrize("engine", ["tokens", "compiled"])
def test_an_error_of_a_handler_is_not_one_of_a_kernel(engine: str, regions: bool) -> None:
    def reject(*_: object) -> None:
        raise ValueError("of the handler")

    graph = cfgraph.loads(ENDLESS.encode(), "graph")
    if regions:
        cluster(graph, regions=True)
    run = Session(graph, engine=engine)
    run.cluster_runner.engine = "numpy"
    with alarm(0.1, reject), pytest.raises(ValueError, match="of the handler"):
        run.run("y", timeout=LONG)


@pytest.mark.parametrize("timeout", [1e10, 1e300])
def test_a_deadline_may_be_far_away(timeout: float) -> None:
    with limited(timeout=timeout):
        assert run_interruptibly(lambda: 3) == 3


@needs_jax
def test_the_deadline_ends_a_compilation(slow_compiler: None, release: threading.Event) -> None:
    run, start = session(), time.monotonic()
    with pytest.raises(RunTimeout):
        run.run("y", {"x": np.ones(2, np.float32)}, timeout=0.3)
    assert time.monotonic() - start < LONG / 2
    release.set()
    (y,) = run.run("y", {"x": np.full(2, 3, np.float32)})
    np.testing.assert_array_equal(y, [12, 12])
