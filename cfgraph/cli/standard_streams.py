"""Standard output and standard error of a process: closed, a closed pipe, or a full disk."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import Any, Final

_BROKEN_PIPE_EXIT_CODE: Final = 141
_NO_OUTPUT_EXIT_CODE: Final = 3


class _StandardOutput(io.FileIO):
    """File descriptor 1; an error of a write names it."""

    failed = False

    def write(self, data: Any, /) -> int:
        """Write bytes; return their number."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            self.failed = True
            message = f"cannot write to standard output: {error.strerror}"
            raise OSError(error.errno, message) from None


class _StandardError(io.FileIO):
    """File descriptor 2; messages that cannot be written are dropped, as if it were closed."""

    def write(self, data: Any, /) -> int:
        """Write bytes; return their number."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError:
            return len(data)


def guard_standard_streams() -> None:
    """Replace the streams by ones that name their errors, and that write any text."""
    for name, descriptor, kind in (("stdout", 1, _StandardOutput), ("stderr", 2, _StandardError)):
        stream = getattr(sys, name)
        if stream is None or stream is not getattr(sys, f"__{name}__"):
            continue  # closed, or replaced by the caller
        stream.flush()
        guarded = io.TextIOWrapper(
            io.BufferedWriter(kind(descriptor, "w", closefd=False)),
            stream.encoding,
            # file names and string tensors that are not valid text must not cause a failure
            "backslashreplace",
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        setattr(sys, name, guarded)


def exit_code_with_output(command: Callable[[], int]) -> int:
    """Run a command and write its output; return its exit code, or that of a failed write."""
    is_reported = False
    try:
        code = command()
        is_reported = _has_failed()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except BrokenPipeError:
        # the reader closed the pipe, as `head` does: exit silently, as `cat` does
        code = _BROKEN_PIPE_EXIT_CODE
        _drop_output()
        _drop_closed_messages()
    except OSError as failure:
        code = _NO_OUTPUT_EXIT_CODE
        _drop_output()
        if not is_reported:
            print(f"error: {failure.strerror}", file=sys.stderr)
    return code


def _has_failed() -> bool:
    """True if a write to stdout has failed, which the command has reported."""
    stream = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return isinstance(stream, _StandardOutput) and stream.failed


def _drop_output() -> None:
    """Redirect stdout to the null device, so that flushing its buffer at exit cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _drop_closed_messages() -> None:
    """Redirect stderr in the same way if its reader, as in `2>&1 | head`, closed the pipe."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
