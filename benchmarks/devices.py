"""Microseconds an iteration of loops over several devices, and how that grows with the devices."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np

import cfgraph
from benchmarks.measurement import Row, alternating_times
from benchmarks.memory import COMMAND, measured
from benchmarks.peer import importer
from cfgraph.ir.graph import Graph
from cfgraph.runtime.session import Session
from examples.paper.distributed_loops import counting_loop

GRAPHS = Path(__file__).parents[1] / "fixtures" / "graphs"
BUDGET = 0.35
# devices and iterations
VIRTUAL = (1024, 50)
TINY = (4, 5)
UNIT = "µs per iteration"


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """The eight-device loops against TensorFlow, then loops over 1 to 64 devices."""
    count = 20 if tiny else 500
    for name, file in (("", "eight_devices.pb"), (", barrier", "eight_devices_barrier.pb")):
        graph = cfgraph.load(GRAPHS / file)
        yield _row(tf, f"eight devices{name}", graph, 8, count, BUDGET, tiny)
    yield _virtual(*(TINY if tiny else VIRTUAL))
    if tiny:
        return
    for barrier in (False, True):
        for devices in (1, 2, 4, 8, 16, 32, 64):
            yield _loop(tf, devices, barrier, 32)
    for parallel in (1, 2, 4, 8, 16, 32):
        yield _loop(tf, 8, False, parallel)


def _virtual(devices: int, iterations: int) -> Row:
    cpus = [f"/device:CPU:{k}" for k in range(devices)]
    graph = cfgraph.loads(counting_loop(cpus[0], cpus, barrier=False, parallel=32).encode())
    fetches = [word for k in range(devices) for word in ("--fetch", f"out{k}")]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "loop.pb")
        cfgraph.save(graph, path)
        options = ["--devices", f"cpu:0-{devices - 1}", "--feed", f"n={iterations}"]
        _, seconds = measured(COMMAND, "run", path, "--clock", "virtual", *options, *fetches)
    work = f"virtual clock, {devices:,} devices, {iterations} iterations, at most 10"
    return Row(work, seconds, "s CPU")


def _loop(tf: ModuleType | None, devices: int, barrier: bool, parallel: int) -> Row:
    name = f"{devices} devices, {parallel} at once{', barrier' if barrier else ''}"
    cpus = [f"/device:CPU:{k}" for k in range(devices)]
    text = counting_loop(cpus[0], cpus, barrier=barrier, parallel=parallel)
    graph = cfgraph.loads(text.encode(), "graph")
    return _row(tf, name, graph, devices, 200, None, False)


def _row(
    tf: ModuleType | None,
    name: str,
    graph: Graph,
    devices: int,
    count: int,
    budget: float | None,
    tiny: bool,
) -> Row:
    fetches, feeds = [f"out{place}:0" for place in range(devices)], {"n:0": np.int32(count)}
    session = Session(graph, devices=f"cpu:0-{devices - 1}" if devices > 1 else "cpu:0")
    peer = None
    if tf is not None:
        config = tf.compat.v1.ConfigProto(device_count={"CPU": devices})
        imported = importer(tf, cfgraph.dumps(graph))()
        theirs = tf.compat.v1.Session(graph=imported, config=config)

        def peer() -> object:
            return theirs.run(fetches, feeds)

    mine, other = alternating_times(
        lambda: session.run(fetches, feeds), peer, repeats=1 if tiny else 3
    )
    scale = 1e6 / count
    return Row(name, mine * scale, UNIT, None if other is None else other * scale, budget)
