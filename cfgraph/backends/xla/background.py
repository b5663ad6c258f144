"""Work beside the runs of a session, in one thread of the process.

The thread is a daemon: a process that ends does not wait for it, unless jaxlib loads an executable
at this moment, since a thread of a C++ library must not end within it.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from time import sleep
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet

from cfgraph.errors import Unsupported

T = TypeVar("T")

# seconds without work, after which a thread and its child process end
_IDLE_SECONDS: Final = 5.0
# after which a run beside the work gets the interpreter back, each time that it released it
_SWITCH_SECONDS: Final = 0.0005
# shares of the time of a run that the thread has alone after it, and the most seconds: while it
# works, and while it waits for another process
_WORKING_SHARE: Final = 0.3
_WAITING_SHARE: Final = 0.05
_MOST_ALONE: Final = 0.05


class Job(Generic[T]):
    """Work, and its result or error once it is done; a copy of the process never does it."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._results: list[T] = []
        self._done = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        """Do the work."""
        try:
            with _yielding():
                self._results.append(self._work())
        except BaseException as error:
            self.error = error
        self._done.set()

    def abandon(self) -> None:
        """End with an error in a copy of the process, unless it is done."""
        if not self.is_done:
            self.error = Unsupported("this process is a copy of the one in which XLA compiled")
            self._done = threading.Event()  # another thread may have held the lock of the first
            self._done.set()

    @property
    def is_done(self) -> bool:
        """True if there is a result or an error."""
        return self._done.is_set()

    def result(self) -> T:
        """Wait for the result. Raises the error."""
        self._done.wait()
        if self.error is not None:
            raise self.error
        return self._results[0]


# the interval of a process in which a thread yields, as it was before
_REPLACED: Final = list[float]()


@contextmanager
def _yielding() -> Iterator[None]:
    """Context of work that soon gives the interpreter to a thread that waits for it."""
    _REPLACED.append(sys.getswitchinterval())
    sys.setswitchinterval(min(_REPLACED[-1], _SWITCH_SECONDS))
    try:
        yield
    finally:
        _restore_interval()


def _restore_interval() -> None:
    if _REPLACED:
        sys.setswitchinterval(_REPLACED[-1])
        _REPLACED.pop()


# no thread of a copy of the process yields
os.register_at_fork(after_in_child=_restore_interval)


class BackgroundThread:
    """A thread that works in order; the functions in `releases` are called after idle seconds.

    `uninterrupted` is held while a library works that the end of the process must not interrupt.
    """

    def __init__(self) -> None:
        self.releases: list[Callable[[], None]] = []
        self._jobs: WeakSet[Job[Any]] = WeakSet()
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        """Start without work in a copy of the process, which has no such thread."""
        for job in [*self._jobs]:
            job.abandon()
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock, self._runs = threading.Lock(), False
        self._share = _WORKING_SHARE
        self.uninterrupted = threading.Lock()

    def start(self, work: Callable[[], T]) -> Job[T]:
        """Work in the context of the caller, after what was started before."""
        job = Job(partial(copy_context().run, work))
        with self._lock:
            self._jobs.add(job)
            self._queue.put(job.run)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="XLA compiler", daemon=True).start()
        return job

    def let_work(self, seconds: float) -> None:
        """Give the thread time alone, after a run beside it that took some seconds.

        It would hardly get the interpreter: it asks for it only where nobody releases it for an
        interval, and operations of NumPy release it all the time.
        """
        sleep(min(self._share * seconds, _MOST_ALONE))

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Context in which the thread waits for another process."""
        self._share = _WAITING_SHARE
        try:
            yield
        finally:
            self._share = _WORKING_SHARE

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
    BACKGROUND.uninterrupted.acquire()


atexit.register(_wait_at_exit)
