"""The progress line of long work."""

from __future__ import annotations

import time

from cfgraph.cli.progress import ProgressLine
from cfgraph.stack_position import StackPosition


def test_the_progress_line_has_iterations_and_their_rate() -> None:
    line = ProgressLine()
    run = StackPosition("run", "while/add", (("while", 1000), ("inner", 7)))
    later = StackPosition("run", "while/add", (("while", 5000), ("inner", 2)))
    start = time.monotonic()
    assert line.text(run, start) == "run: 1,000 iterations of while"
    assert line.text(later, start + 2) == "run: 5,000 iterations of while, 2,000/s"
    # the loop has started again
    assert line.text(run, start + 3) == "run: 1,000 iterations of while"
    assert line.text(StackPosition("run", "x", ()), start) == "run, at x"
    assert line.text(StackPosition("lower", "x", None, 12345), start) == "lower: 12,345 nodes, at x"
