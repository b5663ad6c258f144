"""Recorded models: on the CPU and on the card, each on its default engine and under XLA.

Each figure is taken by a process of its own, as XLA may end the process or compile for long.
"""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu.figures import Bench
from benchmarks.models import ROOT, Recordings

TABLE: Final = "Recorded models, ms per run"
FIRST: Final = "Recorded models, s of the first run, which compiles"
# a card first, as any machine has a CPU
COLUMNS: Final[dict[str, dict[str, Any]]] = {
    "GPU, XLA": {"devices": "gpu:0", "engine": "xla"},
    "GPU, default": {"devices": "gpu:0"},
    "CPU, XLA": {"engine": "xla"},
    "CPU, default": {},
}
# parts of the names of models that loop, train, sample, or convolve
_CHOSEN: Final = (
    *("masked", "viterbi", "train", "beam", "gpt2", "nuts", "hmc"),
    *("efficientnet", "nasnet", "xception", "mobilenet", "resnet", "saved"),
)
# seconds of the process of a figure, and of the runs that it repeats
_LIMIT: Final = 40.0
_SECONDS: Final = 0.5
_WARM_UPS: Final = 2
_MOST_RUNS: Final = 200


def measure(bench: Bench) -> None:
    """Each model in each column; without recordings, the SavedModel of fixtures/."""
    cases = Recordings(bench.recordings).cases()
    chosen = [case["id"] for case in cases if any(name in case["id"] for name in _CHOSEN)]
    for column, name in product(COLUMNS, chosen[:1] if bench.tiny else chosen):
        first = list[float]()
        bench.take(TABLE, name, column, "ms", partial(_milliseconds, bench, name, column, first))
        if first:
            bench.take(FIRST, name, column, "s", first.pop)


def _milliseconds(bench: Bench, name: str, column: str, first: list[float]) -> float | str:
    """The milliseconds of a run, or the last line of the process that has none.

    The seconds of the first run are appended.
    """
    kind = "simulated" if bench.simulated else "real"
    words = [column, name, kind, *([str(bench.recordings)] if bench.recordings else [])]
    seconds = max(min(_LIMIT, bench.ends - time.monotonic()), 1.0)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.gpu.models", *words],
            capture_output=True,
            check=False,
            text=True,
            timeout=seconds,
            cwd=ROOT,
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {seconds:.0f} s"
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        return f"status {done.returncode}: {last}"[:200]
    least, seconds = map(float, done.stdout.split())
    first.append(seconds)
    return least


def run_times(column: str, name: str, kind: str, recordings: Path | None) -> tuple[float, float]:
    """The least milliseconds of a run of a model, and the seconds of the first one."""
    import cfgraph

    recorded = Recordings(recordings)
    (case,) = [case for case in recorded.cases() if case["id"] == name]
    source, feeds = recorded.graph(case), recorded.feeds(case)
    options = COLUMNS[column]
    on_gpu = {"gpu": kind} if "devices" in options else {}
    is_saved = isinstance(source, str)
    graph = cfgraph.load(source) if isinstance(source, str) else cfgraph.loads(source)
    state = cfgraph.restore(source) if is_saved else None
    session = cfgraph.Session(graph, state=state, soft_placement=True, **options, **on_gpu)
    *before, last = case["runs"]
    for run in before:
        if run.get("init"):
            session.run(targets=run["targets"])
    start = time.perf_counter()
    session.run(last["fetches"], feeds)
    first = time.perf_counter() - start
    for _ in range(_WARM_UPS):
        session.run(last["fetches"], feeds)
    times, end = list[float](), time.monotonic() + _SECONDS
    while not times or (len(times) < _MOST_RUNS and time.monotonic() < end):
        start = time.perf_counter()
        session.run(last["fetches"], feeds)
        times.append((time.perf_counter() - start) * 1e3)
    return min(times), first


if __name__ == "__main__":
    column, name, kind, *path = sys.argv[1:]
    print(*run_times(column, name, kind, Path(path[0]) if path else None))
