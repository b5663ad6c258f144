"""Peak memory of a loop of many iterations: it must not grow with their number."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

from benchmarks.measurement import Row
from benchmarks.running import GRAPHS

ITERATIONS = 1_000_000
TINY = 1_000
# a child inherits the peak of its parent, so that ru_maxrss would report the parent's
_RUN = """
import sys
import numpy as np
import cfgraph
session = cfgraph.Session(cfgraph.load(sys.argv[1]))
session.run(["count:0"], {"n:0": np.int32(int(sys.argv[2]))})
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """Peak memory of a short counter loop and of a long one, each in a process of its own."""
    short, long = (10, TINY) if tiny else (1_000, ITERATIONS)
    few, many = _peak(short), _peak(long)
    yield Row(f"peak memory, {short:,} iterations", few, "MiB")
    yield Row(f"peak memory, {long:,} iterations", many, "MiB", few, 1.1)


def _peak(iterations: int) -> float:
    command = [sys.executable, "-c", _RUN, str(GRAPHS / "counter.pb"), str(iterations)]
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(completed.stdout) / 1024
