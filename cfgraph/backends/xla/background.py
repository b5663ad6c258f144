"""Work beside the runs of a session, in one thread of the process.

The thread is a daemon: a process that ends does not wait for it, unless jaxlib loads an executable
at this moment, since a thread of a C++ library must not end within it.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

T = TypeVar("T")

# seconds without work, after which a thread and its child process end
_IDLE_SECONDS: Final = 5.0
# held while a library works that the end of the process must not interrupt
UNINTERRUPTED: Final = threading.Lock()


class BackgroundThread:
    """A thread that works in order; the functions in `releases` are called after idle seconds."""

    def __init__(self) -> None:
        self.releases: list[Callable[[], None]] = []
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        """Start without work in a copy of the process, which has no such thread."""
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock, self._runs = threading.Lock(), False

    def start(self, work: Callable[[], T]) -> Future[T]:
        """Work in the context of the caller, after what was started before."""
        future, context = Future[T](), copy_context()

        def complete() -> None:
            try:
                future.set_result(context.run(work))
            except BaseException as error:
                future.set_exception(error)

        with self._lock:
            self._queue.put(complete)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="XLA compiler", daemon=True).start()
        return future

    def _run(self) -> None:
        while True:
            try:
                self._queue.get(timeout=_IDLE_SECONDS)()
            except Empty:
                with self._lock:
                    if self._queue.empty():
                        self._runs = False
                        break
        for release in self.releases:
            release()


BACKGROUND: Final = BackgroundThread()


def _wait_at_exit() -> None:
    UNINTERRUPTED.acquire()


atexit.register(_wait_at_exit)
