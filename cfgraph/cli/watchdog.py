"""Watchdog of the command's process: signals and limits end it, whatever the main thread does.

A signal, the deadline, and the memory limit raise `Interruption` in the main thread, which cleans
up and reports. The exception may never come: a library computes without returning to Python, or the
interpreter drops exceptions of the callback that it runs. A second thread then ends the process.
Neither can act while a library computes and holds the lock of the interpreter.
"""

from __future__ import annotations

import math
import os
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, NoReturn

from cfgraph.errors import CfgraphError
from cfgraph.limits import out_of_memory_error, timeout_error
from cfgraph.stack_position import StackPosition, main_thread_position, stack_position

# seconds until the main thread must react, and until it must have cleaned up
_REACTION_SECONDS: Final = 0.7
_CLEANUP_SECONDS: Final = 3.0
# runs and passes report the deadline themselves, with a place, if they can
_DEADLINE_GRACE: Final = 0.3
# seconds between two looks at the memory of the process
_MEMORY_PERIOD: Final = 0.05
# memory of cfgraph itself and its libraries; address space that threads and XLA only reserve
_OWN_BYTES: Final = 256 << 20
_RESERVED_BYTES: Final = 1 << 30
_STATM: Final = "/proc/self/statm"
_SIGNAL_EXIT_CODE: Final = 128


class Interruption(BaseException):
    """The end of a command by a signal (without an error), the deadline, or the memory limit.

    `position` is where the main thread was, if it was at work on a graph.
    """

    def __init__(self, exit_code: int, error: CfgraphError | None = None) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code
        self.error = error
        self.position: StackPosition | None = None


class Watchdog:
    """Signal handlers of the main thread, and the thread that ends the process if they fail.

    `start_time` is the time when the command started. `report` writes the message of an
    interruption, without buffers that the main thread may have locked.
    """

    def __init__(self, start_time: float, report: Callable[[Interruption], None]) -> None:
        self.start_time = start_time
        self._report = report
        self._deadline = self._max_memory = math.inf
        self._interruption: Interruption | None = None
        self._raised = self._is_reported = False
        self._lock = threading.Lock()
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def start(self) -> None:
        """Install the handlers, and start the thread."""
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        # bytes arrive also while the main thread cannot run a handler
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        sys.unraisablehook = self._on_unraisable
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def set_limits(self, deadline: float, max_memory: int) -> None:
        """Set the limits: a time of `time.monotonic`, and bytes beyond those in use now."""
        self._deadline = deadline + _DEADLINE_GRACE
        used, data = _memory_in_use()
        self._max_memory = used + max_memory + _OWN_BYTES
        _limit_allocations(data + max_memory + _RESERVED_BYTES)
        os.write(self._write, b"\0")

    @property
    def raised(self) -> Interruption | None:
        """The interruption that was raised in the main thread, if there is one."""
        return self._interruption if self._raised else None

    def claim_report(self) -> bool:
        """True for the first caller, who reports the interruption."""
        with self._lock:
            is_first, self._is_reported = not self._is_reported, True
        return is_first

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Raise in the main thread; once, because its clean-up must not be interrupted."""
        if self._raised:
            return
        self._raised = True
        if self._interruption is None:
            self._interruption = Interruption(_SIGNAL_EXIT_CODE + number)
        self._interruption.position = stack_position(frame)
        raise self._interruption

    def _on_unraisable(self, failure: Any) -> None:
        """End the process if the interpreter drops an interruption."""
        if isinstance(failure.exc_value, Interruption):
            self._end(failure.exc_value)
        sys.__unraisablehook__(failure)

    def _watch(self) -> None:
        """Wait for signals and limits; the thread's main function."""
        while True:
            ready, _, _ = select.select([self._read], [], [], self._seconds_to_wait())
            numbers = [number for number in os.read(self._read, 64) if number] if ready else []
            interruption = self._exceeded_limit()
            if numbers:
                interruption = Interruption(_SIGNAL_EXIT_CODE + numbers[0])
            elif interruption is not None:
                self._interruption = interruption
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
            if interruption is not None:
                time.sleep(_REACTION_SECONDS)
                if self._raised:
                    time.sleep(_CLEANUP_SECONDS - _REACTION_SECONDS)
                self._end(self._interruption or interruption)

    def _seconds_to_wait(self) -> float | None:
        until_deadline = self._deadline - time.monotonic()
        seconds = min(until_deadline, _MEMORY_PERIOD if self._max_memory != math.inf else math.inf)
        return None if seconds == math.inf else max(0.0, seconds)

    def _exceeded_limit(self) -> Interruption | None:
        """The interruption by a limit that is exceeded."""
        if time.monotonic() > self._deadline:
            return Interruption(timeout_error().exit_code, timeout_error())
        if self._max_memory != math.inf and _memory_in_use()[0] > self._max_memory:
            error = out_of_memory_error()
            return Interruption(error.exit_code, error)
        return None

    def _end(self, interruption: Interruption) -> NoReturn:
        """End the process at once; nothing is flushed, and temporary files stay."""
        try:
            if self.claim_report():
                if interruption.position is None:
                    interruption.position = main_thread_position()
                self._report(interruption)
        finally:
            os._exit(interruption.exit_code)


def _memory_in_use() -> tuple[int, int]:
    """Bytes of memory that the process uses, and bytes that it may write to (0 if unknown)."""
    try:
        with open(_STATM, "rb") as file:
            fields = [int(field) for field in file.read().split()]
    except OSError:
        return 0, 0
    page = resource.getpagesize()
    return (fields[1] - fields[2]) * page, fields[5] * page


def _limit_allocations(size: int) -> None:
    """Let allocations fail beyond this size, unless the limit of the process is lower."""
    try:
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if soft == resource.RLIM_INFINITY or size < soft:
            resource.setrlimit(resource.RLIMIT_DATA, (size, hard))
    except (OSError, ValueError):
        return
