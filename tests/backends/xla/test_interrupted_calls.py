"""A deadline or a signal ends a call while XLA works, and the next one works as before."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.backends.xla import compile_process
from cfgraph.errors import ExecutionError, RunTimeout
from cfgraph.limits import abandoned_work_continues, limited

pytestmark = pytest.mark.skipif(find_spec("jax") is None, reason="jax (extra `xla`) is absent")
FOREVER = Path(__file__).parents[3] / "fixtures" / "robustness" / "clustered_forever.pb"
# seconds after which a call would end, and that a test waits for its end
LONG, PATIENCE = 240.0, 120.0


class Clock:
    """The look at the clock of a loop: it first does what a test has set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before: Any = lambda deadline: None
        look = compile_process.look_at_clock

        def look_at_clock(count: Any, deadline: Any) -> Any:
            self.before(float(deadline))
            return look(count, deadline)

        monkeypatch.setattr(compile_process, "look_at_clock", look_at_clock)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def forever(clock: Clock) -> cfgraph.Session:
    """A session whose loop is compiled, and never ends."""
    session = cfgraph.Session(cfgraph.load(FOREVER), engine="xla")
    with pytest.raises(ExecutionError, match="more than 3 iterations"):
        session.run("exit0", {"x": 1.0}, max_iterations=3, timeout=LONG)
    return session


@pytest.fixture
def handler() -> Iterator[None]:
    """A handler of SIGALRM that raises an error."""

    def fail(*_: object) -> None:
        raise TimeoutError("of the handler")

    before = signal.signal(signal.SIGALRM, fail)
    yield
    signal.signal(signal.SIGALRM, before)


def test_a_deadline_that_passes_in_a_callback_is_one(clock: Clock, forever: Any) -> None:
    def look_long(deadline: float) -> None:
        while time.monotonic() < deadline + 0.2:
            pass

    clock.before = look_long
    with pytest.raises(RunTimeout) as caught:
        forever.run("exit0", {"x": 1.0}, timeout=0.2)
    assert caught.value.code == "CFG706"


@pytest.mark.usefixtures("handler")
def test_an_error_of_a_handler_during_a_callback_ends_the_call(clock: Clock, forever: Any) -> None:
    main = threading.main_thread().ident or 0
    looks: list[float] = []

    def interrupt(deadline: float) -> None:
        looks.append(deadline)
        if len(looks) == 1:
            signal.pthread_kill(main, signal.SIGALRM)

    clock.before = interrupt
    with limited(timeout=LONG):
        with pytest.raises(TimeoutError, match="of the handler"):
            forever.run("exit0", {"x": 1.0})
        end = time.monotonic() + PATIENCE
        while abandoned_work_continues():
            assert time.monotonic() < end
            time.sleep(0.01)
        assert set(looks) == {looks[0]}
        # the function is still compiled, and runs until the deadline that both calls have
        clock.before = looks.append
        looks.clear()
        with pytest.raises(ExecutionError, match="more than 1000 iterations"):
            forever.run("exit0", {"x": 1.0}, max_iterations=1000)
    assert len(looks) > 2


SLOW_IMPORT = """
import math, sys, time
from cfgraph.backends.xla.jax_library import load_jax
from cfgraph.errors import RunTimeout
from cfgraph.limits import DeadlinePassed, current_limits, limited
from cfgraph.runtime.compiled.call_deadlines import call_until

class Slow:
    def find_spec(self, name, path, target=None):
        end = current_limits().deadline + 0.2
        while name == "jax._src" and time.monotonic() < end < math.inf:
            pass

sys.meta_path.insert(0, Slow())
try:
    with limited(timeout=0.1) as limits:
        call_until(limits.deadline, load_jax)
except (DeadlinePassed, RunTimeout):
    print("late")
print(load_jax().numpy.arange(3).sum())
"""


def test_jax_is_loaded_though_a_deadline_passed_meanwhile() -> None:
    command = [sys.executable, "-c", SLOW_IMPORT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert (done.stdout, done.stderr) == ("late\n3\n", "")
