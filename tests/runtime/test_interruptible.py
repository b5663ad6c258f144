"""Signals and the deadline end a run while XLA compiles."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import RunTimeout
from cfgraph.limits import current_limits, limited, run_interruptibly
from cfgraph.runtime.jax import compile as jax_compile
from cfgraph.runtime.session import Session

needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax (extra `xla`) is absent")

PROGRAM = """
x = Placeholder() {dtype=float32, shape=[2]}
square = Mul(x, x)
y = Add(square, x)
"""
LONG = 20.0
MAIN = threading.main_thread().ident or 0


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """An event that ends long work, also of threads that nobody waits for."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def slow_compiler(monkeypatch: pytest.MonkeyPatch, release: threading.Event) -> None:
    compiled = jax_compile.CompiledFunction.__init__

    def slow(self: Any, *args: Any) -> None:
        release.wait(LONG)
        compiled(self, *args)

    monkeypatch.setattr(jax_compile.CompiledFunction, "__init__", slow)


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
    timer = threading.Timer(0.2, lambda: signal.pthread_kill(MAIN, signal.SIGINT))
    run, start = session(), time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run.run("y", {"x": np.ones(2, np.float32)})
    assert time.monotonic() - start < LONG / 2


@needs_jax
def test_the_deadline_ends_a_compilation(slow_compiler: None, release: threading.Event) -> None:
    run, start = session(), time.monotonic()
    with pytest.raises(RunTimeout):
        run.run("y", {"x": np.ones(2, np.float32)}, timeout=0.3)
    assert time.monotonic() - start < LONG / 2
    release.set()
    (y,) = run.run("y", {"x": np.full(2, 3, np.float32)})
    np.testing.assert_array_equal(y, [12, 12])
