"""The program of the process that has imported TensorFlow, and of those forked from it per mode.

Nothing of TensorFlow runs before the fork, so that every process has flags, threads, and memory of
its own, and a dead one is replaced without another import.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import socket
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from time import monotonic
from typing import Final

from cfgraph.integrations.tensorflow.modes import CONVERTER_MODES, MODES, Mode
from cfgraph.integrations.tensorflow.worker import answer, failed
from cfgraph.limits import current_limits
from cfgraph.processes.child_process import OWN_BYTES, last_lines, status_text
from cfgraph.processes.child_program import serve
from cfgraph.processes.messages import (
    ConnectionEnded,
    MessageError,
    ProcessMessage,
    receive,
    send,
)

# for a process that closed its connection to end by itself, with a status that says why
_GRACE_SECONDS: Final = 5.0
_MAX_LOG_BYTES: Final = 1 << 16
_MAX_LINES: Final = 100
_PR_SET_PDEATHSIG: Final = 1
_FORK: Final = get_context("fork")
ModeAnswer = Callable[[Mode, ProcessMessage], ProcessMessage]


def main(connection: int) -> None:
    """Import TensorFlow, then answer requests, each in a process of its mode."""
    import tensorflow as tf

    ModeProgram(socket.socket(fileno=connection), tf.__version__, answer).serve()


class ModeProgram:
    """The processes of all modes, each replaced when it failed or has answered many requests."""

    def __init__(self, connection: socket.socket, version: str, answer: ModeAnswer) -> None:
        self._connection, self._version, self._answer = connection, version, answer
        self._processes: dict[str, _ModeProcess] = {}

    def serve(self) -> None:
        """Answer requests until the connection ends."""
        serve(self._connection, {"version": self.version, "run": self.run})

    def version(self, _: ProcessMessage, __: list[int]) -> ProcessMessage:
        """The version of TensorFlow."""
        return ProcessMessage({"version": self._version})

    def run(self, request: ProcessMessage, _: list[int]) -> ProcessMessage:
        """Pass a request to the process of its mode, or to one that answers no other."""
        mode = (MODES | CONVERTER_MODES)[request.header["mode"]]
        is_single = request.header["is_single"]
        process = None if is_single else self._processes.pop(mode.name, None)
        process = process or _ModeProcess(partial(self._serve_mode, mode, request))
        reply = process.request(request)
        log = process.last_lines()
        if is_single or process.is_closed or process.requests >= mode.max_requests:
            process.close()
            process.log.close()
        else:
            self._processes[mode.name] = process
        return ProcessMessage({**reply.header, "log": log}, reply.arrays)

    def _serve_mode(
        self, mode: Mode, request: ProcessMessage, process: _ModeProcess, connection: socket.socket
    ) -> None:
        """Answer requests of one mode until the connection ends, with all output in the log."""
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        others = (item.connection for item in self._processes.values())
        for inherited in (self._connection, process.connection, *others):
            inherited.close()
        for stream in (1, 2):
            os.dup2(process.log.fileno(), stream)
        os.environ.update(request.header["environment"])
        memory = request.header["memory"]
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(ConnectionEnded):
            while True:
                send(connection, self._answer(mode, receive(connection)))


class _ModeProcess:
    """A process that answers requests in one mode, and its log; closed after a failure."""

    def __init__(self, program: Callable[[_ModeProcess, socket.socket], None]) -> None:
        self.requests = 0
        self.is_closed = False
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process is used
        self.connection, far = socket.socketpair()
        self._process = _FORK.Process(target=program, args=(self, far))
        gc.freeze()
        with far:
            self._process.start()

    def request(self, message: ProcessMessage) -> ProcessMessage:
        """Send a request, and wait for its answer; a failure ends the process."""
        seconds = message.header["seconds"]
        deadline = monotonic() + seconds
        self.requests += 1
        try:
            send(self.connection, message, deadline)
            return receive(self.connection, deadline, current_limits().max_bytes + OWN_BYTES)
        except TimeoutError:
            reply = failed("timeout", f"no answer within {seconds:g} s")
        except MessageError as error:
            reply = failed("garbage", str(error))
        except ConnectionEnded:
            status = self.close(min(seconds, _GRACE_SECONDS))
            return failed("signal" if status < 0 else "exit", status_text(status))
        self.close()
        return reply

    def close(self, grace: float = 0.0) -> int:
        """End the process, after `grace` seconds; returns its exit status."""
        self.is_closed = True
        self.connection.close()
        self._process.join(grace)
        self._process.kill()
        self._process.join()
        return self._process.exitcode or 0

    def last_lines(self) -> list[str]:
        """The last lines that the process printed."""
        size = self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, size - _MAX_LOG_BYTES))
        return last_lines(self.log.read(), _MAX_LINES)
