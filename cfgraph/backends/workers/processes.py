"""Workers as processes of this machine, each called through a pipe.

The pipe is inherited, so that only the driver can write to it, and its end ends the worker.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Final

from cfgraph.backends.workers.worker import Worker
from cfgraph.backends.workers.workers import WorkerDied
from cfgraph.errors import ExecutionError, UsageError
from cfgraph.processes.child_process import start_module

DEFAULT_LOST_AFTER: Final = 10.0
_EXIT_SECONDS: Final = 2.0
# a socket that can be written to has room for this
_ROOM_BYTES: Final = 1 << 14
# seconds for a process to start and import its modules
_START_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Processes:
    """Workers as processes of this machine, one per task of the devices or `workers` in all.

    A worker that is silent for `lost_after` seconds is lost. Raises UsageError for values that are
    not positive.
    """

    workers: int | None = None
    lost_after: float = DEFAULT_LOST_AFTER

    def __post_init__(self) -> None:
        require_positive(self.workers, self.lost_after)

    def transport(self) -> ProcessTransport:
        """The transport that starts the workers."""
        return ProcessTransport(self.lost_after)


def require_positive(workers: int | None, lost_after: float) -> None:
    """Raise UsageError for a number of workers or seconds that is not positive."""
    if workers is not None and workers < 1:
        raise UsageError(f"{workers} workers", hint="use one or more")
    if not lost_after > 0:
        raise UsageError(f"lost_after={lost_after}", hint="use a positive number of seconds")


def wait_for_starts(starts: Sequence[Future[Any]]) -> list[Any]:
    """The results of the calls that start workers. Raises ExecutionError for one that has none."""
    end = time.monotonic() + _START_SECONDS
    results = []
    for worker, start in enumerate(starts):
        try:
            results.append(start.result(max(0.0, end - time.monotonic())))
        except WorkerDied:
            message = f"the process of worker {worker} ended while it started"
            raise ExecutionError(message, hint="stderr has its last words") from None
        except TimeoutError:
            message = f"worker {worker} has not started within {_START_SECONDS:.0f} s"
            raise ExecutionError(message) from None
    return results


class ProcessTransport:
    """The worker processes of a session."""

    def __init__(self, lost_after: float) -> None:
        self._lost_after = lost_after
        self._handles: list[ProcessHandle] = []

    def start(self, devices: Sequence[Sequence[str]], secret: bytes) -> list[ProcessHandle]:
        """Start one process for each list of devices."""
        first = len(self._handles)
        for _ in devices:
            self._handles.append(ProcessHandle())  # at once: a signal may interrupt the start
        started = self._handles[first:]
        wait_for_starts(
            [
                handle.call("start", index, secret, "127.0.0.1", self._lost_after)
                for index, handle in enumerate(started)
            ]
        )
        return started

    def close(self) -> None:
        """End all processes."""
        for handle in self._handles:
            handle.close()
        for handle in self._handles:
            handle.wait()
        self._handles.clear()


class ProcessHandle:
    """One worker process, and the calls that it has not answered.

    Calls wait in a queue unless the pipe has room, since a process that is stopped reads none.
    Pings have a connection of their own, since large values take long.
    `launcher` is a command that starts the process, such as `ip netns exec NAME`.
    """

    def __init__(self, launcher: Sequence[str] = ()) -> None:
        calls, their_calls = socket.socketpair()
        self._pings, their_pings = socket.socketpair()
        theirs = [their_calls.fileno(), their_pings.fileno()]
        with their_calls, their_pings:
            self._process = start_module(
                ["cfgraph.backends.workers.processes", *map(str, theirs)],
                launcher,
                pass_fds=theirs,
                start_new_session=True,  # Ctrl-C reaches the driver alone, which ends the step
            )
        self.host, self.pid = socket.gethostname(), self._process.pid
        self._pipe = Connection(calls.detach())
        self._lock = threading.Lock()
        self._numbers = count()
        self._calls: dict[int, Future[Any]] = {}
        self._ended = False
        self._unwritten: SimpleQueue[bytes | None] = SimpleQueue()
        self._queued = 0  # calls in the queue, or that a thread writes
        self._room = select.poll()
        self._room.register(self._pipe, select.POLLOUT)
        self._unanswered: deque[Future[Any]] = deque()  # pings
        for target in (self._write, self._answers, self._echoes):
            name = f"cfgraph{target.__name__}"
            threading.Thread(target=target, name=name, daemon=True).start()

    def call(self, method: str, *args: Any) -> Future[Any]:
        """Call a method of the worker."""
        future: Future[Any] = Future()
        if method == "ping":
            self._unanswered.append(future)
            with suppress(OSError):  # the end of the process ends the calls, too
                self._pings.send(b"\0")
            return future
        number = next(self._numbers)
        message = pickle.dumps((number, method, args))
        with self._lock:
            if self._ended:
                future.set_exception(WorkerDied())
            else:
                self._calls[number] = future
                self._send(message)
        return future

    def _send(self, message: bytes) -> None:
        """Write a call, which never waits; the end of the process ends all calls."""
        if self._queued or len(message) > _ROOM_BYTES or not self._room.poll(0):
            self._queued += 1
            self._unwritten.put(message)
        else:
            with suppress(OSError):
                self._pipe.send_bytes(message)

    def _write(self) -> None:
        """Write the calls of the queue until the process ends."""
        with suppress(OSError):
            while (message := self._unwritten.get()) is not None:
                self._pipe.send_bytes(message)
                with self._lock:
                    self._queued -= 1

    def _echoes(self) -> None:
        """Receive the answers to pings until the process ends."""
        with suppress(OSError), self._pings:
            while echo := self._pings.recv(64):
                for _ in echo:
                    self._unanswered.popleft().set_result(None)

    def _answers(self) -> None:
        """Receive the results of calls until the process ends."""
        try:
            while True:
                number, result, error = self._pipe.recv()
                future = self._calls.pop(number)
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)
        except (EOFError, OSError):
            with self._lock:
                self._ended = True
                calls, self._calls = self._calls, {}
            for future in calls.values():
                future.set_exception(WorkerDied())

    def kill(self) -> None:
        """End the process."""
        self._process.kill()

    def close(self) -> None:
        """Ask the process to end."""
        with self._lock:
            self._send(pickle.dumps((-1, "exit", ())))
            self._unwritten.put(None)

    def wait(self) -> None:
        """Wait until the process has ended; kill it if it does not end by itself."""
        try:
            self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _echo(pings: socket.socket) -> None:
    """Answer the pings of the driver."""
    with suppress(OSError):
        while data := pings.recv(64):
            pings.sendall(data)


def _serve(pipe: Connection) -> None:
    """Answer calls until the driver closes its end."""
    lock = threading.Lock()
    workers: list[Worker] = []
    # a step runs in parallel to the calls that look at it
    steps = ThreadPoolExecutor(1, "cfgraph-step")
    calls = ThreadPoolExecutor(1, "cfgraph-call")

    def answer(number: int, method: str, args: tuple[Any, ...]) -> None:
        result, failure = None, None
        try:
            if method == "start":
                workers.append(Worker(*args))
            else:
                result = getattr(workers[0], method)(*args)
        except Exception as error:
            failure = error
        with lock:
            pipe.send((number, result, failure))

    while True:
        try:
            number, method, args = pipe.recv()
        except (EOFError, OSError):
            break
        if method == "exit":
            break
        (steps if method == "step" else calls).submit(answer, number, method, args)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a step may still run


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _calls, _pings = map(int, sys.argv[1:])
    threading.Thread(target=_echo, args=(socket.socket(fileno=_pings),), daemon=True).start()
    _serve(Connection(_calls))
