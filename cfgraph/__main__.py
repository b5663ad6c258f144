"""Process entry point of the `cfgraph` command: streams, signals, exit status."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from types import FrameType

_START = time.monotonic()


def _exit_at_once(number: int, frame: FrameType | None) -> None:
    """End the process while nothing needs cleaning up, during imports."""
    os._exit(128 + number)


for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    # a parent that ignores Ctrl-C, such as nohup, means its children too
    if signal.getsignal(_number) is not signal.SIG_IGN:
        signal.signal(_number, _exit_at_once)

from cfgraph.ir.gc_pause import delay_first_collection  # noqa: E402

delay_first_collection()

from cfgraph.blas_environment import start_with_one_thread  # noqa: E402
from cfgraph.cli.command_line import interruption_reporter, run  # noqa: E402
from cfgraph.cli.progress import ProgressLine  # noqa: E402
from cfgraph.cli.standard_streams import exit_code_with_output, guard_standard_streams  # noqa: E402
from cfgraph.cli.watchdog import Interruption, Watchdog  # noqa: E402
from cfgraph.limits import abandoned_work_continues  # noqa: E402


def main() -> None:
    """Run the command line of this process and exit with its status."""
    start_with_one_thread()
    guard_standard_streams()
    progress = ProgressLine()
    report_interruption = interruption_reporter(sys.argv[1:])

    def report(request: Interruption) -> None:
        progress.end()
        report_interruption(request)

    watchdog = Watchdog(_START, report)
    try:
        watchdog.start()
        progress.start()
        code = exit_code_with_output(lambda: run(sys.argv[1:], watchdog, progress))
    except Interruption as request:
        # the command had not begun, or its output was being written
        os._exit(request.exit_code)
    try:
        progress.end()
        # the command has ended, and leaves with its own status; in all threads, and to the end of
        # the interpreter, which restores the default action of a signal with a handler
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
    except Interruption:
        os._exit(code)
    if watchdog.raised or abandoned_work_continues():
        # a large heap takes seconds to free, and XLA to compile
        os._exit(code)
    # the last collections of the interpreter take a sixth of a short command's time
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    main()
