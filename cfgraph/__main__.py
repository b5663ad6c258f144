"""Process entry point of the `cfgraph` command: streams, signals, exit status."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from cfgraph.cli import run


def main() -> None:
    """Run the command line of this process and leave with its exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    for stream in (sys.stdout, sys.stderr):
        # a file name or a string tensor that is no valid text must not become a failure
        getattr(stream, "reconfigure", _ignore)(errors="backslashreplace")
    try:
        code = run(sys.argv[1:])
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # the reader went away, as `head` does: be as quiet as `cat`
        code = 141
        _drop_output()
    except OSError as failure:
        code = 3
        _drop_output()
        print(f"error: cannot write to standard output: {failure.strerror}", file=sys.stderr)
    sys.exit(code)


def _drop_output() -> None:
    """Point stdout at nothing, so that what is left in its buffer fails no flush at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _terminated(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _ignore(**settings: str) -> None:
    """Stand in for the method of a stream that is closed."""


if __name__ == "__main__":
    main()
