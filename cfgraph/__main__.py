"""Process entry point of the `cfgraph` command: streams, signals, exit status."""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType

_START = time.monotonic()


def _exit_at_once(number: int, frame: FrameType | None) -> None:
    """End the process while nothing needs cleaning up: during imports, and after the command."""
    os._exit(128 + number)


def _handle_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        # a parent that ignores Ctrl-C, such as nohup, means its children too
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _exit_at_once)


_handle_signals()

from cfgraph.blas_environment import start_with_one_thread  # noqa: E402
from cfgraph.cli import interruption_reporter, run  # noqa: E402
from cfgraph.watchdog import Interruption, Watchdog  # noqa: E402


def main() -> None:
    """Run the command line of this process and exit with its status."""
    start_with_one_thread()
    for stream in (sys.stdout, sys.stderr):
        # file names and string tensors that are not valid text must not cause a failure
        getattr(stream, "reconfigure", _ignore)(errors="backslashreplace")
    watchdog = Watchdog(_START, interruption_reporter(sys.argv[1:]))
    watchdog.start()
    try:
        code = run(sys.argv[1:], watchdog)
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
    except Interruption as request:
        # the command had ended, its output was being written
        os._exit(request.exit_code)
    _handle_signals()
    if watchdog.interrupted:
        # a large heap takes seconds to free
        os._exit(code)
    sys.exit(code)


def _drop_output() -> None:
    """Redirect stdout to the null device, so that flushing its buffer at exit cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _ignore(**settings: str) -> None:
    """Replace the method of a closed stream."""


if __name__ == "__main__":
    main()
