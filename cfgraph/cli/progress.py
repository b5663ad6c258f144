"""Progress of a command that works for over a second: a line on the terminal of stderr.

A thread reads the position of the main thread now and then; the work itself does nothing for it.
Output of the command erases the line first.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from typing import IO, Final

from cfgraph.ir.printable import clean_lines
from cfgraph.stack_position import StackPosition, main_thread_position

# seconds until the line appears, and between two updates
_DELAY: Final = 1.0
_PERIOD: Final = 0.5
# seconds to wait for output in progress at the end
_PATIENCE: Final = 0.1
_ERASE: Final = b"\r\x1b[2K"
_STDERR: Final = 2


class _Stream(io.TextIOWrapper):
    """A stream to the terminal whose text replaces the progress line."""

    line: ProgressLine

    def write(self, text: str) -> int:
        """Erase the progress line, and write."""
        self.line.before_output(text)
        return super().write(text)


class ProgressLine:
    """The progress line of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_drawn = self._has_ended = False
        self._at_line_start = True
        self._previous: tuple[str, int, float] | None = None

    def start(self) -> None:
        """Show progress from now on, unless stderr is no terminal; a quiet command ends it."""
        if not _is_terminal(sys.stderr) or os.environ.get("TERM") == "dumb":
            return
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if _is_terminal(stream):
                erasing = self._erasing(stream)
                setattr(sys, name, erasing)
                setattr(sys, f"__{name}__", erasing)
        threading.Thread(target=self._update, name="progress", daemon=True).start()

    def end(self) -> None:
        """Erase the line for good.

        The watchdog calls this while the main thread may wait for a stopped terminal, in the lock.
        """
        self._has_ended = True
        if self._lock.acquire(timeout=_PATIENCE):
            self._erase()
            self._lock.release()

    def before_output(self, text: str) -> None:
        """Erase the progress line before other output is written."""
        with self._lock:
            self._erase()
            if text:
                self._at_line_start = text.endswith("\n")

    def _erasing(self, stream: IO[str]) -> _Stream:
        """A stream in place of another one, which becomes unusable."""
        assert isinstance(stream, io.TextIOWrapper)
        settings = stream.encoding, stream.errors, None
        wrapped = _Stream(stream.detach(), *settings, line_buffering=True)
        wrapped.line = self
        return wrapped

    def _erase(self) -> None:
        if self._is_drawn:
            self._is_drawn = False
            os.write(_STDERR, _ERASE)

    def _update(self) -> None:
        """Draw the line until the process ends; the thread's main function."""
        time.sleep(_DELAY)
        while not self._has_ended:
            position = main_thread_position()
            if position is not None:
                text = clean_lines(self.text(position, time.monotonic()))
                self._draw(text)
            time.sleep(_PERIOD)

    def _draw(self, text: str) -> None:
        with self._lock:
            if self._at_line_start and not self._has_ended:
                columns = os.get_terminal_size(_STDERR).columns or 80
                self._is_drawn = True
                os.write(_STDERR, _ERASE + text[: columns - 1].encode(errors="replace"))

    def text(self, position: StackPosition, now: float) -> str:
        """The line for a position: iterations of the outermost loop and their rate, or nodes."""
        if position.loops:
            name, index = position.loops[0]
            rate = self._rate(name, index, now)
            return f"{position.activity}: {index:,} iterations of {name}{rate}"
        count = f": {position.nodes:,} nodes" if position.nodes is not None else ""
        node = f", at {position.node}" if position.node is not None else ""
        return f"{position.activity}{count}{node}"

    def _rate(self, name: str, index: int, now: float) -> str:
        """Iterations a second since the previous update of the same loop."""
        previous, self._previous = self._previous, (name, index, now)
        if previous is None or previous[0] != name or previous[1] > index:
            return ""
        return f", {(index - previous[1]) / max(now - previous[2], 1e-3):,.0f}/s"


def _is_terminal(stream: IO[str] | None) -> bool:
    """True for a stream of text to a terminal."""
    return isinstance(stream, io.TextIOWrapper) and not stream.closed and stream.isatty()
