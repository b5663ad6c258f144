"""Positions of running work, read from the stack of its thread, so that the work pays nothing.

    LOCATORS[lower.__code__] = pass_position

A signal handler, or another thread, looks for the innermost function that is registered, and calls
its locator with the frames of the stack from that function inward.
"""

from __future__ import annotations

import gc
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Sequence, Sized
from contextlib import suppress
from itertools import pairwise
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple


class StackPosition(NamedTuple):
    """The node that a thread is working at.

    `loops` are the frames of a run and their iterations, outermost first; None in a pass over a
    graph, which has `nodes` nodes.
    """

    activity: str
    node: str | None = None
    loops: Sequence[tuple[str, int]] | None = None
    nodes: int | None = None

    @property
    def frame(self) -> str | None:
        """The frame path of a run, `/while[3]/inner[0]`; `/` for the root."""
        return None if self.loops is None else iteration_path(self.loops)

    def __str__(self) -> str:
        parts = [f"in {self.activity}"]
        parts += [f"at node '{self.node}'"] if self.node is not None else []
        parts += [f"frame '{self.frame}'"] if self.loops is not None else []
        return ", ".join(parts)


def iteration_path(loops: Iterable[tuple[str, int]]) -> str:
    """The path of loops and their iterations, `/while[3]/inner[0]`; `/` for the root."""
    return "".join(f"/{name}[{index}]" for name, index in loops) or "/"


Locator = Callable[[Sequence[FrameType]], StackPosition]
# by the code of the functions that do the work
LOCATORS: Final[dict[CodeType, Locator]] = {}


def stack_position(frame: FrameType | None) -> StackPosition | None:
    """The position of the thread with this innermost frame, None outside of registered work."""
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        locator = LOCATORS.get(frame.f_code)
        if locator is not None:
            # between two instructions, variables may be missing or disagree
            with suppress(Exception):
                return locator(frames[::-1])
        frame = frame.f_back
    return None


def main_thread_position() -> StackPosition | None:
    """The position of the main thread, for other threads."""
    return stack_position(thread_frame(threading.main_thread().ident or 0))


def thread_frame(thread: int) -> FrameType | None:
    """The innermost frame of a thread, None if it has ended.

    Python 3.11 holds a lock meanwhile that a garbage collection takes, too, and waits forever if
    one begins within.
    """
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames().get(thread)
    finally:
        if is_enabled:
            gc.enable()


def frame_variables(frame: FrameType) -> dict[str, Any]:
    """The local variables of a frame; unlike `f_locals`, the frame does not retain their values.

    Until version 3.12, Python stores the values in the frame, where arrays would outlive their
    last use. A debugger that traces the frame writes them back, and must find them.
    """
    snapshot = frame.f_locals
    variables = dict(snapshot)
    is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED
    if isinstance(snapshot, dict) and is_function and frame.f_trace is None:
        snapshot.clear()
    return variables


def is_of_signal_handler(error: BaseException) -> bool:
    """True if a handler of a signal raised an error: it runs between any two instructions.

    A handler, and nothing else, receives the frame that it interrupts.
    """
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return any(_receives(handler, interrupted) for interrupted, handler in pairwise(frames))


def _receives(called: FrameType, argument: object) -> bool:
    """True if an argument of a call, also of `*arguments`, is an object."""
    return any(
        value is argument or (type(value) is tuple and any(item is argument for item in value))
        for value in frame_variables(called).values()
    )


def pass_position(frames: Sequence[FrameType]) -> StackPosition:
    """The position of a pass: the variable `node` of the innermost function that has one."""
    names = (
        getattr(frame_variables(frame).get("node"), "name", None) for frame in reversed(frames)
    )
    node = next((name for name in names if isinstance(name, str)), None)
    graph = frame_variables(frames[0]).get("graph")
    nodes = len(graph) if isinstance(graph, Sized) else None
    return StackPosition(frames[0].f_code.co_name, node, nodes=nodes)
