"""Keeper of a child process: start, requests, deadlines, memory, and death as an error.

The child imports a module of cfgraph and answers requests on a private socket until that closes.
It ends with this process, whatever ends that: the system sends it a signal as the other end of a
pipe is closed, also while a library in it never returns.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet

from cfgraph.errors import CfgraphError, ExecutionError, ProcessLost, Unsupported
from cfgraph.limits import Limits, current_limits, out_of_memory_error
from cfgraph.ops.opdef.op import OpError
from cfgraph.processes.messages import (
    ConnectionEnded,
    MessageError,
    ProcessMessage,
    receive,
    send,
    send_descriptors,
)
from cfgraph.stack_position import is_of_signal_handler

# seconds to write a request, to read an answer that has begun, and for a dying process to be gone
_TRANSFER_SECONDS: Final = 30.0
_EXIT_SECONDS: Final = 5.0
# between two looks at the memory and the deadline
_PERIOD_SECONDS: Final = 0.05
# memory of the libraries beyond that of values, as for the command itself
OWN_BYTES: Final = 256 << 20
_LOG_BYTES: Final = 1 << 16
_MAX_LINE: Final = 300
# how a fatal line of absl begins: date, time, and thread
_FATAL: Final = re.compile(r"F\d{4} [\d:.]+ +\d+ ")
_IDLE_PROCESSES: Final = 2
# the priority of a process that yields
_YIELDING: Final = 10
_START_HINT: Final = "the system may have no room for another process; `ulimit -a` has its limits"
_CONFINEMENT: Final = "cfgraph.processes.confinement"
_KINDS: Final = {kind.__name__: kind for kind in (Unsupported, OpError, ExecutionError)}


@dataclass(frozen=True, slots=True)
class ChildProgram:
    """A program for child processes: a module whose `main` calls `serve`, and what it does.

    `task` completes "the process that". `code` and `hint` are those of the error of its death.
    It has `start_seconds` to import its modules. Without use of a processor for `idle_seconds`, a
    process is silent: it is stopped, or waits forever. A process that `yields` has a low priority.
    `environment` has variables that it has in place of those of this process.
    """

    module: str
    task: str
    code: str | None
    hint: str
    is_confined: bool = True
    start_seconds: float = 120.0
    idle_seconds: float = 4.0
    yields: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


class ChildProcess:
    """A child process and its connection; unusable after a failure, and then closed."""

    def __init__(self, program: ChildProgram) -> None:
        self.program, self.owner = program, os.getpid()
        try:
            self._start()
        except OSError as error:
            reason = f"cannot be started: {error.strerror}"
            raise self._error(reason, hint=_START_HINT) from None
        self._poll = select.poll()
        self._poll.register(self._connection, select.POLLIN)
        self._is_ready = self._is_closed = False
        self._first_bytes = 0
        _CHILDREN.add(self)

    def _start(self) -> None:
        """Start the process. Raises OSError if the system refuses it."""
        with ExitStack() as opened:
            near, far = _moved([end.detach() for end in socket.socketpair()], opened)
            watched, lifeline = _moved(os.pipe(), opened)
            log, printed = _moved(os.pipe(), opened)
            ends = (far, watched)
            words = [self.program.module, *map(str, ends)]
            words += ["--confined"] if self.program.is_confined else []
            for end in (log, printed):  # a full log is lost, and stops nobody
                os.set_blocking(end, False)
            self._process = start_module(
                [_CONFINEMENT, *words],
                environment=self.program.environment,
                stdout=printed,
                stderr=printed,
                pass_fds=ends,
                start_new_session=True,  # Ctrl-C reaches this process alone, which ends it
            )
            if self.program.yields:
                os.setpriority(os.PRIO_PROCESS, self._process.pid, _YIELDING)
            opened.pop_all()
        for end in (far, watched, printed):
            os.close(end)
        self._connection, self._lifeline, self._log = socket.socket(fileno=near), lifeline, log

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        """False once the process has ended, or in a copy of the process that started it."""
        alive = not self._is_closed and self.owner == os.getpid()
        return alive and self._process.poll() is None

    def request(
        self,
        message: ProcessMessage,
        descriptors: Sequence[int] = (),
        seconds: float = inf,
    ) -> ProcessMessage:
        """Send a request, and wait for its answer within the limits of the context.

        `seconds` bound the time in which the process could run. Raises the error that the process
        reports; ProcessLost for its death or silence.
        """
        try:
            if not self._is_ready:
                self._answer(self.program.start_seconds, is_start=True)
                self._first_bytes, self._is_ready = _resident_bytes(self.pid), True
            self._drain_log()
            send(self._connection, message, _transfer_deadline())
            send_descriptors(self._connection, descriptors)
            reply = self._answer(seconds)
        except ConnectionEnded:
            raise self._death() from None
        except MessageError:
            raise self._garbage() from None
        except TimeoutError as error:
            self.close()
            if is_of_signal_handler(error):
                raise
            current_limits().check_deadline()
            raise self._error("reads no request") from None
        except BaseException:
            self.close()
            raise
        if (reported := reply.header.get("error")) is not None:
            raise _reported_error(reported)
        return reply

    @contextmanager
    def checked_answer(self) -> Iterator[None]:
        """Report an answer of unexpected content as an error of the process."""
        try:
            yield
        except (CfgraphError, MemoryError):
            raise
        except Exception:
            raise self._garbage() from None

    def _garbage(self) -> ProcessLost:
        self.close()
        return self._error("sent bytes that are not an answer")

    def _answer(self, seconds: float, *, is_start: bool = False) -> ProcessMessage:
        """Wait for the next message. Raises the error of a limit that passes before."""
        limits = current_limits()
        if not self._poll.poll(_PERIOD_SECONDS * 1000):
            most = inf if is_start else self._first_bytes + limits.max_bytes + OWN_BYTES
            self._watch(limits, seconds, most)
        try:
            return receive(self._connection, _transfer_deadline(), limits.max_bytes + OWN_BYTES)
        except TimeoutError as error:
            if is_of_signal_handler(error):
                raise
            limits.check_deadline()
            raise self._error("stopped in the middle of an answer") from None

    def _watch(self, limits: Limits, seconds: float, most_bytes: float) -> None:
        """Wait for the start of a message. Raises the error of a limit that passes before."""
        start, delay = monotonic(), _queued_seconds(self.pid)
        active, work = start, _work_done(self.pid)
        while not self._poll.poll(_PERIOD_SECONDS * 1000):
            limits.check_deadline()
            if _resident_bytes(self.pid) > most_bytes:
                raise out_of_memory_error()
            now, before = monotonic(), work
            if now - start - (_queued_seconds(self.pid) - delay) > seconds:
                raise self._silence(f"gave no answer within {seconds:.3g} s")
            work = _work_done(self.pid)
            if work is None or work != before:
                active = now
            elif now - active > (idle := self.program.idle_seconds):
                raise self._silence(f"did nothing for {idle:.3g} s, and gave no answer")

    def _silence(self, reason: str) -> ProcessLost:
        error = self._error(reason)
        error.is_silent = True
        return error

    def _error(self, reason: str, hint: str = "") -> ProcessLost:
        message = f"the process that {self.program.task} {reason}"
        return ProcessLost(message, hint=hint or self.program.hint, code=self.program.code)

    def _death(self) -> ProcessLost:
        """The error of a process that closed its connection, with its last words."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_SECONDS)
        status = self._process.returncode
        log = self._drain_log()
        self.close()
        ending = "closed its connection" if status is None else f"ended: {status_text(status)}"
        error = self._error(": ".join([ending, *last_lines(log, 1)]))
        error.failed_check = "\n".join(_failed_check(_lines(log)))
        return error

    def _drain_log(self) -> bytes:
        """Read what the process has printed since the last request, at most a full pipe."""
        with suppress(BlockingIOError):
            return os.read(self._log, _LOG_BYTES)
        return b""

    def close(self) -> None:
        """End the process."""
        if self._is_closed:
            return
        self._is_closed = True
        self._connection.close()
        for end in (self._lifeline, self._log):
            os.close(end)
        if self.owner == os.getpid():
            self._process.kill()
            self._process.wait()


def start_module(
    words: Sequence[str],
    launcher: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> subprocess.Popen[bytes]:
    """Start a module with arguments, by Python or a launcher of it; `options` are those of Popen.

    Modules come from the path of this process alone, not from the current folder. `environment`
    has variables beyond those of this process.
    """
    command = [*launcher, sys.executable, "-P", "-m", *words]
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    variables = {**os.environ, **(environment or {}), "PYTHONPATH": path}
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, env=variables, **options)


_CHILDREN: Final[WeakSet[ChildProcess]] = WeakSet()


def _close_copies() -> None:
    """Close what a copy of this process has of its children, which would outlive it else."""
    for child in list(_CHILDREN):
        child.close()


os.register_at_fork(after_in_child=_close_copies)


def _moved(ends: Iterable[int], opened: ExitStack) -> list[int]:
    """Descriptors with numbers that no standard stream has, also if those are closed."""
    moved = []
    with ExitStack() as first:
        for end in ends:
            first.callback(os.close, end)
        for end in ends:
            moved.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3))
            opened.callback(os.close, moved[-1])
    return moved


C = TypeVar("C", bound=ChildProcess)


class ChildPool(Generic[C]):
    """The processes of one program that wait for work; the sessions of a process share them."""

    def __init__(self, start: Callable[[], C]) -> None:
        self._start = start
        self._idle: list[C] = []
        self._lock = threading.Lock()
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        """Start anew in a copy of this process; another thread may have held the lock."""
        self._lock, self._idle = threading.Lock(), []

    @contextmanager
    def leased(self) -> Iterator[C]:
        """A process for one caller at a time; the one that was used last, if it is idle."""
        child = self._taken() or self._start()
        try:
            yield child
        finally:
            with self._lock:
                if child.is_usable and len(self._idle) < _IDLE_PROCESSES:
                    self._idle.append(child)
                else:
                    child.close()

    def _taken(self) -> C | None:
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.is_usable:
                    return child
                child.close()
        return None

    def close(self) -> None:
        """End the processes that wait."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()


def _transfer_deadline() -> float:
    return min(current_limits().deadline, monotonic() + _TRANSFER_SECONDS)


def _reported_error(reported: object) -> Exception:
    """The error that a process reports: kind, message, hint, and code."""
    fields = reported if isinstance(reported, dict) else {}
    kind = _KINDS.get(str(fields.get("kind")), ExecutionError)
    hint, code = (fields.get(name) for name in ("hint", "code"))
    message = str(fields.get("message", "an unknown error"))
    return kind(message, hint=hint and str(hint), code=code and str(code))


def _queued_seconds(pid: int) -> float:
    """The time that a process has waited for a processor; 0 on a system that does not count it."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _work_done(pid: int) -> float | None:
    """The processor time of all threads of a process; None if it waits for a disk, or is unknown.

    A thread that waits for a processor is not idle: its waiting time is part of the result.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, *fields = file.read().rpartition(b")")[2].split()
        return None if state == b"D" else int(fields[10]) + int(fields[11]) + _queued_seconds(pid)
    except (OSError, ValueError, IndexError):
        return None


def _resident_bytes(pid: int) -> int:
    """The memory of a process that it shares with no other; 0 if unknown."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            fields = [int(field) for field in file.read().split()]
        return (fields[1] - fields[2]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0


def status_text(status: int) -> str:
    """Describe an exit status, negative for a signal."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def last_lines(log: bytes, count: int) -> list[str]:
    """The last lines that a process printed, or the first ones of a check of C++ that failed."""
    lines = _lines(log)
    return _failed_check(lines)[:count] or lines[-count:]


def _lines(log: bytes) -> list[str]:
    lines = [line.strip() for line in log.decode("utf-8", "replace").splitlines()]
    return [line[:_MAX_LINE] for line in lines if line]


def _failed_check(lines: Sequence[str]) -> list[str]:
    """The lines from a failed check on, without its time and thread: a trace of calls follows."""
    failed = [index for index, line in enumerate(lines) if _FATAL.match(line)]
    return [_FATAL.sub("", line) for line in lines[failed[-1] :]] if failed else []
