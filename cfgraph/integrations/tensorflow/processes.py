"""Processes of TensorFlow, and how each one fails: by an error, a signal, a hang, or garbage."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from time import monotonic
from types import TracebackType
from typing import IO, Any, Final

from cfgraph.errors import ExecutionError, Unsupported, install_hint
from cfgraph.integrations.tensorflow.modes import Mode
from cfgraph.limits import current_limits
from cfgraph.processes.child_process import OWN_BYTES, last_lines, status_text
from cfgraph.processes.messages import (
    ConnectionEnded,
    MessageError,
    ProcessMessage,
    receive,
    send,
    send_descriptors,
)

WORKER_COMMAND: Final = (sys.executable, "-m", "cfgraph.integrations.tensorflow.worker")
DEFAULT_SECONDS: Final = 60.0
DEFAULT_MEMORY: Final = 6 << 30
# the import of TensorFlow, and a fork
_START_SECONDS: Final = 300.0
_CONTROL_SECONDS: Final = 60.0
# for a process that closed its connection to end by itself, with a status that says why
_GRACE_SECONDS: Final = 5.0
_MAX_LOG_BYTES: Final = 1 << 16
_MAX_LINES: Final = 4
_MAX_LOGGED: Final = 100
_OUT_OF_MEMORY: Final = re.compile(r"bad_alloc|MemoryError|[Oo]ut of memory|RESOURCE_EXHAUSTED")
_STAMP: Final = re.compile(r"^[IWEF]?\d{4} [\d:.]+ +\d+ |^\d{4}-\d\d-\d\d [\d:.]+: ")
_EXITED: Final = "exit status"
_UNSUPPORTED: Final = "UnimplementedError"
_UNCOMPILED: Final = re.compile(
    r"unsupported operations|not supported by this interpreter|explicitly marked illegal"
    r"|neither a custom op nor a flex op|Op type not registered"
    r"|No OpKernel was registered|No registered '[^']*' OpKernel"
    r"|requires a fixed tensor list size|Graph does not contain node"
)
# lines before the reason in a message of the executor
_TRACE: Final = re.compile(
    r"\s*$|Graph execution error:|Detected at node |<stack traces unavailable>|\s+File "
    r"|\d+ root error\(s\) found"
)
_NUMBERS: Final = re.compile(r"0x[0-9a-f]+|\d+")
_NAMES: Final = re.compile(r"\{\{[^}]*\}\}|'[^']*'|\"[^\"]*\"|\[[^\]]*\]")


@dataclass(frozen=True, slots=True)
class ModeFailure:
    """A failure of TensorFlow.

    `kind` is `error` for one that it reports, `unsupported` for a graph that the mode cannot
    run, else `signal`, `exit`, `timeout`, `garbage`, or
    `memory`. `log` has the last lines that the process printed.
    """

    kind: str
    message: str
    error: str = ""
    log: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """The first line of the message after the trace of a node."""
        lines = self.message.splitlines()
        return next((line.strip() for line in lines if not _TRACE.match(line)), self.kind)

    @property
    def signature(self) -> tuple[str, str, str]:
        """Kind, error class, and reason without names and numbers, equal for equal failures."""
        return self.kind, self.error, _NUMBERS.sub("#", _NAMES.sub("", self.reason)).strip()


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a mode to one request: a message, or a failure; and what was printed."""

    message: ProcessMessage | None = None
    failure: ModeFailure | None = None
    log: tuple[str, ...] = ()

    @property
    def is_reported(self) -> bool:
        """True if the process answered, be it with an error of TensorFlow."""
        return self.failure is None or self.failure.kind in ("error", "unsupported")


class HostLost(ExecutionError):
    """The end of the process that forks the others, and of those with it."""


class TensorFlowHost:
    """The process that has imported TensorFlow, and forks the others; starts on demand."""

    def __init__(self, command: Sequence[str] = WORKER_COMMAND) -> None:
        self.command = command
        self.version = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def fork(
        self, mode: Mode, memory: int, environment: Mapping[str, str] | None = None
    ) -> ModeProcess:
        """Return a new process of a mode.

        Raises Unsupported without TensorFlow, and HostLost if this process ended.
        """
        control = self._started()
        variables = {"TF_XLA_FLAGS": mode.flags} if mode.flags else {}
        variables |= environment or {}
        request = ProcessMessage({"fork": mode.name, "memory": memory, "environment": variables})
        with ExitStack() as opened:
            log = opened.enter_context(tempfile.TemporaryFile())
            near, far = socket.socketpair()
            opened.enter_context(near)
            with far:
                pid = int(self._exchange(control, request, (far.fileno(), log.fileno()))["pid"])
            opened.pop_all()
        return ModeProcess(self, mode, pid, near, log)

    def wait(self, pid: int, grace: float) -> int:
        """Return the exit status of a process, negative for a signal; end it after a time.

        Raises HostLost if this process ended.
        """
        if self._control is None:  # the system ended those that it forked, too
            return -signal.SIGKILL
        request = ProcessMessage({"wait": pid, "grace": grace})
        return int(self._exchange(self._control, request)["status"])

    def close(self) -> None:
        """End the process, and with it all that it forked."""
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._control = None

    def _started(self) -> socket.socket:
        if self._control is not None:
            return self._control
        near, far = socket.socketpair()
        with far, tempfile.TemporaryFile() as log:
            self._process = subprocess.Popen(
                [*self.command, str(far.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[far.fileno()],
                start_new_session=True,
            )
            far.close()
            self._control = near
            try:
                reply = receive(near, monotonic() + _START_SECONDS)
                self.version = str(reply.header["version"])
            except _LOST:
                self.close()
                lines = log_lines(log)
                message = "TensorFlow cannot be started"
                hint = install_hint("interop")
                if lines and "No module named 'tensorflow'" not in lines[-1]:
                    message += f": {lines[-1]}"
                raise Unsupported(message, hint=hint) from None
        return near

    def _exchange(
        self, control: socket.socket, request: ProcessMessage, descriptors: Sequence[int] = ()
    ) -> Mapping[str, Any]:
        """Return the answer to a request, which may be followed by descriptors."""
        deadline = monotonic() + _CONTROL_SECONDS
        try:
            send(control, request, deadline)
            send_descriptors(control, descriptors)
            return receive(control, deadline).header
        except _LOST:
            self.close()
            message = "the process that imported TensorFlow ended"
            hint = "the system may have no memory left: close other programs, or reduce the graph"
            raise HostLost(message, hint=hint) from None


_LOST: Final = (ConnectionEnded, MessageError, TimeoutError, OSError)


@dataclass(slots=True)
class ModeProcess:
    """A process that answers requests in one mode; unusable after a failure."""

    host: TensorFlowHost
    mode: Mode
    pid: int
    connection: socket.socket
    log: IO[bytes]
    requests: int = 0

    def request(self, message: ProcessMessage, seconds: float) -> Answer:
        """Send a request, and wait for its answer; a failure ends the process."""
        limit = current_limits().deadline
        self.requests += 1
        try:
            deadline = min(limit, monotonic() + seconds)
            send(self.connection, message, deadline)
            reply = receive(self.connection, deadline, current_limits().max_bytes + OWN_BYTES)
        except TimeoutError:
            current_limits().check_deadline()
            return self._ended("timeout", f"no answer within {seconds:g} s")
        except MessageError as error:
            return self._ended("garbage", str(error))
        except ConnectionEnded:
            return self._died()
        if "error" not in reply.header:
            return Answer(reply)
        name, text = str(reply.header["error"]), str(reply.header.get("message", ""))
        kind = "unsupported" if name == _UNSUPPORTED or _UNCOMPILED.search(text) else "error"
        return Answer(failure=ModeFailure(kind, text, name))

    def end(self, grace: float = 0.0) -> int:
        """End the process, after `grace` seconds; returns its exit status."""
        self.connection.close()
        return self.host.wait(self.pid, grace)

    def close(self) -> None:
        """End the process, and drop what it printed."""
        try:
            self.end()
        finally:
            self.log.close()

    def _died(self) -> Answer:
        with self.log:
            status = status_text(self.end(_GRACE_SECONDS))
            lines = log_lines(self.log)
        if any(_OUT_OF_MEMORY.search(line) for line in lines):
            return Answer(failure=ModeFailure("memory", f"out of memory ({status})", log=lines))
        kind = "exit" if status.startswith(_EXITED) else "signal"
        return Answer(failure=ModeFailure(kind, status, log=lines))

    def _ended(self, kind: str, message: str) -> Answer:
        with self.log:
            self.end()
            return Answer(failure=ModeFailure(kind, message, log=log_lines(self.log)))


def log_lines(log: IO[bytes], count: int = _MAX_LINES) -> tuple[str, ...]:
    """Return the last lines that a process printed, without the time stamps of TensorFlow."""
    size = log.seek(0, 2)
    log.seek(max(0, size - _MAX_LOG_BYTES))
    return tuple(_STAMP.sub("", line) for line in last_lines(log.read(), count))


class ModePool:
    """A process per mode, replaced when it failed or has answered many requests."""

    def __init__(
        self,
        command: Sequence[str] = WORKER_COMMAND,
        seconds: float = DEFAULT_SECONDS,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        self.host = TensorFlowHost(command)
        self.seconds = seconds
        self.memory = memory
        self._processes: dict[str, ModeProcess] = {}

    def __enter__(self) -> ModePool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._drop()
        self.host.close()

    def _drop(self) -> None:
        """Close the connections to all processes, which end then."""
        for process in self._processes.values():
            process.connection.close()
            process.log.close()
        self._processes.clear()

    def _retried(self, request: Callable[[], Answer]) -> Answer:
        """Repeat a request once if the process that forks the others ended during it."""
        try:
            return request()
        except HostLost:
            self._drop()
            return request()

    def request(self, mode: Mode, message: ProcessMessage) -> Answer:
        """Return the answer of a mode."""
        return self._retried(lambda: self._request(mode, message))

    def _request(self, mode: Mode, message: ProcessMessage) -> Answer:
        process = self._processes.pop(mode.name, None)
        if process is not None and process.requests >= mode.max_requests:
            process.close()
            process = None
        process = process or self.host.fork(mode, self.memory)
        answer = self._answer(process, message)
        if answer.is_reported:
            self._processes[mode.name] = process
        return answer

    def request_once(
        self, mode: Mode, message: ProcessMessage, environment: Mapping[str, str]
    ) -> Answer:
        """Return the answer of a process of its own, with more environment variables."""
        return self._retried(lambda: self._request_once(mode, message, environment))

    def _request_once(
        self, mode: Mode, message: ProcessMessage, environment: Mapping[str, str]
    ) -> Answer:
        process = self.host.fork(mode, self.memory, environment)
        answer = self._answer(process, message)
        if answer.is_reported:
            answer = replace(answer, log=log_lines(process.log, _MAX_LOGGED))
            process.close()
        return answer

    def _answer(self, process: ModeProcess, message: ProcessMessage) -> Answer:
        try:
            return process.request(message, self.seconds)
        except BaseException:
            process.close()
            raise
