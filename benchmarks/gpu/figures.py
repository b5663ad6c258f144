"""A figure, and how it is taken: medians of runs that are waited for."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cfgraph.backends.gpu.context import GpuContext
from cfgraph.runtime.trace.events import TraceEvent


@dataclass(frozen=True, slots=True)
class Figure:
    """One cell of a table: `value` in `unit`, or None with `why` there is none."""

    table: str
    row: str
    column: str
    value: float | None
    unit: str
    why: str = ""


@dataclass(slots=True)
class Bench:
    """The devices that are measured (a GPU, or simulated ones to try the code), and the deadline.

    `tiny` sizes are for trying, too. `recordings` has the models that are run. `pipeline` are the
    times of each traced run of layers, `trace` the events of the one with the greatest part,
    `most`, in which several gpus compute.
    """

    gpu: GpuContext | str
    tiny: bool
    ends: float
    recordings: Path | None = None
    figures: list[Figure] = field(default_factory=list)
    pipeline: list[dict[str, Any]] = field(default_factory=list)
    trace: list[TraceEvent] = field(default_factory=list)
    most: float = 0.0

    @property
    def simulated(self) -> bool:
        """True if no GPU computes."""
        return isinstance(self.gpu, str)

    def sync(self) -> None:
        """Wait for all work of the GPU."""
        if not isinstance(self.gpu, str):
            self.gpu.xp.cuda.Device().synchronize()

    def median(self, work: Callable[[], object], repeats: int = 7, warm: int = 2) -> float:
        """The median seconds of some runs, each waited for; the first ones do not count."""
        repeats, warm = (1, 1) if self.tiny else (repeats, warm)
        taken = []
        for place in range(warm + repeats):
            gc.collect()
            self.sync()
            began = time.perf_counter()
            work()
            self.sync()
            if place >= warm:
                taken.append(time.perf_counter() - began)
            if self.late and taken:
                break
        return statistics.median(taken)

    @property
    def late(self) -> bool:
        """True where there is no time for another figure."""
        return time.monotonic() > self.ends

    def take(
        self, table: str, row: str, column: str, unit: str, figure: Callable[[], float | str]
    ) -> float | None:
        """Note a figure, or why there is none: words that stand for it, an error, the time."""
        value, why = None, ""
        if self.late:
            why = "no time left"
        else:
            try:
                found = figure()
                value, why = (None, found) if isinstance(found, str) else (found, "")
            except Exception as error:  # one column that fails leaves the others
                why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"[:200]
        self.figures.append(Figure(table, row, column, value, unit, why))
        return value

    def session(self, graph: Any, **options: Any) -> Any:
        """A session on this bench's gpus."""
        import cfgraph

        return cfgraph.Session(graph, **{"devices": "gpu:0", "gpu": self.gpu, **options})
