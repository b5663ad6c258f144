"""Microseconds per iteration of loops by XLA and without it, compared with TensorFlow.

The peer of XLA is TensorFlow with automatic clustering, that of generated code TensorFlow as it is.
The extra time of the first run, which compiles the clusters, is a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

import numpy as np

import cfgraph
from benchmarks.measurement import Row, alternating_times, best_time, single_time
from benchmarks.peer import runner
from benchmarks.running import GRAPHS, Work, works
from cfgraph.backends.xla.jax_library import has_jax
from cfgraph.ir.serde import graph_def
from cfgraph.runtime.cluster_runner import ClusterRunner
from cfgraph.runtime.session import Session

# of a cluster alone, and of a session
CALL_ENGINES: Final = ("numpy", "auto", "xla")
ENGINES: Final = ("compiled", "xla")

SMALL = b"""
i = Placeholder() {dtype=int32, shape=[]}
x = Placeholder() {dtype=float32, shape=[32,32]}
y = XlaLaunch(i, x) {Tconstants=(), Targs=(int32, float32), Nresources=0, \
Tresults=(int32, float32), function=@f}

function f(i: int32, x: float32) -> (j: int32, y: float32) {
  one = Const() {dtype=int32, value=int32[]:1}
  j = AddV2(i, one:output:0) {T=int32}
  y = Tanh(x) {T=float32}
  return j = j:z:0
  return y = y:y:0
}
"""


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """A call of a small cluster, then each loop by either engine."""
    for engine in CALL_ENGINES:
        if engine == "numpy" or has_jax():
            took = call(engine, repeats=1 if tiny else 20)
            yield Row(f"call of a small cluster, {engine}", took * 1e6, "µs a call")
    for work in works(tiny=tiny):
        yield from measure_work(tf, work, tiny=tiny)


def call(engine: str, repeats: int) -> float:
    """The seconds that one call of a cluster takes, without the executor around it."""
    graph = cfgraph.loads(SMALL, "graph")
    launches = ClusterRunner(engine)
    kernel = launches.kernel(graph, graph["y"], "cpu:0")
    inputs = (np.int32(1), np.ones((32, 32), np.float32))
    count = 100
    return best_time(lambda: [kernel(_Silent(), *inputs) for _ in range(count)], repeats) / count


class _Silent:
    """A step without an observer."""

    def note(self, device: str, text: str, seconds: float = 0.0) -> None:
        """Drop a note."""


def measure_work(tf: ModuleType | None, work: Work, *, tiny: bool) -> Iterator[Row]:
    """One loop by each engine."""
    path, scale, unit = GRAPHS / work.file, 1e6 / work.iterations, "µs per iteration"
    for engine in ENGINES[:1] if tiny else ENGINES:
        if engine == "xla" and not has_jax():
            continue
        ours = session_runner(path, work, engine)
        jit = engine == "xla"
        peer = runner(tf, path, work.fetches, work.feeds, jit=jit) if tf else None
        first = single_time(ours)
        first_peer = single_time(peer) if peer else None
        mine, theirs = alternating_times(ours, peer, repeats=1 if tiny else 3)
        per_iteration = None if theirs is None else theirs * scale
        yield Row(
            f"{work.name}, {engine}",
            mine * scale,
            unit,
            per_iteration,
        )
        if engine == "xla":
            more = None if first_peer is None or theirs is None else first_peer - theirs
            yield Row("  the first run takes longer by", first - mine, "s", more)


def session_runner(path: Path, work: Work, engine: str) -> Callable[[], object]:
    """Run a graph file in one session of ours, again and again."""
    session = Session(graph_def.graph_from_bytes(path.read_bytes()), engine=engine)
    return lambda: session.run(work.fetches, work.feeds)
