"""Milliseconds of the longest run of recorded models while a session chooses its engine.

The first run, which prepares, does not count. The peer is twice the median of the runs plus 300 ms.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from compileall import compile_dir
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from types import ModuleType

from benchmarks.measurement import Row
from benchmarks.models import ROOT, Recordings, Run, cfgraph_side

SECONDS, TINY_SECONDS = 60.0, 0.1
ALLOWED_MS = 300.0
MEDIANS = 2.0
# runs that are always measured
LEAST_RUNS = 5


def measure(tf: ModuleType | None, *, tiny: bool, path: Path | None = None) -> Iterator[Row]:
    """The longest run of each model."""
    # without cached bytecode, the first use of an op or a pass compiles its module
    compile_dir(ROOT / "cfgraph", quiet=2)
    recordings = Recordings(path)
    for case in recordings.cases():
        gc.collect()  # no model pays for the garbage of the last one
        load, make = cfgraph_side(recordings, case)
        try:
            run = make(load())
            run()
            times = run_times(run, TINY_SECONDS if tiny else SECONDS)
        except Exception as error:
            print(f"{case['id']}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        most = MEDIANS * median(times) + ALLOWED_MS
        yield Row(f"{case['id']}, longest of {len(times)} runs", max(times), "ms", most, 1.0)


def run_times(run: Run, seconds: float) -> list[float]:
    """The milliseconds of each run in some seconds."""
    times = list[float]()
    end = perf_counter() + seconds
    while len(times) < LEAST_RUNS or perf_counter() < end:
        start = perf_counter()
        run()
        times.append((perf_counter() - start) * 1e3)
    return times


@dataclass(frozen=True)
class Section:
    """The section `stalls` on recordings in a folder or an archive."""

    path: Path

    def measure(self, tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
        """The rows of these recordings."""
        return measure(tf, tiny=tiny, path=self.path)
