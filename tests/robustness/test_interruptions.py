"""Signals and limits of processes: they end within a second, with the right status, quietly."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures" / "robustness"
GRAPHS = ROOT / "fixtures" / "graphs"
FOREVER = ["run", FIXTURES / "clustered_forever.pb", "--feed", "x=1", "--engine"]
_EXIT_CODES = {signal.SIGHUP: 129, signal.SIGINT: 130, signal.SIGTERM: 143}
# a second, and the delays of a busy machine
_PATIENCE = 20
_COMMANDS = [
    [*FOREVER, "compiled"],
    ["run", GRAPHS / "counter.pb", "--feed", "n=2000000000"],
    ["partition", GRAPHS / "lstm_grad.pb", "--devices", "cpu:0,cpu:1", "-o", "out.pb"],
    ["cluster", GRAPHS / "lstm_grad.pb", "-o", "out.pb"],
]
pytestmark = pytest.mark.usefixtures("signals_enabled")


def start(args: list[object], folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "cfgraph", *map(str, args)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=folder)


def wait_until_handled(process: subprocess.Popen[bytes]) -> None:
    """Wait until SIGTERM has a handler: before, Python itself handles signals."""
    status, caught = Path(f"/proc/{process.pid}/status"), 0
    while process.poll() is None and not caught >> (signal.SIGTERM - 1) & 1:
        lines = status.read_text().splitlines()
        caught = next((int(x.split()[1], 16) for x in lines if x.startswith("SigCgt")), 0)
        time.sleep(0.001)


def interrupt(args: list[object], number: signal.Signals, delay: float, folder: Path) -> None:
    """Send a signal; check the status, the time until the end, and that nothing is printed."""
    with start(args, folder) as process:
        wait_until_handled(process)
        time.sleep(delay)
        before = process.poll()
        process.send_signal(number)
        _, errors = process.communicate(timeout=_PATIENCE)
        if before is None and process.returncode != 0:
            assert process.returncode == _EXIT_CODES[number], (args, delay, errors)
        assert process.returncode in (0, _EXIT_CODES[number])
        assert b"Traceback" not in errors, (args, delay, errors)
        assert b"ignored" not in errors, (args, delay, errors)


@pytest.mark.parametrize("number", _EXIT_CODES)
def test_a_signal_ends_any_command_at_any_moment(number: signal.Signals, tmp_path: Path) -> None:
    moments = random.Random(number)
    for args in _COMMANDS:
        interrupt(args, number, 0.5 * moments.random(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", _EXIT_CODES)
def test_signals_at_many_moments(number: signal.Signals, tmp_path: Path) -> None:
    moments = random.Random(number + 100)
    for _ in range(40):
        for args in _COMMANDS:
            interrupt(args, number, 1.5 * moments.random(), tmp_path)


@pytest.mark.slow
def test_a_signal_ends_a_compiled_loop(tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="compiled loops need the extra xla")
    args = [*FOREVER, "xla", "--json"]
    with start(args, tmp_path) as process:
        time.sleep(5)  # long enough for the compilation
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=_PATIENCE)
    assert (process.returncode, errors.split(b",")[0]) == (143, b"terminated in run")
    assert json.loads(output)["error"]["message"] == "terminated"


@pytest.mark.parametrize(
    ("engine", "seconds"), [("compiled", "0.5"), pytest.param("xla", "3", marks=pytest.mark.slow)]
)
def test_the_timeout_ends_a_loop_in_a_cluster(engine: str, seconds: str, tmp_path: Path) -> None:
    if engine == "xla":
        pytest.importorskip("jax", reason="compiled loops need the extra xla")
    args = [*FOREVER, engine, "--timeout", seconds]
    with start(args, tmp_path) as process:
        _, errors = process.communicate(timeout=_PATIENCE)
    assert process.returncode == 6
    assert b"error[CFG706]: " in errors


def test_the_timeout_counts_reading(tmp_path: Path) -> None:
    with start(["show", "-", "--timeout", "0.2"], tmp_path) as process:
        assert process.wait(timeout=_PATIENCE) == 6


_LOST = """
import gc, signal, sys, threading, time
from cfgraph.cli import watchdog

def report(interruption):
    print("reported", interruption.exit_code, flush=True)

dog = watchdog.Watchdog(time.monotonic(), report)
dog.start()

def {place}

threading.Timer(0.1, lambda: signal.raise_signal(signal.SIGTERM)).start()
{loop}
"""
_IN_CALLBACK = """callback(phase, info):
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        pass
gc.callbacks.append(callback)"""
_SWALLOWED = """work():
    try:
        time.sleep(10)
    except BaseException:
        pass"""


@pytest.mark.parametrize(
    ("place", "loop"),
    [(_IN_CALLBACK, "while True: gc.collect()"), (_SWALLOWED, "while True: work()")],
)
def test_a_lost_exception_ends_the_process(place: str, loop: str) -> None:
    script = _LOST.format(place=place, loop=loop)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=20, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, "reported 143\n", "")


_REPLACED = """
import signal, sys
from cfgraph.__main__ import main

class Name:
    def __set_name__(self, owner, name):
        signal.raise_signal(signal.SIGTERM)

class Finder:
    def find_spec(self, name, path, target=None):
        if name == "cfgraph.ir.files":
            sys.meta_path.remove(self)
            type("Owner", (), {"name": Name()})

sys.meta_path.insert(0, Finder())
main()
"""


def test_an_exception_that_replaces_an_interruption_is_not_reported() -> None:
    command = [sys.executable, "-c", _REPLACED, "check", str(GRAPHS / "counter.pb")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "terminated\n")


_SIGNAL_AT_EXIT = """
import atexit, os, signal, sys
from cfgraph.__main__ import main
atexit.register(os.kill, os.getpid(), signal.SIGINT)
main()
"""


def test_a_signal_after_the_end_of_a_command_is_ignored() -> None:
    command = [sys.executable, "-c", _SIGNAL_AT_EXIT, "check", str(GRAPHS / "counter.pb")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_memory_beyond_the_limit_ends_the_process(tmp_path: Path) -> None:
    args = ["run", FIXTURES / "splat_4gib.pb", "--max-memory", "1GiB"]
    with start(args, tmp_path) as process:
        _, errors = process.communicate(timeout=_PATIENCE)
    assert process.returncode == 5
    assert errors.startswith(b"error")
