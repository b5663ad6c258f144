"""Deadlines of calls: a thread raises `DeadlinePassed` in the thread of a call that is late.

The code that is called does nothing for it: Python raises the exception between two instructions,
as it does for Ctrl-C. Kernels in C run to their end.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

from cfgraph.limits import DeadlinePassed
from cfgraph.stack_position import thread_frame

# seconds until an exception is raised again that a finalizer has dropped
_REPEAT_SECONDS: Final = 0.5
# looks at the stack of a call before its deadline, seconds between them, and seconds before it
_SAMPLES: Final = 3
_LEAD_SECONDS: Final = 0.05
_LEAD_FRACTION: Final = 0.1
_SAMPLE_SECONDS: Final = 0.002
Sample = Callable[["FrameType | None"], None]


class _Alarm:
    __slots__ = ("deadline", "has_rung", "sample", "thread", "wake")

    def __init__(self, deadline: float, sample: Sample | None) -> None:
        self.deadline = deadline
        self.sample = sample
        self.thread = threading.get_ident()
        self.has_rung = False
        # the time of the next action
        self.wake = deadline
        if sample is not None:
            remaining = max(0.0, deadline - time.monotonic())
            self.wake -= min(_LEAD_SECONDS, _LEAD_FRACTION * remaining)

    def ring(self, now: float) -> None:
        """Look at the stack before the deadline; after it, raise DeadlinePassed, and again."""
        if self.wake < self.deadline:
            self.record()
            self.wake = self.deadline
        if self.deadline <= now:
            self.has_rung = True
            self.deadline = self.wake = now + _REPEAT_SECONDS
            _raise_in(self.thread, DeadlinePassed)

    def record(self) -> None:
        """Let `sample` look at the stack of the thread a few times, while it runs on."""
        assert self.sample is not None
        for number in range(_SAMPLES):
            # between two instructions, variables may be missing or disagree
            with suppress(Exception):
                self.sample(thread_frame(self.thread))
            if number < _SAMPLES - 1:
                time.sleep(_SAMPLE_SECONDS)


@dataclass(eq=False)
class _AlarmClock:
    """The alarms of all threads, and the thread that waits for the first.

    Each `with` uses the lock itself, as an exception may leave a lock that is acquired in Python
    code locked. `changed` is a condition of that lock.
    """

    lock: threading.Lock
    changed: threading.Condition
    alarms: dict[_Alarm, None] = field(default_factory=dict)
    wake: float = math.inf
    waiter: threading.Thread | None = None

    def reset(self) -> None:
        """Start without alarms, and without a thread."""
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.alarms = {}
        self.wake = math.inf
        self.waiter = None

    def set(self, alarm: _Alarm) -> None:
        """Raise DeadlinePassed in the thread of an alarm once its deadline passes."""
        with self.lock:
            self.alarms[alarm] = None
            if self.waiter is None:
                waiter = threading.Thread(target=self._wait, name="deadlines", daemon=True)
                waiter.start()
                self.waiter = waiter  # not one that the system has no room for
            elif alarm.wake < self.wake:
                self.changed.notify()

    def stop(self, alarm: _Alarm) -> None:
        """Remove an alarm, and an exception that has not been raised yet."""
        is_removed = False
        while not is_removed:
            try:
                with self.lock:
                    self.alarms.pop(alarm, None)
                is_removed = True
            except DeadlinePassed:
                pass
        if alarm.has_rung:
            _drop_exception(alarm.thread)

    def _wait(self) -> None:
        # Python 3.11 enters no traced function while an exception waits for another thread, which
        # may wait for the lock. Without the GIL, a fork during the first call of either leaves the
        # child a flag for which its next call waits forever
        if sys.gettrace() is not None:
            sys.settrace(None)
        if sys.getprofile() is not None:
            sys.setprofile(None)
        with self.lock:
            while self.alarms:
                now = time.monotonic()
                for alarm in self.alarms:
                    if alarm.wake <= now:
                        alarm.ring(now)
                self.wake = min(alarm.wake for alarm in self.alarms)
                now = time.monotonic()
                self.changed.wait(min(max(0.0, self.wake - now), threading.TIMEOUT_MAX))
            self.waiter = None


def _raise_in(thread: int, exception: type[BaseException]) -> None:
    """Raise an exception in a thread, instead of one that has not been raised yet."""
    raised = ctypes.py_object(exception)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)


def _drop_exception(thread: int) -> None:
    """Drop an exception that may wait to be raised in this thread: raise and catch it.

    To replace it by none would leave the interpreter's request to look for one: every later call
    would be slower, and Python 3.11 never returns from one under a profiler or debugger.
    """
    try:
        while True:
            _raise_in(thread, DeadlinePassed)
            for _ in range(100):  # raised at a jump back, unless a finalizer drops it
                pass
    except DeadlinePassed:
        pass


_lock = threading.Lock()
_clock = _AlarmClock(_lock, threading.Condition(_lock))
# a child process has no other threads
os.register_at_fork(after_in_child=_clock.reset)


def call_until(
    deadline: float,
    function: Callable[..., Any],
    *arguments: Any,
    sample: Sample | None = None,
) -> Any:
    """Call a function. Raises DeadlinePassed from within if it does not end before a deadline.

    `sample` is called a few times shortly before, with the innermost frame of the call.
    """
    alarm = _Alarm(deadline, sample)
    try:
        try:
            _clock.set(alarm)
            return function(*arguments)
        finally:
            _clock.stop(alarm)
    except DeadlinePassed:
        # it may have been raised at the start of `stop`, after the function had returned
        _clock.stop(alarm)
        raise
