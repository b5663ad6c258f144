"""A child process answers, or its death, silence, and garbage are errors with a code."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfgraph.errors import ExecutionError, ProcessLost, RunTimeout
from cfgraph.limits import limited
from cfgraph.ops.opdef.op import OpError
from cfgraph.processes.child_process import ChildPool, ChildProcess, ChildProgram
from cfgraph.processes.messages import ProcessMessage
from cfgraph.processes.shared_arrays import SharedArray

PROGRAM = ChildProgram(
    "tests.processes.misbehaving_program", "misbehaves", "CFG715", "a hint of the program"
)
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="confinement is that of Linux")


@pytest.fixture
def child() -> Iterator[ChildProcess]:
    child = ChildProcess(PROGRAM)
    yield child
    child.close()


def request(child: ChildProcess, kind: str, seconds: float = 30, **fields: Any) -> ProcessMessage:
    header = {"kind": kind, "max_bytes": 1 << 30, **fields}
    return child.request(ProcessMessage(header, {"x": np.arange(3)}), seconds=seconds)


def test_a_request_is_answered_and_the_process_stays(child: ChildProcess) -> None:
    first = child.pid
    for _ in range(2):
        reply = request(child, "fault", fault="nothing")
        np.testing.assert_array_equal(reply.arrays["x"], [0, 1, 2])
    with pytest.raises(OpError, match="planted") as caught:
        request(child, "fault", fault="fail")
    assert caught.value.hint == "a hint"
    assert (child.pid, child.is_usable) == (first, True)


@pytest.mark.parametrize(
    ("kind", "fault", "message"),
    [
        ("fault", "abort", "ended: SIGABRT: Check failed: planted"),
        ("fault", "exit", "ended: exit status 7"),
        ("fault", "segfault", "ended: SIGSEGV"),
        ("fault", "sleep", "gave no answer within 0.5 s"),
        ("fault", "hold the lock", "gave no answer within 0.5 s"),
        ("garbage", "", "sent bytes that are not an answer"),
    ],
)
def test_a_failure_of_the_process_is_an_error_with_a_code(
    child: ChildProcess, kind: str, fault: str, message: str
) -> None:
    request(child, "fault", fault="nothing")
    with pytest.raises(ProcessLost) as caught:
        request(child, kind, seconds=0.5 if "0.5 s" in message else 60, fault=fault)
    assert caught.value.message == f"the process that misbehaves {message}"
    assert (caught.value.code, caught.value.hint) == ("CFG715", "a hint of the program")
    assert not Path(f"/proc/{child.pid}").exists()


def test_a_process_that_cannot_be_started_is_an_error_and_leaves_no_descriptor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    before = {*os.listdir("/dev/fd")}
    with pytest.raises(ProcessLost, match="cannot be started: No such file") as caught:
        ChildProcess(PROGRAM)
    assert caught.value.code == "CFG715"
    assert "room for another process" in str(caught.value.hint)
    assert {*os.listdir("/dev/fd")} <= before


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["stop", "sleep"])
def test_silence_without_a_time_limit_is_an_error(child: ChildProcess, fault: str) -> None:
    request(child, "fault", fault="nothing")
    start = time.monotonic()
    with pytest.raises(ProcessLost, match="did nothing for 4 s, and gave no answer"):
        request(child, "fault", seconds=inf, fault=fault)
    assert time.monotonic() - start < 10
    assert not child.is_usable


@LINUX
@pytest.mark.slow
def test_work_in_a_thread_of_the_process_is_no_silence(child: ChildProcess) -> None:
    request(child, "fault", seconds=inf, fault="work in a thread")
    assert child.is_usable


def test_an_answer_beyond_the_memory_limit_is_not_read(child: ChildProcess) -> None:
    request(child, "fault", fault="nothing")
    with limited(max_memory=1 << 20), pytest.raises(ProcessLost, match="are not an answer"):
        request(child, "claim", bytes=1 << 30)


def test_the_deadline_of_the_context_ends_the_process(child: ChildProcess) -> None:
    start = time.monotonic()
    with limited(timeout=0.5), pytest.raises(RunTimeout):
        request(child, "fault", fault="hold the lock")
    assert time.monotonic() - start < 30
    assert not child.is_usable


def test_the_deadline_of_the_context_ends_a_request_that_is_not_read(child: ChildProcess) -> None:
    request(child, "fault", fault="nothing")
    os.kill(child.pid, signal.SIGSTOP)
    start = time.monotonic()
    with limited(timeout=0.3), pytest.raises(RunTimeout):
        child.request(ProcessMessage({"kind": "fault"}, {"x": np.zeros(1 << 20)}))
    assert time.monotonic() - start < 30
    assert not child.is_usable


def test_an_error_of_a_handler_is_not_the_silence_of_the_process(child: ChildProcess) -> None:
    def fail(*_: object) -> None:
        raise TimeoutError("of the handler")

    request(child, "fault", fault="nothing")
    before = signal.signal(signal.SIGALRM, fail)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(TimeoutError, match="of the handler"):
            request(child, "fault", fault="sleep")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not child.is_usable


def test_the_memory_limit_ends_the_process(child: ChildProcess) -> None:
    with limited(max_memory=1 << 20), pytest.raises(ExecutionError, match="out of memory"):
        request(child, "fault", fault="memory")
    assert not child.is_usable


@LINUX
def test_the_process_writes_no_file_and_reaches_no_other(
    child: ChildProcess, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("content")
    done = request(child, "attempt", folder=str(tmp_path)).header["done"]
    assert done == ["read a file", "start a thread"]
    assert (tmp_path / "file").read_text() == "content"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


_PARENT = """
import os, signal, sys, threading, time
from tests.processes.test_child_processes import PROGRAM, request
from cfgraph.processes.child_process import ChildProcess
child = ChildProcess(PROGRAM)
# the thread that starts a process may end before it
thread = threading.Thread(target=request, args=(child, "fault"), kwargs={"fault": "nothing"})
thread.start()
thread.join()
# a fault
print(child.pid, flush=True)
request(child, "fault", fault="hold the lock")
"""


_FAULTS = {
    "lock": "",
    "stopped": "os.kill(child.pid, signal.SIGSTOP)",
    # a copy of the parent, which stays for a while
    "copied": "os.fork() or time.sleep(10) or os._exit(0)",
}


@LINUX
@pytest.mark.parametrize("fault", _FAULTS)
def test_the_process_ends_with_its_parent(fault: str, root: Path) -> None:
    program = _PARENT.replace("# a fault", _FAULTS[fault])
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=root, text=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
    time.sleep(0.3)
    assert _runs(pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 60
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _runs(pid)


_WITHOUT_STREAMS = """
import os
from tests.processes.test_child_processes import PROGRAM, request
from cfgraph.processes.child_process import ChildProcess
status = os.dup(1)
for stream in range(3):
    os.close(stream)
child = ChildProcess(PROGRAM)
os.write(status, str(request(child, "fault", fault="nothing").arrays["x"].tolist()).encode())
"""


def test_a_parent_without_standard_streams_has_children(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_STREAMS], stdout=subprocess.PIPE, cwd=root, check=True
    )
    assert done.stdout == b"[0, 1, 2]"


@LINUX
def test_a_system_without_room_for_a_process_is_an_error_with_a_code() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = os.listdir("/proc/self/fd")
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(before) + 2, limits[1]))
    try:
        with pytest.raises(ProcessLost, match="cannot be started: Too many open files") as caught:
            ChildProcess(PROGRAM)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert caught.value.code == "CFG715"
    assert len(os.listdir("/proc/self/fd")) <= len(before)


# jax, which another test may have loaded, warns of forks
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_copy_of_a_process_starts_children_of_its_own() -> None:
    pool = ChildPool(lambda: ChildProcess(PROGRAM))
    with pool.leased() as first:
        request(first, "fault", fault="nothing")
    copy = os.fork()
    if not copy:
        with suppress(BaseException), pool.leased() as second:
            request(second, "fault", fault="nothing")
            os._exit(first.pid == second.pid)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == 0
    with pool.leased() as again:
        assert request(again, "fault", fault="nothing").arrays["x"].tolist() == [0, 1, 2]
        assert again.pid == first.pid
    pool.close()


def _runs(pid: int) -> bool:
    """True for a process that is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_pool_reuses_the_process_that_is_idle() -> None:
    pool = ChildPool(lambda: ChildProcess(PROGRAM))
    with pool.leased() as first, pool.leased() as second:
        assert first.pid != second.pid
    with pool.leased() as again:
        request(again, "fault", fault="nothing")
        assert again.pid in (first.pid, second.pid)
        os.kill(again.pid, signal.SIGKILL)
        with pytest.raises(ProcessLost, match="SIGKILL"):
            request(again, "fault", fault="nothing")
    pool.close()
    assert not any(_runs(child.pid) for child in (first, second))


def test_a_shared_array_is_copied_only_if_it_has_changed() -> None:
    shared = SharedArray(np.empty(1 << 18, np.float32))
    value = np.zeros(1 << 18, np.float32)
    assert [shared.store(value), shared.store(value), shared.store(value.copy())] == [
        True,
        False,
        False,
    ]
    value[-1] = 1
    assert shared.store(value)
    assert shared.array[-1] == 1
    value.flags.writeable = False
    assert not shared.store(value)
    assert shared.store(value[::-1])
    assert shared.array[0] == 1
