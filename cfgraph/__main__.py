"""Process entry point of the `cfgraph` command: streams, signals, exit status."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from cfgraph.cli import run


def main() -> None:
    """Run the command line of this process and exit with its status."""
    signal.signal(signal.SIGTERM, _terminated)
    for stream in (sys.stdout, sys.stderr):
        # file names and string tensors that are not valid text must not cause a failure
        getattr(stream, "reconfigure", _ignore)(errors="backslashreplace")
    try:
        code = run(sys.argv[1:])
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # the reader closed the pipe, as `head` does: exit silently, as `cat` does
        code = 141
        _drop_output()
    except OSError as failure:
        code = 3
        _drop_output()
        print(f"error: cannot write to standard output: {failure.strerror}", file=sys.stderr)
    sys.exit(code)


def _drop_output() -> None:
    """Redirect stdout to the null device, so that flushing its buffer at exit cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _terminated(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _ignore(**settings: str) -> None:
    """Replace the method of a closed stream."""


if __name__ == "__main__":
    main()
